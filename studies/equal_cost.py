"""P Appendix I, Figure 1a: accuracy against time and against gradient evaluations."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headstart.report import Line
from studies.seed_curves import SeedCurve, curve_panels, label_styles, mean_curve, over_rounds
from studies.seed_statistics import (
    Gap,
    Mean,
    describe_seeds,
    gap,
    make_claim,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import METHODS
from studies.small_versions import make_piece
from studies.study import Claim, Piece, Record, Section
from studies.table1 import ROWS
from studies.table1 import setting as table_setting

ROW = next(row for row in ROWS if row.key == "cifar-4")
"""The paper does not name the setting of its figure; Appendix I discusses this one."""
ROUNDS = {"fedavg": 4000, "first-order": 2000, "hessian-free": 1000, "exact": 1000}
"""Chosen so that all methods use the same number of gradient evaluations."""


def setting(method: str, seed: int) -> dict[str, Any]:
    """Return Table 1's experiment with rounds for equal cost and 40 evaluations."""
    rounds = ROUNDS[method]
    table = table_setting(ROW, method, seed)
    return {**table, "rounds": rounds, "evaluation": {"every": rounds // 40, "adapt_steps": 1}}


class EqualCost:
    """The study."""

    name = "per-fedavg-time"
    title = "Per-FedAvg, Appendix I, Figure 1a"
    summary = "CIFAR-10: accuracy against seconds and against gradient evaluations"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return all methods, seed by seed, so that a slow machine affects all of them alike."""
        return [
            make_piece(method, setting(method, seed), quick) for seed in seeds for method in METHODS
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Show two figures and the accuracies at equal cost."""
        styles = label_styles(list(METHODS.values()))

        def lines(points: Callable[[Record], SeedCurve]) -> list[Line | None]:
            return [mean_curve(records, m, styles[label], points) for m, label in METHODS.items()]

        panels = curve_panels(
            [
                ("by time", "seconds of training", lines(by_seconds)),
                ("by work", "gradient evaluations", lines(over_rounds(by="gradient_evaluations"))),
            ],
            y_title="accuracy after one step (%)",
        )
        rows = [
            [label, *_row(records, method)]
            for method, label in METHODS.items()
            if mean(records, method) is not None
        ]
        head = [
            "method", "rounds", "seconds", "ms per round", "at equal work", "at equal time",
        ]  # fmt: skip
        text = TEXT.format(seeds=describe_seeds(records), table=markdown_table(head, rows))
        return Section(text, {"curves": panels}, _claims(records))


TEXT = """\
CIFAR-10, τ = 4, α = 0.001, the setting of Appendix I (the paper does not name the setting of its
figure). The rounds are chosen so that all methods use the same number of gradient evaluations. *At
equal time* is the accuracy when the fastest method of that seed ends. Time is the median time per
round times the number of rounds, without compilation, evaluation or interruptions. Accuracy in
percent after one step, mean ± 95 % interval over {seeds}:

{table}

![Accuracy against seconds and against gradient evaluations](curves)
"""


def seconds_per_round(record: Record) -> float:
    """Return the median between evaluations, without the first interval, which also compiles."""
    entries = record["training"]
    paces = [
        (b["seconds"] - a["seconds"]) / (b["round"] - a["round"])
        for a, b in itertools.pairwise(entries)
        if b["round"] > a["round"]
    ]
    return statistics.median(paces[1:] or paces)


def by_seconds(record: Record) -> SeedCurve:
    """Return accuracy in percent against seconds of training."""
    rounds, accuracy = over_rounds()(record)
    pace = seconds_per_round(record)
    return [pace * number for number in rounds], accuracy


def accuracy_at_equal_time(records: Sequence[Record], method: str) -> Mean | None:
    """Return the accuracy when the fastest method of each seed has ended."""
    ours = records_of_cell(records, method)
    values = []
    for seed, record in sorted(ours.items()):
        others = [records_of_cell(records, m).get(seed) for m in METHODS]
        ends = [by_seconds(r)[0][-1] for r in others if r is not None]
        values.append(float(np.interp(min(ends), *by_seconds(record))))
    return Mean(values) if values else None


def _row(records: Sequence[Record], method: str) -> list[Any]:
    found = records_of_cell(records, method).values()
    pace = statistics.mean(map(seconds_per_round, found))
    rounds = next(iter(found))["config"]["rounds"]
    return [
        rounds, f"{pace * rounds:.0f}", f"{1000 * pace:.1f}", mean(records, method),
        accuracy_at_equal_time(records, method),
    ]  # fmt: skip


def _claims(records: Sequence[Record]) -> list[Claim]:
    work = gap(records, "hessian-free", "fedavg")
    times = [accuracy_at_equal_time(records, m) for m in ("hessian-free", "fedavg")]
    parts = []
    if times[0] is not None and times[1] is not None:
        time = Gap([a - b for a, b in zip(times[0].values, times[1].values, strict=False)])
        parts.append((time.above(), f"HF − FedAvg + update at equal time: {time}"))
    if work is not None:
        parts.append((work.above(), f"HF − FedAvg + update at equal work: {work}"))
    return [
        make_claim("Per-FedAvg (HF) is more accurate than FedAvg + update for the same cost", parts)
    ]
