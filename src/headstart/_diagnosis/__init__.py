"""Before training for long: how different are the clients, and would personalisation pay?"""

from headstart._diagnosis.measuring import Diagnosis, diagnose
from headstart._diagnosis.reading import Reading, reading_of

__all__ = ["Diagnosis", "Reading", "diagnose", "reading_of"]
