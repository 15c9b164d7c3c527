"""P Appendix I, Figure 1a: accuracy against time, and against gradient evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.reproduction.quick import piece
from headstart.reproduction.settings import METHODS
from headstart.reproduction.study import Piece, Record
from headstart.reproduction.table1 import ROWS
from headstart.reproduction.table1 import setting as table_setting

ROW = next(row for row in ROWS if row.key == "cifar-4")
"""The paper does not say which setting its figure shows; Appendix I speaks of this one."""
ROUNDS = {"fedavg": 4000, "first-order": 2000, "hessian-free": 1000, "exact": 1000}
"""So that all methods have the same number of gradient evaluations in the end."""


def setting(method: str, seed: int) -> dict[str, Any]:
    """Table 1's experiment, with rounds for equal cost and 40 evaluations."""
    rounds = ROUNDS[method]
    table = table_setting(ROW, method, seed)
    return {**table, "rounds": rounds, "evaluation": {"every": rounds // 40, "adapt_steps": 1}}


class Cost:
    """The study."""

    name = "per-fedavg-time"
    title = "Per-FedAvg, Appendix I, Figure 1a"
    summary = "CIFAR-10: accuracy against seconds and against gradient evaluations"

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """All methods, seed by seed, so that a disturbance of the machine meets all of them."""
        return [piece(method, setting(method, seed), quick) for seed in seeds for method in METHODS]
