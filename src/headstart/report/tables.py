"""Tables for the terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.records import ComparisonRecord, RunSummary
from headstart.report.palette import ADAPTED_ON_TEST
from headstart.report.people import short
from headstart.report.records import (
    Board,
    Pair,
    Row,
    Stat,
    Summary,
)
from headstart.report.wording import (
    DASH,
    alarms,
    plural,
    points,
    tail_name,
    whole,
    with_interval,
)

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def summary_table(summary: RunSummary) -> RichTable:
    """One run's metric, known and new clients."""
    about = Summary.from_table(summary.to_table())
    metric = about.metric
    table = _table("clients", "count", "before", "after", tail_name(metric), "worst client")
    for group, pair in about.groups.items():
        ends = [metric.text(pair.after.tail(metric)), metric.text(pair.after.worst(metric))]
        means = [with_interval(metric, pair.before), with_interval(metric, pair.after)]
        _add(table, [group, whole(pair.after.count), *means, *ends])
    budget = about.budget
    table.caption = _caption(
        f"± 95 % confidence interval over clients; {_adapted(about.adapt_steps)}",
        f"{plural(about.rounds, 'round')}, {whole(budget.training)} gradient evaluations; "
        f"{whole(budget.round)} per client and round, {whole(budget.adaptation)} per adaptation",
        _mark(about.adapt_on),
    )
    return table


def comparison_table(comparison: ComparisonRecord) -> RichTable:
    """Methods below each other, known and new clients."""
    board = Board.from_table(comparison.to_table())
    against = f"to {short(board.baseline or DASH, 16)}"
    unit = " %" if board.metric.is_share else ""
    heads = ("method", "clients", f"before{unit}", f"after{unit}")
    table = _table(*heads, "difference", against, "gradients")
    for row in board.rows:
        for index, group in enumerate(row.groups or [DASH]):
            _add(table, _cells(row, group, board, first=index == 0))
    table.caption = _caption(
        "" if board.metric.is_share else f"{board.metric.heading}: {board.metric.meaning}",
        f"± 95 % confidence interval over {plural(len(board.seeds), 'seed')}; "
        f"{_adapted(board.adapt_steps)}; gradients: evaluations in training",
        _mark(board.adapt_on),
        *alarms(board.rows),
    )
    return table


def _cells(row: Row, group: str, board: Board, *, first: bool) -> list[str]:
    """One group of clients of one method; what holds for both is said once."""
    pair = row.groups.get(group, Pair(Stat(None), Stat(None)))
    means = [
        with_interval(board.metric, stat).replace(" %", "") for stat in (pair.before, pair.after)
    ]
    label = row.label if row.seeds else f"{row.label} (diverged)"
    gradients = whole(row.budget.training)
    shown = [label, gradients] if first else ["", ""]
    return [shown[0], group, *means, *_difference(row, group, board.baseline), shown[1]]


def _difference(row: Row, group: str, baseline: str | None) -> tuple[str, str]:
    if row.label == baseline:
        return "", "baseline"
    difference, verdict = row.differences.get(group), row.verdict(group)
    return (DASH, "") if difference is None else (points(difference), str(verdict))


def _table(first: str, *others: str) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    look: dict[str, Any] = {"show_edge": False, "pad_edge": False, "caption_justify": "left"}
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), **look)
    table.add_column(first, overflow="fold", max_width=17)
    for name in others:
        words = name == "clients" or name.startswith("to ")
        table.add_column(name, justify="left" if words else "right", max_width=19)
    return table


def _add(table: RichTable, cells: Sequence[str]) -> None:
    """A row of plain text: what users call things is no markup."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))


def _caption(*lines: str) -> Any:
    from rich.text import Text

    return Text("\n".join(filter(None, lines)))


def _adapted(steps: int) -> str:
    return "no adaptation" if steps == 0 else f"after {plural(steps, 'adaptation step')}"


def _mark(adapt_on: str) -> str:
    return f"WARNING: {ADAPTED_ON_TEST}" if adapt_on == "test" else ""
