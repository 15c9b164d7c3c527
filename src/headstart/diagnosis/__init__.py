"""Before training for long: how different are the clients, and would personalisation pay?"""

from headstart.diagnosis.measuring import Diagnosis, diagnose
from headstart.diagnosis.reading import Reading, reading_of

__all__ = ["Diagnosis", "Reading", "diagnose", "reading_of"]
