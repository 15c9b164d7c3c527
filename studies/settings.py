"""Settings shared by the papers' experiments."""

from __future__ import annotations

from math import inf
from typing import Any

METHODS: dict[str, str] = {
    "fedavg": "FedAvg + update",
    "first-order": "Per-FedAvg (FO)",
    "hessian-free": "Per-FedAvg (HF)",
    "exact": "Per-FedAvg (exact)",
}
"""P's three methods, and the meta-gradient without approximation."""

NETWORK: dict[str, Any] = {"name": "mlp", "hidden": [80, 60], "activation": "elu"}


PLAIN: dict[str, Any] = {"max_gradient_norm": inf}
"""The papers' steps: never clipped."""


def algorithm(method: str, **options: Any) -> dict[str, Any]:
    """Return an ``[algorithm]`` table with the papers' plain steps."""
    name = {"name": "fedavg"} if method == "fedavg" else {"name": "per-fedavg", "method": method}
    return {**name, **PLAIN, **options}
