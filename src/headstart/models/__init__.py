"""Networks, adapters for other libraries' networks, and the losses they are trained on."""

from __future__ import annotations

from typing import Any

from headstart._extensions import collect_builtin, require_methods
from headstart.models._adapters import from_equinox, from_flax, from_functions
from headstart.models._char_lstm import CharLSTM, char_lstm
from headstart.models._cnn import CNN, cnn
from headstart.models._logistic import Logistic, logistic
from headstart.models._mlp import MLP, mlp
from headstart.models._model import Examples, Model
from headstart.models._squares_mlp import SquaresMLP, squares_mlp
from headstart.models.objectives import (
    OBJECTIVES,
    Classification,
    Measure,
    MultiLabel,
    Objective,
    Regression,
    Score,
    Sequences,
    make_objective,
)

MODELS: dict[str, type[Any]] = collect_builtin(__name__, require_methods("init", "apply"))
"""Every built-in model by the name an experiment file uses; its fields are its options."""

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "OBJECTIVES",
    "CharLSTM",
    "Classification",
    "Examples",
    "Logistic",
    "Measure",
    "Model",
    "MultiLabel",
    "Objective",
    "Regression",
    "Score",
    "Sequences",
    "SquaresMLP",
    "char_lstm",
    "cnn",
    "from_equinox",
    "from_flax",
    "from_functions",
    "logistic",
    "make_objective",
    "mlp",
    "squares_mlp",
]
