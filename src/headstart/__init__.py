"""Personalised federated learning by meta-learning.

Train, across clients whose data never leave them, one initial model that any client — also one
that joins later — makes its own in a few gradient steps.

>>> import headstart as hs
>>> sorted(hs.algorithms.ALGORITHMS)
['apfl', 'aruba', 'fedavg', 'local', 'per-fedavg']
"""

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
