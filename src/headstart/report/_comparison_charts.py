"""The charts of a comparison: differences, adaptation, learning, clients."""

from __future__ import annotations

from headstart.records import ComparisonRow, StoredComparison
from headstart.report._charts import Axis, Chart, Guide, Mark, Panel, Points, View, shorten
from headstart.report._client_panels import methods_axis, methods_panels
from headstart.report._curves import (
    LOSS,
    STEPS_TITLE,
    UNIT_TITLES,
    Unit,
    When,
    groups_of,
    line_panels,
    method_adaptation,
    method_learning,
    method_loss,
    styles_of,
)
from headstart.report._palette import SeriesStyle
from headstart.report._wording import GROUP_NAMES, format_difference


def comparison_charts(comparison: StoredComparison) -> list[Chart]:
    """Return all charts of a comparison that have something to show."""
    charts = [
        differences_chart(comparison),
        adaptation_chart(comparison),
        learning_chart(comparison),
        clients_chart(comparison),
    ]
    return [chart for chart in charts if any(view.panels for view in chart.views)]


def differences_chart(comparison: StoredComparison) -> Chart:
    """Return the paired differences to the baseline, for each group that has any."""
    record, metric = comparison.record, comparison.metric
    unit = ", in percentage points" if metric.is_share else ""
    panels = [
        _differences_panel(comparison, group)
        for group in groups_of(comparison)
        if any(row.difference(group) for row in record.rows)
    ]
    return Chart(
        "differences",
        f"Difference to {record.baseline}",
        f"{metric.heading} after adaptation minus the baseline's{unit}, paired by seed: both "
        "methods saw the same clients. Small dots: single seeds; diamond and bar: mean and 95 % "
        "confidence interval. A bar that crosses zero shows no difference.",
        [View("", panels, "differences")],
    )


def adaptation_chart(comparison: StoredComparison) -> Chart:
    """Return the metric against adaptation steps, a panel for each group."""
    metric, steps = comparison.metric, comparison.record.adapt_steps
    lines = {GROUP_NAMES[g]: method_adaptation(comparison, g) for g in groups_of(comparison)}
    panels = line_panels(lines, Axis(STEPS_TITLE, whole=True), metric.title, metric, steps)
    return Chart(
        "adaptation",
        "How many adaptation steps a client needs",
        f"Mean {metric.word} after 0, 1, 2 … gradient steps on the client's own data. "
        f"{_band(comparison)} Dotted line: the number of steps used everywhere else on this page.",
        [View("", panels, "adaptation")],
        _legend(comparison),
    )


def learning_chart(comparison: StoredComparison) -> Chart:
    """Return the metric over training: after and before adaptation, and the loss."""
    views = [
        _learning_view(comparison, "after", "round", "learning-after"),
        _learning_view(comparison, "after", "gradient_evaluations", "learning-by-gradients"),
        _learning_view(comparison, "before", "round", "learning-before"),
    ]
    if loss := method_loss(comparison, "round"):
        panels = line_panels({"": loss}, Axis("round", whole=True), "training loss", LOSS)
        views.append(View("training loss", panels, "training-loss"))
    caption = f"Mean over clients. {_band(comparison)}"
    return Chart("learning", "How training went", caption, views, _legend(comparison))


def clients_chart(comparison: StoredComparison) -> Chart:
    """Return where single clients lie, by method."""
    return Chart(
        "clients",
        "Where single clients lie",
        "Box: the middle half of the clients and their median; whiskers: from the 10th to the "
        "90th percentile; diamond: mean; dots: single clients, all seeds together.",
        [
            View("after", methods_panels(comparison, "after"), "clients"),
            View("before", methods_panels(comparison, "before")),
        ],
    )


def _learning_view(comparison: StoredComparison, when: When, unit: Unit, figure: str) -> View:
    metric, x = comparison.metric, Axis(UNIT_TITLES[unit], whole=True)
    groups = groups_of(comparison)
    lines = {GROUP_NAMES[g]: method_learning(comparison, g, when, unit) for g in groups}
    panels = line_panels(lines, x, metric.titled(when), metric)
    return View(f"{when}, by {unit.replace('_', ' ')}", panels, figure)


def _differences_panel(comparison: StoredComparison, group: str) -> Panel:
    """Return a dot per seed, mean and interval of each method, and its verdict below its name."""
    record, styles = comparison.record, styles_of(comparison)
    rows = [row for row in record.rows if row.label != record.baseline]
    marks = [
        mark
        for place, row in enumerate(rows)
        for mark in _difference_marks(comparison, row, group, place, styles[row.label])
    ]
    unit = record.metric.difference_unit.strip() or record.metric.word
    names = [f"{shorten(row.label, 20)}\n{_verdict(row, group)}" for row in rows]
    ends = [0.0, *(end for mark in marks if isinstance(mark, Points) for end in _ends(mark))]
    room = 0.08 * (max(ends) - min(ends)) or 1
    return Panel(
        Axis(f"{unit} against {shorten(record.baseline or '', 24)}",
             (min(ends) - room, max(ends) + room)),
        methods_axis(names),
        marks,
        GROUP_NAMES[group],
        guides=[Guide(x=0, solid=True)],
        height=120 + 60 * max(1, len(rows)),
    )  # fmt: skip


def _difference_marks(
    comparison: StoredComparison, row: ComparisonRow, group: str, place: int, style: SeriesStyle
) -> list[Mark]:
    difference, metric = row.difference(group), comparison.metric
    if difference is None:
        return []
    values = [value for value in difference.differences if value is not None]
    unit = metric.difference_unit
    said = f"{format_difference(metric, difference)}{unit}: {difference.verdict}"
    seeds = Points(
        [metric.scale * value for value in values], [place + 0.2] * len(values), style.colour, 7,
        [["one seed", f"{metric.signed(value)}{unit}"] for value in values],
        opacity=0.6, key=style.key,
    )  # fmt: skip
    half = None if difference.ci95 is None else metric.scale * difference.ci95
    mean = Points(
        [metric.scale * difference.mean], [place], style.colour, 11,
        [[shorten(style.label, 32), said]], shape="diamond", half_width=half, key=style.key,
    )  # fmt: skip
    return [seeds, mean]


def _ends(points: Points) -> list[float]:
    half = points.half_width or 0.0
    return [x + side * half for x in points.x for side in (-1, 1)]


def _verdict(row: ComparisonRow, group: str) -> str:
    difference = row.difference(group)
    return "not compared" if difference is None else difference.verdict


def _band(comparison: StoredComparison) -> str:
    return f"Band: 95 % confidence interval over {comparison.over}."


def _legend(comparison: StoredComparison) -> list[SeriesStyle]:
    styles = styles_of(comparison)
    return [styles[method.row.label] for method in comparison.methods if method.runs]
