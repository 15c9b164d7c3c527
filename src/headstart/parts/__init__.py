"""Parts of a model that are frozen, not adapted, or kept at the client."""

from headstart.parts.kept_at_client import KeptAtClient
from headstart.parts.selection import Parts, Prepared, prepare, prepared_algorithm, whole

__all__ = ["KeptAtClient", "Parts", "Prepared", "prepare", "prepared_algorithm", "whole"]
