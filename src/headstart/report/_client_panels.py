"""Panels of single clients: a row each, a distribution, dots, and boxes by method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart._metric import Metric
from headstart.records import ClientResult, StoredComparison, StoredMethod
from headstart.report._charts import (
    Axis,
    Bars,
    Box,
    Guide,
    Hover,
    Mark,
    Panel,
    Points,
    RowSpans,
    shorten,
)
from headstart.report._curves import When, floor_to_ten, groups_of, styles_of
from headstart.report._palette import GREY, GROUP_COLOURS, SeriesStyle
from headstart.report._wording import GROUP_NAMES, plural

WHENS: tuple[When, ...] = ("before", "after")
MOST_ROWS = 60
"""Up to this many clients have a row each; more are shown as a distribution."""
MOST_DOTS = 150
"""Up to this many clients of a method are drawn as dots beside its box."""
MOST_POINTS = 2000
"""In a panel with a dot per client."""
SHARE_EDGES = tuple(float(edge) for edge in range(0, 101, 5))
"""Bins of a share, in percent."""


def rank_clients(clients: Sequence[ClientResult], metric: Metric) -> list[ClientResult]:
    """Return the clients with both numbers, the worst after adaptation first."""

    def badness(client: ClientResult) -> tuple[float, float]:
        change = client[metric.name]
        return metric.gain(change.after, 0.0), metric.gain(change.before, 0.0)

    complete = [c for c in clients if None not in (c[metric.name].before, c[metric.name].after)]
    return sorted(complete, key=badness)


def values_of(clients: Sequence[ClientResult], when: When, metric: Metric) -> list[float]:
    """Return the metric as it is shown (shares in percent), of clients that have one."""
    values = (getattr(client[metric.name], when) for client in clients)
    return [metric.scale * value for value in values if value is not None]


def rows_panel(clients: Sequence[ClientResult], group: str, metric: Metric) -> Panel:
    """Return a row for each client: before (hollow) and after (filled), joined by a line."""
    ranked, colour = rank_clients(clients, metric), GROUP_COLOURS[group]
    before, after = (values_of(ranked, when, metric) for when in WHENS)
    low, high = value_limits([*before, *after], metric)
    room = 0.03 * (high - low)
    rows, hovers = range(len(ranked)), [client_hover(client, metric) for client in ranked]
    names = tuple(shorten(client.name, 14) for client in ranked)
    return Panel(
        Axis(f"{metric.title}:  ○ before  ● after adaptation", (low - room, high + room)),
        Axis("client", (-0.8, len(ranked) - 0.2), names),
        [
            RowSpans(before, after, colour),
            Points(before, rows, colour, 9, hovers, shape="hollow dot"),
            Points(after, rows, colour, 10, hovers),
        ],
        f"{GROUP_NAMES[group]} ({len(clients):,})",
        height=max(220, 110 + 18 * len(ranked)),
    )


def histogram_panel(clients: Sequence[ClientResult], group: str, metric: Metric) -> Panel:
    """Return how many clients reach which value, before and after adaptation."""
    edges = bin_edges(clients, metric)
    colours = {"after": GROUP_COLOURS[group], "before": GREY}
    bars = [
        Bars(when, edges, _counts(values_of(clients, when, metric), edges), colours[when],
             outline=when == "before")
        for when in WHENS
    ]  # fmt: skip
    return Panel(
        Axis(f"{metric.title}:  grey before, coloured after", (edges[0], edges[-1])),
        Axis("clients"),
        bars,
        f"{GROUP_NAMES[group]} ({len(clients):,})",
    )


def scatter_panel(clients: Sequence[ClientResult], group: str, metric: Metric) -> Panel:
    """Return before against after; the diagonal separates clients that gained and that lost."""
    ranked = rank_clients(clients, metric)
    ranked = [ranked[place] for place in thin_out(len(ranked), MOST_POINTS)]
    before, after = (values_of(ranked, when, metric) for when in WHENS)
    low, high = value_limits([*before, *after], metric)
    room = 0.02 * (high - low)
    hovers = [client_hover(client, metric) for client in ranked]
    drawn = "" if len(ranked) == len(clients) else f", {len(ranked):,} shown"
    return Panel(
        Axis(metric.titled("before"), (low - room, high + room)),
        Axis(metric.titled("after"), (low - room, high + room)),
        [Points(before, after, GROUP_COLOURS[group], 6, hovers, opacity=0.5)],
        f"{GROUP_NAMES[group]} ({len(clients):,}{drawn})",
        guides=[Guide()],
    )


def methods_panels(comparison: StoredComparison, when: When) -> list[Panel]:
    """Return for each group a box per method, with its clients as dots if they are few."""
    metric, groups, styles = comparison.metric, groups_of(comparison), styles_of(comparison)
    everyone = [c for m in comparison.methods for g in groups for c in pool_clients(m, g)]
    low, high = value_limits(values_of(everyone, when, metric), metric, floor=True)
    room = 2 if metric.is_share else 0.02 * (high - low)
    x = Axis(metric.titled(when), (low - room, high + room))
    y = methods_axis([method.row.label for method in comparison.methods])
    height = 110 + 52 * len(comparison.methods)
    return [
        Panel(x, y, [
            mark
            for row, method in enumerate(comparison.methods)
            for mark in _method_marks(
                pool_clients(method, group), when, row, styles[method.row.label], metric
            )
        ], GROUP_NAMES[group], height=height)
        for group in groups
    ]  # fmt: skip


def methods_axis(names: Sequence[str]) -> Axis:
    """Return an axis with a row for each method, the first on top."""
    return Axis("", (len(names) - 0.4, -0.6), tuple(names))


def _method_marks(
    clients: Sequence[ClientResult], when: When, row: int, style: SeriesStyle, metric: Metric
) -> list[Mark]:
    """Return one method's dots, box and mean."""
    defined = [c for c in clients if getattr(c[metric.name], when) is not None]
    values = values_of(defined, when, metric)
    if not values:
        return []
    p10, p25, p50, p75, p90 = map(float, np.percentile(values, (10, 25, 50, 75, 90)))
    mean = float(np.mean(values))
    text = {v: metric.text(v / metric.scale) for v in (mean, p50, p10, p90)}
    tail = f"below {text[p10]}" if metric.direction == "higher" else f"above {text[p90]}"
    hover = [
        shorten(style.label, 32),
        f"mean {text[mean]}, median {text[p50]}",
        f"one client in ten {tail}",
    ]
    box = Box(row, p10, p25, p50, p75, p90, mean, style.colour, style.key, hover)
    if len(values) > MOST_DOTS:
        return [box]
    heights = [row + 0.2 * offset for offset in jitter(len(values))]
    hovers = [client_hover(client, metric) for client in defined]
    dots = Points(values, heights, style.colour, 5, hovers, opacity=0.45, key=style.key)
    return [dots, box]


def pool_clients(method: StoredMethod, group: str) -> list[ClientResult]:
    """Return the clients of all the method's runs together."""
    return [client for run in method.runs for client in run.clients_of(group)]


def client_hover(client: ClientResult, metric: Metric) -> Hover:
    """Return what the page says of one client."""
    change = client[metric.name]
    labels = [f"{plural(client.classes, 'label')} in its data"] if client.classes else []
    return [
        f"client {shorten(client.name, 60)}",
        f"{metric.text(change.before)} → {metric.text(change.after)}",
        f"{client.train_examples:,} training and "
        f"{plural(client.test_examples, 'held-out example')}",
        *labels,
    ]


def bin_edges(clients: Sequence[ClientResult], metric: Metric) -> tuple[float, ...]:
    """Return the bins of a histogram: of shares, or twenty between the extremes."""
    if metric.is_share:
        return SHARE_EDGES
    values = [value for when in WHENS for value in values_of(clients, when, metric)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    step = (high - low or abs(high) or 1.0) / 20
    return tuple(low + step * i for i in range(21))


def value_limits(
    values: Sequence[float], metric: Metric, *, floor: bool = False
) -> tuple[float, float]:
    """Return the range of an axis: all of 0 … 100 %, or what there is with a little room.

    ``floor`` begins a share's axis at the multiple of ten below the smallest value.
    """
    if metric.is_share:
        return (floor_to_ten(values) if floor else 0.0), 100.0
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.05 * (high - low or abs(high) or 1.0)
    return (0.0 if 0 <= low < high / 3 else low - room), high + room


def thin_out(count: int, most: int) -> list[int]:
    """Return at most ``most`` positions out of ``count``, evenly spread, with both ends.

    >>> thin_out(5, 9), thin_out(9, 3)
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def jitter(count: int) -> list[float]:
    """Return small fixed offsets between −1 and 1 that keep equal dots apart."""
    return [((i * 0.6180339887) % 1) * 2 - 1 for i in range(count)]


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    """Count the values between neighbouring edges; the last bin holds its upper edge."""
    return [int(count) for count in np.histogram(np.asarray(values, float), bins=list(edges))[0]]
