"""Numbers in words: percent with intervals, headlines, verdicts; never more than is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

DASH = "–"


def share(value: float | None) -> str:
    """A share as percent.

    >>> share(0.9714), share(None)
    ('97.1 %', '–')
    """
    return DASH if value is None else f"{100 * value:.1f} %"


def with_interval(stat: Stat) -> str:
    """Mean and half width of its interval, in percent.

    >>> with_interval(Stat(0.971, 0.008)), with_interval(Stat(0.971))
    ('97.1 % ± 0.8', '97.1 %')
    """
    if stat.mean is None or stat.ci95 is None:
        return share(stat.mean)
    return f"{share(stat.mean)} ± {100 * stat.ci95:.1f}"


def points(difference: Difference) -> str:
    """A signed difference in percentage points.

    >>> points(Difference(-0.0065, 0.0148, ()))
    '−0.7 ± 1.5'
    """
    text = signed(difference.mean)
    return text if difference.ci95 is None else f"{text} ± {100 * difference.ci95:.1f}"


def signed(value: float) -> str:
    """A difference in percentage points with its sign.

    >>> signed(0.012), signed(-0.00001)
    ('+1.2', '0.0')
    """
    rounded = round(100 * value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


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
    for group, pair in summary.groups.items():
        reached = f"{GROUP_NAMES[group]} reach {with_interval(pair.after)}"
        if summary.adapt_steps == 0:
            lines.append(f"{reached} without adaptation.")
            continue
        when = f" after {steps} on their own data" if not lines else ""
        lines.append(f"{reached}{when} (before: {share(pair.before.mean)}).")
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
    found = [f"{r.label} {with_interval(r.groups[group].after)}" for r in _with(board, group)]
    return f"{GROUP_NAMES[group]} reach, {_when(board)}: {', '.join(found)}."


def _against_baseline(board: Board, group: str) -> str:
    """Differences that are shown first; whatever the interval leaves open is called open."""
    judged = {
        row.label: row.differences[group]
        for row in board.rows
        if group in row.differences and not row.failed
    }
    base = next((r for r in board.rows if r.label == board.baseline), None)
    parts = [
        f"{label} is {d.verdict} than {board.baseline} by {points(d).lstrip('+−')} points"
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
    return f"{GROUP_NAMES[group]}, {_when(board)}{_level(base, group)}: {'; '.join(parts)}."


def _level(row: Row | None, group: str) -> str:
    if row is None or group not in row.groups:
        return ""
    return f" ({row.label}: {with_interval(row.groups[group].after)})"


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
            f"({whole(min(budgets))} to {whole(max(budgets))}): see accuracy against them below."
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
