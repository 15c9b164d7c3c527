"""Federated algorithms, one file each.

Every final :class:`Algorithm` in this folder is found by itself and can be named in an experiment
file: adding an algorithm is adding a file.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from headstart.algorithms.apfl import APFL
from headstart.algorithms.aruba import ARUBA
from headstart.algorithms.averaging import Averaging, Context
from headstart.algorithms.contract import Algorithm, Cohort, Part, Reply, Sent, Task
from headstart.algorithms.fedavg import FedAvg
from headstart.algorithms.local import Local
from headstart.algorithms.local_training import LocalTraining, PlainAdaptation, descend
from headstart.algorithms.per_fedavg import PerFedAvg


def _find() -> dict[str, type[Algorithm]]:
    found = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for thing in vars(module).values():
            own = inspect.isclass(thing) and thing.__module__ == module.__name__
            if own and issubclass(thing, Algorithm) and not inspect.isabstract(thing):
                found[thing.name] = thing
    return dict(sorted(found.items()))


ALGORITHMS = _find()
"""Every algorithm by the name an experiment file uses."""

__all__ = [
    "ALGORITHMS",
    "APFL",
    "ARUBA",
    "Algorithm",
    "Averaging",
    "Cohort",
    "Context",
    "FedAvg",
    "Local",
    "LocalTraining",
    "Part",
    "PerFedAvg",
    "PlainAdaptation",
    "Reply",
    "Sent",
    "Task",
    "descend",
]
