"""Numbers in words: intervals, headlines, verdicts, notes; they never claim more than is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart._metric import DASH, Metric
from headstart.records import (
    BETTER,
    FAILED,
    GROUPS,
    KNOWN,
    NEW,
    NOT_SHOWN,
    UNDECIDED,
    WORSE,
    ComparisonRecord,
    ComparisonRow,
    PairedDifference,
    RunSummary,
    Statistic,
    StoredComparison,
)

GROUP_NAMES = {KNOWN: "Clients in training", NEW: "Clients that joined later"}


def format_interval(metric: Metric, statistic: Statistic) -> str:
    """Return the mean with half the width of its interval.

    >>> format_interval(Metric("accuracy", unit="%"), Statistic(mean=0.971, ci95=0.008))
    '97.1 % ± 0.8'
    >>> format_interval(Metric("mae"), Statistic(mean=2.5))
    '2.50'
    """
    return metric.with_interval(statistic.mean, statistic.ci95)


def format_difference(metric: Metric, difference: PairedDifference) -> str:
    """Return a difference with its sign and interval, a share's in percentage points.

    >>> format_difference(
    ...     Metric("accuracy", unit="%"), PairedDifference(mean=-0.0065, ci95=0.0148)
    ... )
    '−0.7 ± 1.5'
    """
    text = metric.signed(difference.mean)
    return text if difference.ci95 is None else f"{text} ± {metric.figure(difference.ci95)}"


def tail_name(metric: Metric) -> str:
    """Return the column name of the value that one client in ten does worse than."""
    return "10th percentile" if metric.direction == "higher" else "90th percentile"


def format_count(value: float | None) -> str:
    """Return a count with thousands separated, or a dash.

    >>> format_count(1200), format_count(12.5), format_count(None)
    ('1,200', '12.5', '–')
    """
    return DASH if value is None else f"{value:,.1f}".removesuffix(".0")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "seed"), plural(3, "adaptation step")
    ('1 seed', '3 adaptation steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def run_headline(summary: RunSummary) -> list[str]:
    """Return what one run reached, a sentence for each group of clients."""
    metric, lines = summary.metric, list[str]()
    verb = "reach" if metric.is_share else f"have a {metric.word} of"
    for group in summary.scores.groups:
        pair = summary.scores.primary(group)
        reached = f"{GROUP_NAMES[group]} {verb} {format_interval(metric, pair.after)}"
        if summary.adapt_steps == 0:
            lines.append(f"{reached} without adaptation.")
            continue
        steps = plural(summary.adapt_steps, "adaptation step")
        when = "" if lines else f" after {steps} on their own data"
        lines.append(f"{reached}{when} (before: {metric.text(pair.before.mean)}).")
    return lines


def comparison_headline(record: ComparisonRecord) -> list[str]:
    """Return what a comparison shows, a sentence for each group of clients."""
    groups = [group for group in GROUPS if any(group in row.groups for row in record.rows)]
    if not groups:
        return ["Every run diverged: there is nothing to compare."]
    tell = _tell_levels if record.baseline is None else _tell_differences
    return [tell(record, group) for group in groups]


def _tell_levels(record: ComparisonRecord, group: str) -> str:
    metric = record.metric
    levels = [
        f"{row.label} {format_interval(metric, record.primary(row, group).after)}"
        for row in record.rows
        if group in row.groups
    ]
    verb = "reach" if metric.is_share else f"have a {metric.word}"
    return f"{GROUP_NAMES[group]} {verb}, {_when(record)}: {', '.join(levels)}."


def _tell_differences(record: ComparisonRecord, group: str) -> str:
    """Tell differences that are shown first, then what the intervals leave open."""
    metric, baseline = record.metric, record.baseline
    differences = {row.label: row.difference(group) for row in record.rows}
    judged = {label: d for label, d in differences.items() if d and d.verdict != FAILED}
    unit = metric.difference_unit or f" ({metric.word})"
    parts = [
        f"{label} is {d.verdict} than {baseline} by "
        f"{format_difference(metric, d).lstrip('+−')}{unit}"
        for label, d in judged.items()
        if d.verdict in (BETTER, WORSE)
    ]
    undecided = [
        f"{label} ({format_difference(metric, d)})"
        for label, d in judged.items()
        if d.verdict == NOT_SHOWN
    ]
    if undecided:
        parts.append(f"no difference to {baseline} is shown for {join_names(undecided)}")
    if any(d.verdict == UNDECIDED for d in judged.values()):
        parts.append("one seed cannot show a difference")
    if failed := [row.label for row in record.rows if row.failed]:
        parts.append(f"{join_names(failed)} failed")
    if not parts:
        parts.append(f"nothing could be compared with {baseline}")
    return f"{GROUP_NAMES[group]}, {_when(record)}{_level(record, group)}: {'; '.join(parts)}."


def _level(record: ComparisonRecord, group: str) -> str:
    """Return what the baseline reaches."""
    base = next((row for row in record.rows if row.label == record.baseline), None)
    if base is None or group not in base.groups:
        return ""
    return f" ({base.label}: {format_interval(record.metric, record.primary(base, group).after)})"


def _when(record: ComparisonRecord) -> str:
    if record.adapt_steps == 0:
        return "without adaptation"
    return f"after {plural(record.adapt_steps, 'adaptation step')}"


def mark_failed(row: ComparisonRow) -> str:
    """Return the method's label, marked if runs of it diverged or ended with a useless model."""
    if not row.seeds:
        return f"{row.label} (diverged)"
    return f"{row.label} (failed)" if row.failed else row.label


def failure_messages(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return every run without numbers, or with useless ones, and the reason."""
    return [
        f"{row.label}, seed {seed}, {what}: {reason}"
        for row in rows
        for what, reasons in (("diverged", row.diverged), ("failed", row.failed))
        for seed, reason in reasons.items()
    ]


def comparison_notes(comparison: StoredComparison) -> list[str]:
    """Return what a reader must know before trusting a difference."""
    record = comparison.record
    lines = []
    budgets = {r.gradient_evaluations for r in record.rows if r.gradient_evaluations is not None}
    if len(budgets) > 1:
        lines.append(
            "The methods spent different numbers of gradient evaluations in training "
            f"({min(budgets):,} to {max(budgets):,}): see {record.metric.word} against them below."
        )
    judged = sum(len(row.differences.groups) for row in record.rows)
    if judged > 2:
        lines.append(
            f"{judged} differences were judged, each at 95 %: about one in twenty would seem to "
            "differ by chance alone."
        )
    return lines + ([] if record.baseline is not None else _side_by_side_notes(comparison))


def _side_by_side_notes(comparison: StoredComparison) -> list[str]:
    """Warn that separate runs may differ in more than the method."""
    runs = [run.summary for method in comparison.methods for run in method.runs]
    kinds: dict[str, set[Any]] = {
        "data": {run.data for run in runs},
        "number of adaptation steps": {run.adapt_steps for run in runs},
        "split they adapt on": {run.adapt_on for run in runs},
    }
    unequal = [name for name, values in kinds.items() if len(values) > 1]
    lines = (
        [f"These runs differ in their {join_names(unequal)}: do not compare them."]
        if unequal
        else []
    )
    return [*lines, "Runs set side by side carry no verdict; headstart compare judges differences."]
