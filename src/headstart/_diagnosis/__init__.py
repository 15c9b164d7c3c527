"""Before training for long: how different are the clients, and would personalisation pay?"""

from headstart._diagnosis.assessment import Assessment, assess_diagnosis
from headstart._diagnosis.measuring import Diagnosis, diagnose

__all__ = ["Assessment", "Diagnosis", "assess_diagnosis", "diagnose"]
