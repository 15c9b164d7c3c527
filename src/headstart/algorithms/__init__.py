"""Federated algorithms, one file each.

Headstart finds every final :class:`Algorithm` in this folder, and an experiment file can name it:
to add an algorithm, add a file. Two lines below also make it importable from here.
"""

from __future__ import annotations

from headstart._extensions import collect_builtin, require_subclass
from headstart.algorithms._algorithm_wrapper import AlgorithmWrapper
from headstart.algorithms._apfl import APFL
from headstart.algorithms._aruba import ARUBA
from headstart.algorithms._averaging import Averaging, Context
from headstart.algorithms._contract import (
    Algorithm,
    Cohort,
    GradientNormPoint,
    Part,
    Reply,
    Sent,
    Task,
    TaskObjective,
)
from headstart.algorithms._fedavg import FedAvg
from headstart.algorithms._local import Local
from headstart.algorithms._local_training import (
    LocalDescent,
    LocalOptimization,
    LocalTraining,
    PlainAdaptation,
    descend,
)
from headstart.algorithms._per_fedavg import PerFedAvg
from headstart.algorithms._server_step import ServerStep, Stepped

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
    "LocalDescent",
    "LocalOptimization",
    "LocalTraining",
    "Part",
    "PerFedAvg",
    "PlainAdaptation",
    "Reply",
    "Sent",
    "ServerStep",
    "Stepped",
    "Task",
    "TaskObjective",
    "descend",
]
