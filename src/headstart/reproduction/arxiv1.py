"""P, first arXiv version, Figure 1: ten users, MNIST, four panels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from headstart.reproduction.quick import piece
from headstart.reproduction.settings import METHODS, NETWORK, algorithm
from headstart.reproduction.study import Piece, Record

PANELS = tuple(itertools.product((0.2, 0.4), (5, 10)))
"""(r, τ), in the order of the figure."""


def cell(participation: float, local_steps: int, method: str) -> str:
    """A curve's name."""
    return f"r{participation:g}-tau{local_steps}/{method}"


def setting(participation: float, local_steps: int, method: str, seed: int) -> dict[str, Any]:
    """The experiment of one curve.

    The paper does not say how many images a user has: as many as its design allows.
    """
    return {
        "label": METHODS[method],
        "seed": seed,
        "rounds": 1000,
        "participation": participation,
        "data": {"source": "mnist", "partition": "class-groups", "clients": 10},
        "model": NETWORK,
        "algorithm": algorithm(
            method, inner_lr=0.01, local_lr=0.001, local_steps=local_steps, batch_size=50
        ),
        "evaluation": {"every": 50, "adapt_steps": 1},
    }


class FirstVersion:
    """The study."""

    name = "per-fedavg-arxiv1"
    title = "Per-FedAvg, first arXiv version, Figure 1"
    summary = "ten users with MNIST: FedAvg, FedAvg + update and Per-FedAvg over the rounds"

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Every panel with FedAvg (scored before and after the update) and Per-FedAvg."""
        return [
            piece(cell(r, tau, method), setting(r, tau, method, seed), quick)
            for r, tau in PANELS
            for method in ("fedavg", "first-order", "exact")
            for seed in seeds
        ]
