"""A federation small enough to compile and run in a moment."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from headstart.algorithms import APFL, ARUBA, Algorithm, FedAvg, Local, PerFedAvg
from headstart.data import FederatedDataset, Schema, from_clients
from headstart.models import logistic

FEATURES, CLASSES = 4, 3
MODEL = logistic()
COMMON: dict[str, Any] = {
    "local_steps": 3, "batch_size": 5, "inner_lr": 0.2, "local_lr": 0.1,
    "max_gradient_norm": float("inf"),
}  # fmt: skip
"""The papers' plain steps: never clipped."""
NO_ALPHA = {key: value for key, value in COMMON.items() if key != "inner_lr"}

VARIANTS: dict[str, Algorithm] = {
    "fedavg": FedAvg(**COMMON),
    "fedavg-weighted-adam": FedAvg(
        **COMMON, weights="examples", server_optimizer="adam", server_lr=0.01
    ),
    "per-fedavg-exact": PerFedAvg(**COMMON, inner_steps=2),
    "per-fedavg-first-order": PerFedAvg(**COMMON, method="first-order"),
    "per-fedavg-hessian-free": PerFedAvg(**COMMON, method="hessian-free"),
    "per-fedavg-options": PerFedAvg(
        **{**COMMON, "batch_size": (4, 5, 6)},
        inner_steps=1,
        random_iterate=True,
        local_lr_decay="inverse-sqrt",
    ),
    "fedavg-epochs-local-adam": FedAvg(
        **COMMON | {"max_gradient_norm": 0.5}, local_epochs=2, local_optimizer="adam"
    ),
    "fedavg-rates-schedule": FedAvg(
        **COMMON,
        rates="per-array",
        rates_method="first-order",
        server_lr=0.7,
        server_lr_decay="cosine",
        decay_rounds=5,
        warmup_rounds=2,
    ),
    "per-fedavg-rates": PerFedAvg(
        **COMMON, inner_steps=2, rates="per-coordinate", rates_per_step=True
    ),
    "per-fedavg-rates-apart": PerFedAvg(
        **COMMON,
        method="first-order",
        rates="per-array",
        rates_method="exact",
        rates_steps=2,
        earlier_losses=0.5,
    ),
    "local": Local(**COMMON),
    "apfl": APFL(**COMMON),
    "apfl-fixed": APFL(**COMMON, adaptive=False, mixing=0.3),
    "aruba": ARUBA(**NO_ALPHA, zeta=0.5, plus=0.5),
    "local-clipped": Local(**COMMON | {"max_gradient_norm": 0.3}),
    "apfl-clipped": APFL(**COMMON | {"max_gradient_norm": 0.3}),
    "aruba-clipped": ARUBA(**NO_ALPHA | {"max_gradient_norm": 0.3}),
    "local-optimizer": Local(**COMMON, local_optimizer="adam", local_lr_decay="inverse-sqrt"),
    "apfl-optimizers": APFL(
        **COMMON,
        local_optimizer="momentum",
        local_lr_decay="inverse-sqrt",
        server_optimizer="adam",
        server_lr=0.01,
        weight_decay=0.01,
    ),
    "aruba-schedule": ARUBA(
        **NO_ALPHA,
        server_optimizer="momentum",
        server_lr=0.5,
        server_lr_decay="cosine",
        decay_rounds=5,
        warmup_rounds=2,
    ),
}


EVERY_RUN = (
    "fedavg-weighted-adam", "fedavg-epochs-local-adam", "per-fedavg-exact", "per-fedavg-options",
    "per-fedavg-rates", "local", "apfl", "aruba",
)  # fmt: skip
"""Every algorithm, and every kind of state and reply; `make test-slow` runs all variants."""


def variants() -> list[Any]:
    """All variants as parameters of a test; further combinations of options are slow."""
    further = (pytest.mark.slow, pytest.mark.variants)
    return [
        pytest.param(algorithm, id=name, marks=() if name in EVERY_RUN else further)
        for name, algorithm in VARIANTS.items()
    ]


def federation(clients: int = 7, new_clients: int = 2, seed: int = 0) -> FederatedDataset:
    """Clients of different sizes, each with its own rule from features to labels."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(clients):
        rule = rng.normal(size=(FEATURES, CLASSES))
        train, test = 6 + 2 * i, 3 + 30 * (i % 3)
        x = rng.normal(size=(train + test, FEATURES)).astype(np.float32)
        y = np.argmax(x @ rule, axis=1)
        parts.append((x[:train], y[:train], x[train:], y[train:]))
    schema = Schema(shape=(FEATURES,), classes=CLASSES)
    return from_clients(parts, schema, new_clients=new_clients)


def distance(a: Any, b: Any) -> float:
    """The largest difference between two trees of the same structure."""
    assert _alike(a, b)
    gaps = [float(np.max(np.abs(np.subtract(u, v)))) for u, v in _pairs(a, b) if u.size]
    return max(gaps, default=0.0)


def identical(a: Any, b: Any) -> bool:
    """Whether two trees agree to the bit."""
    return _alike(a, b) and all(
        np.asarray(u).tobytes() == np.asarray(v).tobytes() for u, v in _pairs(a, b)
    )


def _alike(a: Any, b: Any) -> bool:
    one, other = jax.tree.structure(a), jax.tree.structure(b)
    return bool(one == other)  # type: ignore[operator]


def _pairs(a: Any, b: Any) -> list[tuple[Any, Any]]:
    return list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
