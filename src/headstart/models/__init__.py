"""Networks, adapters for other people's networks, and the loss they are trained on."""

from __future__ import annotations

from typing import Any

from headstart.models.contract import Examples, Model
from headstart.models.mlp import MLP, mlp
from headstart.models.objective import Classification, Score

MODELS: dict[str, type[Any]] = {"mlp": MLP}

__all__ = ["MLP", "MODELS", "Classification", "Examples", "Model", "Score", "mlp"]
