"""From stored records to numbers in percent: means and intervals over seeds, paired differences."""

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
        """Over seeds."""
        return float(np.mean(self.values))

    @property
    def ci95(self) -> float | None:
        """None for a single seed."""
        return half_width(self.values)

    def __str__(self) -> str:
        """As ``81.3 ± 0.4``."""
        return f"{self.mean:.1f}" + ("" if self.ci95 is None else f" ± {self.ci95:.1f}")


@dataclass(frozen=True)
class Gap(Mean):
    """A difference paired by seed, in percentage points."""

    def __str__(self) -> str:
        """With its sign."""
        return f"{self.mean:+.1f}" + ("" if self.ci95 is None else f" ± {self.ci95:.1f}")

    def above(self, least: float = 0.0) -> str:
        """Whether the difference is at least so much, as far as the seeds can tell."""
        if self.ci95 is None:
            return OPEN
        if self.mean - self.ci95 >= least:
            return HOLDS
        return FAILS if self.mean + self.ci95 < least else OPEN

    def within(self, margin: float) -> str:
        """Whether the difference lies between −margin and margin."""
        if self.ci95 is None:
            return OPEN
        if abs(self.mean) + self.ci95 <= margin:
            return HOLDS
        return FAILS if abs(self.mean) - self.ci95 > margin else OPEN


def after(record: Record, steps: int | None = None, group: str = "known") -> float:
    """Mean accuracy of the clients after so many adaptation steps, in percent.

    By default after those the experiment is evaluated with.
    """
    chosen = record["config"]["evaluation"]["adapt_steps"] if steps is None else steps
    return 100 * record[group]["accuracy"][chosen]


def on_test(record: Record) -> float:
    """The same after adapting on the data that is scored, as paper P did."""
    return 100 * record["known_adapted_on_test"][record["config"]["evaluation"]["adapt_steps"]]


def of_cell(records: Sequence[Record], cell: str) -> dict[int, Record]:
    """A cell's finished records by seed; diverged ones are not among them."""
    return {r["seed"]: r for r in records if r["cell"] == cell and "diverged" not in r}


def diverged(records: Sequence[Record], cell: str) -> int:
    """How many seeds of a cell diverged."""
    return sum("diverged" in r for r in records if r["cell"] == cell)


def mean(records: Sequence[Record], cell: str, measure: Measure = after) -> Mean | None:
    """Over the seeds of a cell; None if there is none."""
    found = of_cell(records, cell)
    return Mean([measure(found[seed]) for seed in sorted(found)]) if found else None


def gap(records: Sequence[Record], one: str, other: str, measure: Measure = after) -> Gap | None:
    """One cell minus another over the seeds both have."""
    a, b = of_cell(records, one), of_cell(records, other)
    shared = sorted(a.keys() & b.keys())
    return Gap([measure(a[s]) - measure(b[s]) for s in shared]) if shared else None


def verdict(parts: Sequence[str]) -> str:
    """Of a claim that consists of several: it holds if all do, and fails if one does."""
    if not parts:
        return OPEN
    if FAILS in parts:
        return FAILS
    return HOLDS if all(part == HOLDS for part in parts) else OPEN


def claim(text: str, parts: Sequence[tuple[str, str]]) -> Claim:
    """From (verdict, evidence) of its parts."""
    return Claim(text, verdict([v for v, _ in parts]), [f"{e}: {v}" for v, e in parts])


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def seeds_of(records: Sequence[Record]) -> str:
    """How many seeds the records have, in words."""
    per_cell: dict[str, int] = {}
    for record in records:
        per_cell[record["cell"]] = per_cell.get(record["cell"], 0) + 1
    least, most = min(per_cell.values()), max(per_cell.values())
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"
