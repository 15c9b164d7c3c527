"""Federated algorithms, one file each.

Headstart finds every final :class:`Algorithm` in this folder, and an experiment file can name it:
adding an algorithm is adding a file. One line below also makes it importable from here.
"""

from __future__ import annotations

from headstart.algorithms.algorithm_wrapper import AlgorithmWrapper
from headstart.algorithms.apfl import APFL
from headstart.algorithms.aruba import ARUBA
from headstart.algorithms.averaging import Averaging, Context
from headstart.algorithms.contract import (
    Algorithm,
    Cohort,
    GradientNormPoint,
    Part,
    Reply,
    Sent,
    Task,
    TaskObjective,
)
from headstart.algorithms.fedavg import FedAvg
from headstart.algorithms.local import Local
from headstart.algorithms.local_training import LocalTraining, PlainAdaptation, descend
from headstart.algorithms.per_fedavg import PerFedAvg
from headstart.extensions import collect_builtin, require_subclass

ALGORITHMS: dict[str, type[Algorithm]] = collect_builtin(__name__, require_subclass(Algorithm))
"""Every algorithm by the name an experiment file uses."""

__all__ = [
    "ALGORITHMS",
    "APFL",
    "ARUBA",
    "Algorithm",
    "AlgorithmWrapper",
    "Averaging",
    "Cohort",
    "Context",
    "FedAvg",
    "GradientNormPoint",
    "Local",
    "LocalTraining",
    "Part",
    "PerFedAvg",
    "PlainAdaptation",
    "Reply",
    "Sent",
    "Task",
    "TaskObjective",
    "descend",
]
