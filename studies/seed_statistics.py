"""Means, intervals and paired differences over seeds, in percent, and verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.records import half_width
from studies.study import Claim, Record

Measure = Callable[[Record], float]
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with half the width of its 95 % interval, in percent."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values))

    @property
    def ci95(self) -> float | None:
        """Half the width of the 95 % interval; None for a single seed."""
        return half_width(self.values)

    def __str__(self) -> str:
        """Format as ``81.3 ± 0.4``."""
        return f"{self.mean:.1f}" + ("" if self.ci95 is None else f" ± {self.ci95:.1f}")


@dataclass(frozen=True)
class Gap(Mean):
    """A difference paired by seed, in percentage points."""

    def __str__(self) -> str:
        """Format with the sign."""
        return f"{self.mean:+.1f}" + ("" if self.ci95 is None else f" ± {self.ci95:.1f}")

    def above(self, least: float = 0.0) -> str:
        """Return the verdict on "the difference is at least ``least``"."""
        if self.ci95 is None:
            return OPEN
        if self.mean - self.ci95 >= least:
            return HOLDS
        return FAILS if self.mean + self.ci95 < least else OPEN

    def within(self, margin: float) -> str:
        """Return the verdict on "the difference lies between −margin and margin"."""
        if self.ci95 is None:
            return OPEN
        if abs(self.mean) + self.ci95 <= margin:
            return HOLDS
        return FAILS if abs(self.mean) - self.ci95 > margin else OPEN


def after(record: Record, steps: int | None = None, group: str = "known") -> float:
    """Return the mean accuracy of the clients after ``steps`` adaptation steps, in percent.

    By default, the number of steps with which the experiment is evaluated.
    """
    chosen = record["config"]["evaluation"]["adapt_steps"] if steps is None else steps
    return 100 * record[group]["accuracy"][chosen]


def on_test(record: Record) -> float:
    """Return the accuracy after adapting on the test data, as paper P did."""
    return 100 * record["known_adapted_on_test"][record["config"]["evaluation"]["adapt_steps"]]


def records_of_cell(records: Sequence[Record], cell: str) -> dict[int, Record]:
    """Return a cell's finished records by seed, without diverged ones."""
    return {r["seed"]: r for r in records if r["cell"] == cell and "diverged" not in r}


def count_diverged(records: Sequence[Record], cell: str) -> int:
    """Count the seeds of a cell that diverged."""
    return sum("diverged" in r for r in records if r["cell"] == cell)


def mean(records: Sequence[Record], cell: str, measure: Measure = after) -> Mean | None:
    """Return the mean over the seeds of a cell; None if it has no records."""
    found = records_of_cell(records, cell)
    return Mean([measure(found[seed]) for seed in sorted(found)]) if found else None


def gap(records: Sequence[Record], one: str, other: str, measure: Measure = after) -> Gap | None:
    """Return one cell minus another over their common seeds; None if there are none."""
    a, b = records_of_cell(records, one), records_of_cell(records, other)
    shared = sorted(a.keys() & b.keys())
    return Gap([measure(a[s]) - measure(b[s]) for s in shared]) if shared else None


def combine_verdicts(parts: Sequence[str]) -> str:
    """Combine the verdicts of a claim's parts: it holds if all hold and fails if one fails."""
    if not parts:
        return OPEN
    if FAILS in parts:
        return FAILS
    return HOLDS if all(part == HOLDS for part in parts) else OPEN


def make_claim(text: str, parts: Sequence[tuple[str, str]]) -> Claim:
    """Return a claim with the combined verdict of its (verdict, evidence) parts."""
    return Claim(text, combine_verdicts([v for v, _ in parts]), [f"{e}: {v}" for v, e in parts])


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def describe_seeds(records: Sequence[Record]) -> str:
    """Return the number of seeds per cell, in words."""
    per_cell: dict[str, int] = {}
    for record in records:
        per_cell[record["cell"]] = per_cell.get(record["cell"], 0) + 1
    least, most = min(per_cell.values()), max(per_cell.values())
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"
