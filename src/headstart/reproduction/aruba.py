"""P Appendix I: Per-FedAvg against FedAvg + ARUBA, every method tuned on the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.reproduction.settings import METHODS, algorithm
from headstart.reproduction.study import Piece, Record
from headstart.reproduction.table1 import ROWS
from headstart.reproduction.table1 import setting as table_setting
from headstart.reproduction.tuning import Contender, grid

ROW = next(row for row in ROWS if row.key == "cifar-4")
PAPER = {"first-order": (34.04, 0.08), "aruba": (36.74, 0.1), "hessian-free": (43.73, 0.11)}
STEPS = grid(inner_lr=[0.001, 0.01], local_lr=[0.001, 0.003, 0.01])
RATES = grid(local_lr=[0.001, 0.003, 0.01], zeta=[0.001, 0.01])
PLUS = [0.1, 1.0, 10.0]
PLUS_STEPS = 10
"""ARUBA++ equals ARUBA after one step; c is judged after so many."""
COMMON: dict[str, Any] = {"local_steps": ROW.local_steps, "batch_size": 40}


def _averaging(method: str) -> Contender:
    return Contender(method, METHODS[method], algorithm(method, **COMMON), STEPS)


ARUBA = Contender("aruba", "FedAvg + ARUBA", {"name": "aruba", **COMMON}, RATES)
CONTENDERS = [_averaging("fedavg"), _averaging("first-order"), _averaging("hessian-free"), ARUBA]


def plus(done: Sequence[Record]) -> Contender | None:
    """ARUBA++ goes on from ARUBA's best options; only c is tried."""
    best = ARUBA.best(done)
    if best is None:
        return None
    tries = [{**best, "plus": c} for c in PLUS]
    name = {"name": "aruba", **COMMON}
    return Contender("aruba-plus", "FedAvg + ARUBA++", name, tries, measured_after=PLUS_STEPS)


class Aruba:
    """The study."""

    name = "per-fedavg-aruba"
    title = "Per-FedAvg, Appendix I: the comparison with ARUBA"
    summary = "CIFAR-10, τ = 4: FedAvg, ARUBA, ARUBA++ and Per-FedAvg, all tuned alike"

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Tries of every method, then the best ones."""
        table = table_setting(ROW, "fedavg", 0)
        more = plus(done)
        contenders = [*CONTENDERS, more] if more is not None else CONTENDERS
        return [
            piece
            for contender in contenders
            for piece in contender.pieces(table, seeds, quick, done)
        ]
