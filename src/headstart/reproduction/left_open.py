"""What the papers' texts leave open, set otherwise: does that bring their numbers about?

Table 1 and Figure 1 of G do not come out as printed. Here the same experiments are run with other
readings of the text, one change at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.reproduction import generalized, table1
from headstart.reproduction.numbers import (
    Gap,
    after,
    claim,
    diverged,
    gap,
    markdown,
    mean,
    of_cell,
    on_test,
)
from headstart.reproduction.quick import piece
from headstart.reproduction.settings import METHODS
from headstart.reproduction.study import Claim, Piece, Record, Section

SEEDS = 3
"""Differences of ten points and more are looked for: few seeds show them."""
TABLE1 = table1.Table1.name
PRINTED = ("fedavg", "first-order", "hessian-free")
"""The methods of the paper's table."""
ALPHAS = (0.1, 0.5)
"""Dirichlet parameters of clients with more than about one class, for G's figure."""
Setting = dict[str, Any]


def _with_algorithm(setting: Setting, **changes: Any) -> Setting:
    return {**setting, "algorithm": {**setting["algorithm"], **changes}}


def _scaled(setting: Setting, *steps: str) -> Setting:
    tenths = {step: setting["algorithm"][step] / 10 for step in steps}
    return _with_algorithm(setting, **tenths)


@dataclass(frozen=True)
class Reading:
    """One way to fill what the text leaves open."""

    key: str
    told: str
    change: Callable[[Setting], Setting]
    rows: Sequence[str]
    methods: Sequence[str] = PRINTED
    """Methods it changes; the others are those of Table 1."""

    def cell(self, row: str, method: str) -> str:
        """Where its results are."""
        own = self.key != "table" and method in self.methods
        return f"{self.key}/{row}/{method}" if own else f"{TABLE1}:{row}/{method}"


DIFFERENCE = ("cifar-4-alpha", "cifar-4-different")
"""The two rows that differ in nothing but the clients' heterogeneity."""
CHEAP = ("mnist-4", "cifar-4", *DIFFERENCE)
AS_PRINTED = Reading("table", "as printed", lambda setting: setting, CHEAP)
READINGS = (
    Reading("slow", "β = 0.0001", lambda s: _scaled(s, "local_lr"), CHEAP),
    Reading(
        "mean-loss", "loss divided by the number of classes (α and β a tenth)",
        lambda s: _scaled(s, "inner_lr", "local_lr"), DIFFERENCE,
    ),
    Reading(
        "one-batch", "one batch for all evaluations of a local step",
        lambda s: _with_algorithm(s, same_batch=True), DIFFERENCE, PRINTED[1:],
    ),
    Reading(
        "squares", "squared errors, activated outputs, first weights of Langelaar's program",
        lambda s: {**s, "model": {"name": "mlp-squares", "hidden": [80, 60]}}, DIFFERENCE,
    ),
)  # fmt: skip
ROWS = {row.key: row for row in table1.ROWS}


def less_extreme(alpha: float, inner_steps: int, seed: int) -> Setting:
    """G's figure with clients of several classes."""
    setting = generalized.setting(inner_steps, "exact", seed)
    return {**setting, "data": {**setting["data"], "alpha": alpha}}


def _generalized_cell(alpha: float, inner_steps: int) -> str:
    if alpha == 0.01:
        return f"{generalized.Generalized.name}:{generalized.cell(inner_steps)}"
    return f"dirichlet-{alpha:g}/nu{inner_steps}"


class LeftOpen:
    """The study."""

    name = "left-open"
    title = "What the papers leave open"
    summary = "Table 1 and Figure 1 of G once more, with other readings of the texts"
    reads: Sequence[str] = (TABLE1, generalized.Generalized.name)

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Every reading of some rows of Table 1, then G's figure.

        Quick: one reading, two rows and one α_d.
        """
        few = list(seeds)[:SEEDS]
        pieces = [
            piece(
                reading.cell(row, method),
                reading.change(table1.setting(ROWS[row], method, seed)),
                quick,
                on_test=True,
            )
            for seed in few
            for reading in (READINGS[:1] if quick else READINGS)
            for row in (DIFFERENCE if quick else reading.rows)
            for method in reading.methods
        ]
        return pieces + [
            piece(_generalized_cell(alpha, nu), less_extreme(alpha, nu, seed), quick)
            for seed in few
            for alpha in (ALPHAS[:1] if quick else ALPHAS)
            for nu in generalized.FIGURE
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """How near each reading comes to the printed numbers, and what becomes of the claims."""
        text = TEXT.format(
            rows=markdown(["setting", "reading", *(METHODS[m] for m in PRINTED)], _rows(records)),
            growth=markdown(
                ["reading", "usual", "different", "growth"],
                [[r.told, *_growth(records, r)] for r in (AS_PRINTED, *READINGS)],
            ),
            alphas=markdown(
                ["α_d", *(generalized.label(nu) for nu in generalized.FIGURE),
                 "ν = 3 minus ν = 1", "ν = 1 minus FedAvg"],
                [row for row in map(_alpha_row(records), (0.01, *ALPHAS)) if row is not None],
            ),
        )  # fmt: skip
        return Section(text, claims=_claims(records))


TEXT = """\
Readings of Table 1, one change at a time; accuracy in percent after one step, adapted on training
data / adapted on the data that is scored, as the paper did it (the paper's number). *As printed*
are the runs of the section on Table 1. Langelaar's program is the public one the paper says a part
of its code is adopted from: it has the paper's layers and activation, pixels divided by 255,
squared errors, ELU at the outputs too, weights from N(0, 2 / inputs) and biases from N(0, 1).

{rows}

Does the gain of Per-FedAvg (HF) over FedAvg + update grow as clients differ more? CIFAR-10, τ = 4,
α = 0.01, in points, paired by seed:

{growth}

Figure 1 of G with clients of more than about one class (smaller α_d: more extreme; 0.01 is the
paper's). Accuracy in percent after three steps, and differences in points:

{alphas}
"""


def _rows(records: Sequence[Record]) -> list[list[Any]]:
    lines = []
    for key in CHEAP:
        for reading in (AS_PRINTED, *READINGS):
            if key in reading.rows:
                cells = [_both(records, reading, key, method) for method in PRINTED]
                lines.append([ROWS[key].title, reading.told, *cells])
    return lines


def _both(records: Sequence[Record], reading: Reading, key: str, method: str) -> str:
    cell = reading.cell(key, method)
    found = [mean(records, cell, measure) for measure in (after, on_test)]
    text = " / ".join("–" if value is None else str(value) for value in found)
    if lost := diverged(records, cell):
        text = f"{text} ({lost} diverged)" if found[0] is not None else f"{lost} diverged"
    return f"{text} ({ROWS[key].paper[method][0]:.1f})"


def _growth(records: Sequence[Record], reading: Reading) -> list[Any]:
    """The gain in both rows, and the difference between the two, paired by seed."""
    cells = [
        [of_cell(records, reading.cell(row, method)) for method in ("hessian-free", "fedavg")]
        for row in DIFFERENCE
    ]
    seeds = sorted(set.intersection(*(set(cell) for pair in cells for cell in pair)))
    if not seeds:
        return ["–"] * 3
    usual, different = (
        np.array([after(ours[s]) - after(base[s]) for s in seeds]) for ours, base in cells
    )
    return [Gap(list(v)) for v in (usual, different, different - usual)]


def _alpha_row(records: Sequence[Record]) -> Callable[[float], list[Any] | None]:
    def row(alpha: float) -> list[Any] | None:
        cells = [_generalized_cell(alpha, nu) for nu in generalized.FIGURE]
        found = [mean(records, cell) for cell in cells]
        if None in found:
            return None
        fedavg, one, three = cells
        return [f"{alpha:g}", *found, gap(records, three, one), gap(records, one, fedavg)]

    return row


def _claims(records: Sequence[Record]) -> list[Claim]:
    parts = []
    for reading in (AS_PRINTED, *READINGS):
        growth = _growth(records, reading)[-1]
        if isinstance(growth, Gap):
            parts.append((growth.above(), f"{reading.told}: {growth} points"))
    found = [claim("with other readings of P's text, too, the gap grows as clients differ more",
                   parts)]  # fmt: skip
    for one, other in ((3, 1), (1, 0)):
        parts = []
        for alpha in ALPHAS:
            difference = gap(
                records, _generalized_cell(alpha, one), _generalized_cell(alpha, other)
            )
            if difference is not None:
                parts.append((difference.above(), f"α_d = {alpha:g}: {difference} points"))
        name = "FedAvg" if other == 0 else f"ν = {other}"
        text = f"ν = {one} is more accurate than {name} where clients have more classes"
        found.append(claim(text, parts))
    return found
