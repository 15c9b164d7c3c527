"""Personalised federated learning by meta-learning.

Train, across clients whose data never leave them, one initial model that any client — also one
that joins later — makes its own in a few gradient steps.

>>> import headstart as hs
>>> sorted(hs.algorithms.ALGORITHMS)
['apfl', 'aruba', 'fedavg', 'local', 'per-fedavg']

Parts are imported when they are first used: what needs no JAX (the light process that a message
of a federation starts on a site) does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headstart import algorithms, data, models
    from headstart.algorithms import APFL, ARUBA, FedAvg, Local, PerFedAvg
    from headstart.errors import HeadstartError
    from headstart.meta import MetaBatches, meta_gradient
    from headstart.runs import EvaluationOptions, PersonalModel, Run, load_run, train

__version__ = "0.1.0"

__all__ = [
    "APFL",
    "ARUBA",
    "EvaluationOptions",
    "FedAvg",
    "HeadstartError",
    "Local",
    "MetaBatches",
    "PerFedAvg",
    "PersonalModel",
    "Run",
    "algorithms",
    "data",
    "load_run",
    "meta_gradient",
    "models",
    "train",
]

_PARTS = ("algorithms", "data", "models")
_HOMES = {
    "headstart.algorithms": ("APFL", "ARUBA", "FedAvg", "Local", "PerFedAvg"),
    "headstart.errors": ("HeadstartError",),
    "headstart.meta": ("MetaBatches", "meta_gradient"),
    "headstart.runs": ("EvaluationOptions", "PersonalModel", "Run", "load_run", "train"),
}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"headstart.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'headstart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
