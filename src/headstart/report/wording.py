"""Numbers in words: percent with intervals, headlines, verdicts; never more than is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.metric import DASH, Metric
from headstart.report.reading import Comparison
from headstart.report.records import (
    BETTER,
    GROUP_NAMES,
    GROUPS,
    NOT_SHOWN,
    UNDECIDED,
    WORSE,
    Board,
    Difference,
    Row,
    Stat,
    Summary,
)


def with_interval(metric: Metric, stat: Stat) -> str:
    """Mean and half width of its interval.

    >>> with_interval(Metric("accuracy", unit="%"), Stat(0.971, 0.008))
    '97.1 % ± 0.8'
    >>> with_interval(Metric("mae"), Stat(2.5))
    '2.50'
    """
    return metric.with_interval(stat.mean, stat.ci95)


def points(difference: Difference) -> str:
    """A signed difference, a share's in percentage points.

    >>> points(Difference(-0.0065, 0.0148, ()))
    '−0.7 ± 1.5'
    """
    metric = difference.metric
    text = metric.signed(difference.mean)
    return text if difference.ci95 is None else f"{text} ± {metric.figure(difference.ci95)}"


def tail_name(metric: Metric) -> str:
    """What one client in ten does worse than, as a column is called."""
    return "10th percentile" if metric.direction == "higher" else "90th percentile"


def reach(metric: Metric) -> str:
    """How a sentence says what clients get: a share is reached, an error one has."""
    return "reach" if metric.is_share else f"have a {metric.word} of"


def whole(value: int | None) -> str:
    """A whole number with thousands set apart."""
    return DASH if value is None else f"{value:,}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "seed"), plural(3, "adaptation step")
    ('1 seed', '3 adaptation steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def run_headline(summary: Summary) -> list[str]:
    """What one run reached, one sentence for each group of clients."""
    steps = plural(summary.adapt_steps, "adaptation step")
    lines = []
    metric = summary.metric
    for group, pair in summary.groups.items():
        reached = f"{GROUP_NAMES[group]} {reach(metric)} {with_interval(metric, pair.after)}"
        if summary.adapt_steps == 0:
            lines.append(f"{reached} without adaptation.")
            continue
        when = f" after {steps} on their own data" if not lines else ""
        lines.append(f"{reached}{when} (before: {metric.text(pair.before.mean)}).")
    return lines


def comparison_headline(comparison: Comparison) -> list[str]:
    """What the comparison shows, one sentence for each group of clients."""
    board = comparison.board
    groups = [g for g in GROUPS if any(g in row.groups for row in board.rows)]
    if not groups:
        return ["Every run diverged: there is nothing to compare."]
    if board.baseline is None:
        return [_side_by_side(board, group) for group in groups]
    return [_against_baseline(board, group) for group in groups]


def _side_by_side(board: Board, group: str) -> str:
    metric = board.metric
    found = [
        f"{r.label} {with_interval(metric, r.groups[group].after)}" for r in _with(board, group)
    ]
    verb = "reach" if metric.is_share else f"have a {metric.word}"
    return f"{GROUP_NAMES[group]} {verb}, {_when(board)}: {', '.join(found)}."


def _against_baseline(board: Board, group: str) -> str:
    """Differences that are shown first; whatever the interval leaves open is called open."""
    judged = {
        row.label: row.differences[group]
        for row in board.rows
        if group in row.differences and not row.failed
    }
    base = next((r for r in board.rows if r.label == board.baseline), None)
    parts = [
        f"{label} is {d.verdict} than {board.baseline} by {points(d).lstrip('+−')}"
        + (d.metric.difference_unit or f" ({d.metric.word})")
        for label, d in judged.items()
        if d.verdict in (BETTER, WORSE)
    ]
    open_ = [f"{label} ({points(d)})" for label, d in judged.items() if d.verdict == NOT_SHOWN]
    if open_:
        parts.append(f"no difference to {board.baseline} is shown for {listed(open_)}")
    if any(d.verdict == UNDECIDED for d in judged.values()):
        parts.append("one seed cannot show a difference")
    failed = [row.label for row in board.rows if row.failed]
    if failed:
        parts.append(f"{listed(failed)} failed")
    if not parts:
        parts.append(f"nothing could be compared with {board.baseline}")
    level = _level(base, group, board.metric)
    return f"{GROUP_NAMES[group]}, {_when(board)}{level}: {'; '.join(parts)}."


def _level(row: Row | None, group: str, metric: Metric) -> str:
    if row is None or group not in row.groups:
        return ""
    return f" ({row.label}: {with_interval(metric, row.groups[group].after)})"


def _with(board: Board, group: str) -> list[Row]:
    return [row for row in board.rows if group in row.groups]


def _when(board: Board) -> str:
    if board.adapt_steps == 0:
        return "without adaptation"
    return f"after {plural(board.adapt_steps, 'adaptation step')}"


def alarms(rows: Sequence[Row]) -> list[str]:
    """Every run that has no numbers, or useless ones, with its reason."""
    return [
        f"{row.label}, seed {seed}, {what}: {reason}"
        for row in rows
        for what, reasons in (("diverged", row.diverged), ("failed", row.failed))
        for seed, reason in reasons.items()
    ]


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know before trusting a difference."""
    board = comparison.board
    found = []
    budgets = {r.budget.training for r in board.rows if r.budget.training is not None}
    if len(budgets) > 1:
        found.append(
            "The methods spent different numbers of gradient evaluations in training "
            f"({whole(min(budgets))} to {whole(max(budgets))}): see {board.metric.word} against "
            "them below."
        )
    judged = sum(len(row.differences) for row in board.rows)
    if judged > 2:
        found.append(
            f"{judged} differences were judged, each at 95 %: about one in twenty would seem to "
            "differ by chance alone."
        )
    return found + _unequal(comparison)


def _unequal(comparison: Comparison) -> list[str]:
    """Runs that were gathered may differ in more than the method."""
    runs = [run.summary for method in comparison.methods for run in method.runs]
    if comparison.board.baseline is not None:
        return []
    kinds: dict[str, set[Any]] = {
        "data": {run.data for run in runs},
        "number of adaptation steps": {run.adapt_steps for run in runs},
        "split they adapt on": {run.adapt_on for run in runs},
    }
    unequal = [name for name, values in kinds.items() if len(values) > 1]
    found = (
        [f"These runs differ in their {listed(unequal)}: do not compare them."] if unequal else []
    )
    return [*found, "Runs set side by side carry no verdict; headstart compare judges differences."]
