"""Parts of a model that are frozen, not adapted, or kept at the client."""

from headstart.parts._kept_at_client import KeptAtClient
from headstart.parts._selection import (
    Parts,
    TrainingSetup,
    merge_frozen,
    prepare_algorithm,
    prepare_training,
)

__all__ = [
    "KeptAtClient",
    "Parts",
    "TrainingSetup",
    "merge_frozen",
    "prepare_algorithm",
    "prepare_training",
]
