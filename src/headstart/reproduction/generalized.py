"""G Figure 1: more adaptation steps inside the meta-loss, on clients with about one class each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.reproduction.quick import piece
from headstart.reproduction.settings import NETWORK, algorithm
from headstart.reproduction.study import Piece, Record

FIGURE = (0, 1, 3)
"""ν of FedAvg, Per-FedAvg and the paper's own curve."""
SURFACE = (0, 1, 2, 3, 5, 10)
"""ν in training and at test time of our table beyond the paper."""
SURFACE_SEEDS = 3
"""The surface costs as much as all the rest: fewer seeds."""
ADAPT_STEPS = 3


def label(inner_steps: int, method: str = "exact") -> str:
    """A curve's name."""
    if inner_steps == 0:
        return "FedAvg (ν = 0)"
    return f"ν = {inner_steps}" + ("" if method == "exact" else f", {method}")


def cell(inner_steps: int, method: str = "exact") -> str:
    """A run's name."""
    return f"nu{inner_steps}/{method}"


def setting(inner_steps: int, method: str, seed: int) -> dict[str, Any]:
    """One curve. The paper does not give the number of rounds: K = 1000 as in paper P."""
    options: dict[str, Any] = {"inner_steps": inner_steps} if inner_steps else {}
    return {
        "label": label(inner_steps, method),
        "seed": seed,
        "rounds": 1000,
        "participation": 0.2,
        "data": {
            "source": "cifar10", "partition": "dirichlet", "clients": 50, "alpha": 0.01,
            "examples": 1000, "test_fraction": 0.2,
        },
        "model": NETWORK,
        "algorithm": algorithm(
            method if inner_steps else "fedavg", inner_lr=0.01, local_lr=0.001, local_steps=4,
            batch_size=40, **options,
        ),
        "evaluation": {"every": 50, "adapt_steps": ADAPT_STEPS, "curve_steps": max(SURFACE)},
    }  # fmt: skip


class Generalized:
    """The study."""

    name = "generalized-fig1"
    title = "The generalized framework, Figure 1"
    summary = "CIFAR-10, Dirichlet 0.01: ν = 3 against ν = 1 and FedAvg; ν in training × at test"

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """The figure's curves, two approximations at ν = 3, and the rest of the surface."""
        wanted = [(nu, "exact") for nu in FIGURE]
        wanted += [(ADAPT_STEPS, "first-order"), (ADAPT_STEPS, "hessian-free")]
        runs = [(nu, method, seed) for nu, method in wanted for seed in seeds]
        more = [nu for nu in SURFACE if nu not in FIGURE]
        runs += [(nu, "exact", seed) for nu in more for seed in list(seeds)[:SURFACE_SEEDS]]
        return [
            piece(cell(nu, method), setting(nu, method, seed), quick) for nu, method, seed in runs
        ]
