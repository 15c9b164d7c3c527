"""Interactive panels of methods side by side, drawn with Plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headstart.metric import Metric
from headstart.report.client_panels import dots
from headstart.report.lines import When
from headstart.report.palette import GREY, Look, translucent
from headstart.report.panels import Trace, figure, safe
from headstart.report.people import MOST_DOTS, jitter, limits, pooled, shown_values
from headstart.report.reading import Comparison, Method
from headstart.report.records import GROUP_NAMES, Board, Difference, Row
from headstart.report.spread import box
from headstart.report.wording import points

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def methods_panel(
    comparison: Comparison, group: str, when: When, looks: Mapping[str, Look]
) -> Figure:
    """A box for each method, its clients as dots if they are few enough."""
    metric = comparison.metric
    traces = [
        trace
        for row, method in enumerate(comparison.methods)
        for trace in method_traces(method, group, when, row, looks[method.row.label], metric)
    ]
    everyone = [c for m in comparison.methods for g in GROUP_NAMES for c in pooled(m, g)]
    low, high = limits(shown_values(everyone, when, metric), metric, floor=True)
    room = 0.02 * (high - low) if not metric.is_share else 2
    return figure(
        traces,
        title=GROUP_NAMES[group],
        x={"title": metric.titled(when), "range": [low - room, high + room]},
        y=method_axis([method.row.label for method in comparison.methods]),
        height=110 + 52 * len(comparison.methods),
    )  # fmt: skip


def method_traces(
    method: Method, group: str, when: When, row: int, look: Look, metric: Metric
) -> list[Trace]:
    """One method's dots, box and mean."""
    clients = [c for c in pooled(method, group) if getattr(c, when) is not None]
    values = shown_values(clients, when, metric)
    if not values:
        return []
    b = box(values)
    base = {"legendgroup": look.key, "hovertemplate": "%{text}<extra></extra>"}
    mean, median, low, high = (
        metric.text(value / metric.scale) for value in (b.mean, b.p50, b.p10, b.p90)
    )
    tail = f"below {low}" if metric.direction == "higher" else f"above {high}"
    text = (
        f"<b>{safe(look.label, 32)}</b><br>mean {mean}, median {median}<br>one client in ten {tail}"
    )
    frame = {"type": "box", "orientation": "h", "y": [row], "q1": [b.p25], "median": [b.p50],
             "q3": [b.p75], "lowerfence": [b.p10], "upperfence": [b.p90], "width": 0.5,
             "fillcolor": "rgba(0,0,0,0)", "line": {"color": look.colour, "width": 1.6},
             "hoverinfo": "skip", "legendgroup": look.key}  # fmt: skip
    middle = {"type": "scatter", "mode": "markers", "x": [b.mean], "y": [row], "text": [text],
            "marker": {"symbol": "diamond", "size": 10, "color": "#fff",
                       "line": {"color": look.colour, "width": 2}}} | base  # fmt: skip
    heights = [row + 0.2 * j for j in jitter(len(values))]
    faint = {"color": translucent(look.colour, 0.45), "size": 5}
    some = len(values) <= MOST_DOTS
    few = [dots(clients, metric, values, heights, marker=faint) | base] if some else []
    return [*few, frame, middle]


def differences_panel(board: Board, group: str, looks: Mapping[str, Look]) -> Figure:
    """Differences to the baseline: a dot per seed, mean and interval, zero line."""
    rows = [row for row in board.rows if row.label != board.baseline]
    traces = []
    for height, row in enumerate(rows):
        if group in row.differences:
            traces += difference_traces(row.differences[group], height, looks[row.label])
    return figure(
        traces,
        title=GROUP_NAMES[group],
        x={"title": against(board.metric, safe(board.baseline or '', 24)), "zeroline": True,
           "zerolinecolor": GREY, "zerolinewidth": 2, "range": reach(rows, group)},
        y=method_axis([row.label for row in rows], [verdict(row, group) for row in rows]),
        height=120 + 60 * max(1, len(rows)),
    )  # fmt: skip


def against(metric: Metric, baseline: str) -> str:
    """For an axis of differences."""
    return f"{metric.difference_unit.strip() or metric.word} against {baseline}"


def reach(rows: Sequence[Row], group: str) -> list[float]:
    """From the leftmost to the rightmost end, zero included, with some room."""
    found = [row.differences[group] for row in rows if group in row.differences]
    ends = [d.metric.scale * (d.mean + side * (d.ci95 or 0)) for d in found for side in (-1, 1)]
    seeds = [d.metric.scale * v for d in found for v in d.values if v is not None]
    low, high = min(0, *ends, *seeds), max(0, *ends, *seeds)
    room = 0.08 * (high - low) or 1
    return [low - room, high + room]


def difference_traces(difference: Difference, row: int, look: Look) -> list[Trace]:
    """One method's dots, mean with interval, and verdict."""
    metric, unit = difference.metric, difference.metric.difference_unit
    seeds = [metric.scale * v for v in difference.values if v is not None]
    text = f"<b>{safe(look.label, 32)}</b><br>{points(difference)}{unit}: {difference.verdict}"
    mean = metric.scale * difference.mean
    width = None if difference.ci95 is None else metric.scale * difference.ci95
    number = "%{x:+.1f}" if metric.is_share else "%{x:+.3g}"
    base = {"type": "scatter", "legendgroup": look.key}
    each = base | {"mode": "markers", "x": seeds, "y": [row + 0.2] * len(seeds),
                   "marker": {"color": translucent(look.colour, 0.6), "size": 7},
                   "hovertemplate": f"one seed: {number}{unit}<extra></extra>"}  # fmt: skip
    middle = base | {"mode": "markers", "x": [mean], "y": [row], "text": [text],
                     "marker": {"color": look.colour, "size": 11, "symbol": "diamond"},
                     "hovertemplate": "%{text}<extra></extra>"}  # fmt: skip
    if width is not None:
        middle["error_x"] = {"type": "data", "array": [width], "color": look.colour,
                             "thickness": 2.4, "width": 6}  # fmt: skip
    return [each, middle]


def verdict(row: Row, group: str) -> str:
    """What the interval shows, in words."""
    difference = row.differences.get(group)
    return "not compared" if difference is None else difference.verdict


def method_axis(labels: Sequence[str], below: Sequence[str] = ()) -> dict[str, Any]:
    """A row for each method, the first on top, with a word below its name."""
    names = [safe(label, 20) for label in labels]
    if below:
        names = [f"<b>{name}</b><br>{word}" for name, word in zip(names, below, strict=True)]
    return {"tickvals": list(range(len(labels))), "ticktext": names,
            "range": [len(labels) - 0.4, -0.6], "showgrid": False}  # fmt: skip
