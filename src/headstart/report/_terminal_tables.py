"""Tables for the terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart._metric import DASH
from headstart.records import ADAPTED_ON_TEST, ComparisonRecord, ComparisonRow, RunSummary
from headstart.report._charts import shorten
from headstart.report._shared_parts import format_before_after
from headstart.report._wording import (
    failure_messages,
    format_count,
    format_difference,
    mark_failed,
    plural,
    tail_name,
)

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def summary_table(summary: RunSummary) -> RichTable:
    """Return one run's metric, a row each for known and new clients."""
    metric = summary.metric
    table = _table("clients", "count", "before", "after", tail_name(metric), "worst client")
    for group in summary.scores.groups:
        pair = summary.scores.primary(group)
        ends = [metric.text(pair.after.tail(metric)), metric.text(pair.after.worst(metric))]
        means = format_before_after(metric, pair)
        _add(table, [group, format_count(pair.after.count), *means, *ends])
    per_client = summary.gradient_evaluations_per_client
    table.caption = _caption(
        f"± 95 % confidence interval over clients; {_adapted(summary.adapt_steps)}",
        f"{plural(summary.rounds, 'round')}, {format_count(summary.gradient_evaluations)} gradient "
        f"evaluations; {format_count(per_client.round)} per client and round, "
        f"{format_count(per_client.adaptation)} per adaptation",
        _warning(summary.adapt_on),
    )
    return table


def comparison_table(comparison: ComparisonRecord) -> RichTable:
    """Return methods below each other, a row each for known and new clients."""
    metric = comparison.metric
    unit = " %" if metric.is_share else ""
    baseline = f"to {shorten(comparison.baseline or DASH, 16)}"
    heads = ("method", "clients", f"before{unit}", f"after{unit}", "difference", baseline)
    table = _table(*heads, "gradients")
    for row in comparison.rows:
        for index, group in enumerate(row.groups or [DASH]):
            _add(table, _cells(comparison, row, group, first=index == 0))
    table.caption = _caption(
        "" if metric.is_share else f"{metric.heading}: {metric.meaning}",
        f"± 95 % confidence interval over {plural(len(comparison.seeds), 'seed')}; "
        f"{_adapted(comparison.adapt_steps)}; gradients: evaluations in training",
        _warning(comparison.adapt_on),
        *failure_messages(comparison.rows),
    )
    return table


def _cells(
    comparison: ComparisonRecord, row: ComparisonRow, group: str, *, first: bool
) -> list[str]:
    """Return one group of clients of one method; what applies to both groups is said once."""
    means = [DASH, DASH]
    if group in row.groups:
        pair = comparison.primary(row, group)
        means = [text.replace(" %", "") for text in format_before_after(comparison.metric, pair)]
    said_once = [mark_failed(row), format_count(row.gradient_evaluations)] if first else ["", ""]
    return [said_once[0], group, *means, *_difference(comparison, row, group), said_once[1]]


def _difference(comparison: ComparisonRecord, row: ComparisonRow, group: str) -> tuple[str, str]:
    if row.label == comparison.baseline:
        return "", "baseline"
    difference = row.difference(group)
    if difference is None:
        return DASH, ""
    return format_difference(comparison.metric, difference), difference.verdict


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
    """Add a row of plain text: labels are not markup."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))


def _caption(*lines: str) -> Any:
    from rich.text import Text

    return Text("\n".join(filter(None, lines)))


def _adapted(steps: int) -> str:
    return "no adaptation" if steps == 0 else f"after {plural(steps, 'adaptation step')}"


def _warning(adapt_on: str) -> str:
    return f"WARNING: {ADAPTED_ON_TEST}" if adapt_on == "test" else ""
