"""The numbers of a run or a comparison as small typed records.

Each has a ``from_table`` that takes what stands in the JSON files. Numbers that are missing or not
finite become None; a table of another shape raises KeyError, TypeError or ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.metric import ACCURACY, Metric

KNOWN, NEW = "known", "new"
GROUPS = (KNOWN, NEW)
GROUP_NAMES = {KNOWN: "Clients in training", NEW: "Clients that joined later"}
BETTER, WORSE = "better", "worse"
NOT_SHOWN, UNDECIDED = "no difference shown", "one seed: undecided"
FAILED = "failed"

Table = Mapping[str, Any]
Numbers = tuple[float | None, ...]


def number(value: Any) -> float | None:
    """A finite float, or None."""
    if value is None:
        return None
    value = float(value)
    return value if math.isfinite(value) else None


def count(value: Any) -> int | None:
    """A whole number, or None."""
    return None if value is None else int(value)


def numbers(values: Any) -> Numbers:
    """Each a finite float, or None."""
    return tuple(number(value) for value in values)


@dataclass(frozen=True)
class Stat:
    """A mean with what surrounds it; ``ci95`` is half the width of its 95 % interval."""

    mean: float | None
    ci95: float | None = None
    p10: float | None = None
    least: float | None = None
    count: int | None = None
    values: Numbers = ()
    p90: float | None = None
    most: float | None = None

    @classmethod
    def from_table(cls, table: Table) -> Stat:
        """From a description of clients or of seeds."""
        return cls(
            mean=number(table["mean"]),
            ci95=number(table.get("ci95")),
            p10=number(table.get("p10")),
            least=number(table.get("min")),
            count=count(table.get("count")),
            values=numbers(table.get("values") or ()),
            p90=number(table.get("p90")),
            most=number(table.get("max")),
        )

    def tail(self, metric: Metric) -> float | None:
        """What one client in ten does worse than."""
        return self.p10 if metric.direction == "higher" else self.p90

    def worst(self, metric: Metric) -> float | None:
        """The worst client's."""
        return self.least if metric.direction == "higher" else self.most


@dataclass(frozen=True)
class Pair:
    """A metric before and after adaptation."""

    before: Stat
    after: Stat

    @classmethod
    def from_table(cls, table: Table) -> Pair:
        """From a table with ``before`` and ``after``."""
        return cls(Stat.from_table(table["before"]), Stat.from_table(table["after"]))


@dataclass(frozen=True)
class Curve:
    """Mean of the metric after 0, 1, 2 … adaptation steps."""

    steps: tuple[int, ...]
    mean: Numbers
    ci95: Numbers


@dataclass(frozen=True)
class Difference:
    """The metric after adaptation minus the baseline's, paired by seed."""

    mean: float
    ci95: float | None
    values: Numbers
    metric: Metric = ACCURACY

    @property
    def verdict(self) -> str:
        """Better or worse only where the interval leaves out zero.

        >>> Difference(0.02, 0.01, ()).verdict, Difference(0.02, 0.03, ()).verdict
        ('better', 'no difference shown')
        """
        if self.ci95 is None:
            return UNDECIDED
        if abs(self.mean) <= self.ci95:
            return NOT_SHOWN
        return BETTER if self.metric.gain(self.mean, 0.0) > 0 else WORSE


@dataclass(frozen=True)
class Budget:
    """Gradient evaluations: of the whole training, of a client in a round, of one adaptation."""

    training: int | None
    round: int | None
    adaptation: int | None

    @classmethod
    def from_table(cls, table: Table) -> Budget:
        """From a summary or a row of a comparison."""
        client = table.get("gradient_evaluations_per_client") or {}
        parts = (client.get("round"), client.get("adaptation"))
        return cls(count(table.get("gradient_evaluations")), *map(count, parts))


@dataclass(frozen=True)
class Summary:
    """``summary.json``."""

    label: str
    algorithm: str
    data: str
    rounds: int
    seed: int | None
    seconds: float | None
    budget: Budget
    adapt_steps: int
    adapt_on: str
    groups: Mapping[str, Pair]
    curves: Mapping[str, Curve]
    host: Table
    failures: tuple[str, ...] = ()
    note: str | None = None
    metric: Metric = ACCURACY
    """The primary metric, which all numbers above are about."""
    others: Mapping[Metric, Mapping[str, Pair]] = field(default_factory=dict)
    """Further metrics, by group of clients."""

    @classmethod
    def from_table(cls, table: Table) -> Summary:
        """From the summary of a run."""
        metric = Metric.of(table)
        others = [Metric(**one) for one in (table.get("metrics") or ())[1:]]
        return cls(
            label=str(table.get("label") or table["algorithm"]),
            algorithm=str(table["algorithm"]),
            data=str(table.get("data") or ""),
            rounds=int(table["rounds"]),
            seed=count(table.get("seed")),
            seconds=number(table.get("seconds")),
            budget=Budget.from_table(table),
            adapt_steps=int(table["adapt_steps"]),
            adapt_on=str(table["adapt_on"]),
            groups=pairs(table, metric),
            curves=curves(table.get("adaptation"), metric),
            host=dict(table.get("host") or {}),
            failures=tuple(map(str, table.get("failures") or ())),
            note=table.get("note"),
            metric=metric,
            others={other: pairs(table, other) for other in others},
        )


@dataclass(frozen=True)
class Row:
    """One method of a comparison."""

    label: str
    algorithm: str
    seeds: tuple[int, ...]
    diverged: Mapping[str, str]
    budget: Budget
    seconds: float | None
    groups: Mapping[str, Pair]
    curves: Mapping[str, Curve]
    differences: Mapping[str, Difference]
    folders: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    """Seeds whose model is of no use, with the reason."""

    def verdict(self, group: str) -> str | None:
        """How the method does against the baseline; None if there is nothing to judge."""
        if group not in self.differences:
            return None
        return FAILED if self.failed else self.differences[group].verdict

    @classmethod
    def from_table(cls, table: Table, metric: Metric = ACCURACY) -> Row:
        """From a row of ``comparison.json``."""
        parts = {KNOWN: table["known_clients"], NEW: table.get("new_clients")}
        differences = table.get("difference") or {}
        return cls(
            label=str(table["label"]),
            algorithm=str(table["algorithm"]["name"]),
            seeds=tuple(table["seeds"]),
            diverged={str(k): str(v) for k, v in (table.get("diverged") or {}).items()},
            budget=Budget.from_table(table),
            seconds=number(table.get("seconds")),
            groups={g: Pair.from_table(part) for g, part in parts.items() if part},
            curves=curves(table.get("adaptation"), metric),
            differences={
                g: difference(d, metric) for g in GROUPS if (d := differences.get(f"{g}_clients"))
            },
            folders=tuple(table.get("runs") or ()),
            failed={str(k): str(v) for k, v in (table.get("failed") or {}).items()},
        )


@dataclass(frozen=True)
class Board:
    """``comparison.json``: what all rows share, and the rows."""

    rows: tuple[Row, ...]
    baseline: str | None
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]
    adapt_steps: int
    adapt_on: str
    data: str
    metric: Metric = ACCURACY

    @classmethod
    def from_table(cls, table: Table) -> Board:
        """From the result of a comparison."""
        data = table.get("data") or {}
        words = (data.get("source") or data.get("path"), data.get("partition"))
        return cls(
            rows=tuple(Row.from_table(row, Metric.of(table)) for row in table["rows"]),
            baseline=table.get("baseline"),
            seeds=tuple(table["seeds"]),
            rounds=tuple(table.get("rounds") or ()),
            adapt_steps=int(table["adapt_steps"]),
            adapt_on=str(table["adapt_on"]),
            data=", ".join(str(word) for word in words if word),
            metric=Metric.of(table),
        )


def pairs(table: Table, metric: Metric) -> dict[str, Pair]:
    """Known clients from the top level of a summary or an evaluation, new ones if there are any."""
    parts = {KNOWN: table, NEW: table.get("new_clients")}
    return {g: Pair.from_table(part[metric.name]) for g, part in parts.items() if part}


def curves(table: Table | None, metric: Metric = ACCURACY) -> dict[str, Curve]:
    """The metric against adaptation steps, for each group that has it."""
    if not table:
        return {}
    steps = tuple(int(step) for step in table["steps"])
    parts = {group: table.get(f"{group}_clients") for group in GROUPS}
    found = {
        group: Curve(steps, numbers(part[metric.name]), numbers(part["ci95"]))
        for group, part in parts.items()
        if part and steps
    }
    if any(not len(steps) == len(c.mean) == len(c.ci95) for c in found.values()):
        raise ValueError("an adaptation curve has too few or too many points")
    return found


def difference(table: Table, metric: Metric = ACCURACY) -> Difference:
    """A paired difference; the verdict is worked out again from the interval."""
    return Difference(
        float(table["mean"]),
        number(table.get("ci95")),
        numbers(table.get("differences") or ()),
        metric,
    )
