"""Personalised federated learning by meta-learning.

Train, across clients whose data never leave them, one initial model that any client — also one
that joins later — makes its own in a few gradient steps.

>>> import headstart as hs
>>> "per-fedavg" in hs.algorithms.ALGORITHMS
True

Parts are imported when they are first used: what needs no JAX (the light process that a message
of a federation starts on a site) does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headstart import aggregation, algorithms, data, machine, models, testing
    from headstart._experiments import (
        EarlyStopping,
        EvaluationOptions,
        Listener,
        PersonalModel,
        Run,
        load_model,
        load_run,
        train,
    )
    from headstart._experiments.comparison import Comparison, compare
    from headstart._experiments.recommendation import Recommendation, recommend
    from headstart.aggregation import with_aggregation
    from headstart.algorithms import APFL, ARUBA, FedAvg, Local, PerFedAvg
    from headstart.errors import HeadstartError
    from headstart.meta import MetaBatches, meta_gradient
    from headstart.parts import Parts

__version__ = "0.1.0"

__all__ = [
    "APFL",
    "ARUBA",
    "Comparison",
    "EarlyStopping",
    "EvaluationOptions",
    "FedAvg",
    "HeadstartError",
    "Listener",
    "Local",
    "MetaBatches",
    "Parts",
    "PerFedAvg",
    "PersonalModel",
    "Recommendation",
    "Run",
    "aggregation",
    "algorithms",
    "compare",
    "data",
    "load_model",
    "load_run",
    "machine",
    "meta_gradient",
    "models",
    "recommend",
    "testing",
    "train",
    "with_aggregation",
]

_PARTS = ("aggregation", "algorithms", "data", "machine", "models", "testing")
_HOMES = {
    "headstart.aggregation": ("with_aggregation",),
    "headstart.algorithms": ("APFL", "ARUBA", "FedAvg", "Local", "PerFedAvg"),
    "headstart.errors": ("HeadstartError",),
    "headstart.meta": ("MetaBatches", "meta_gradient"),
    "headstart.parts": ("Parts",),
    "headstart._experiments": (
        *("EarlyStopping", "EvaluationOptions", "Listener", "PersonalModel", "Run"),
        *("load_model", "load_run", "train"),
    ),
    "headstart._experiments.comparison": ("Comparison", "compare"),
    "headstart._experiments.recommendation": ("Recommendation", "recommend"),
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
