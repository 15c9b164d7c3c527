"""Interactive panels of single clients, drawn with Plotly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headstart.metric import Metric
from headstart.report.palette import GREY, GROUP_COLOURS, translucent
from headstart.report.panels import Trace, figure, safe
from headstart.report.people import WHENS, edges, limits, ranked, shown_values
from headstart.report.reading import Client
from headstart.report.records import GROUP_NAMES
from headstart.report.spread import counts, thinned
from headstart.report.wording import plural

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 2000


def client_text(client: Client, metric: Metric) -> str:
    """What is said of one client."""
    labels = f"<br>{plural(client.classes, 'label')} in its data" if client.classes else ""
    return (
        f"<b>client {safe(client.name, 60)}</b><br>"
        f"{metric.text(client.before)} → {metric.text(client.after)}<br>"
        f"{client.train:,} training and {plural(client.test, 'held-out example')}{labels}"
    )


def dots(
    clients: Sequence[Client], metric: Metric, x: Sequence[float], y: Sequence[float], **more: Any
) -> Trace:
    """A dot for each client."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "text": [client_text(client, metric) for client in clients],
        "hovertemplate": "%{text}<extra></extra>",
    } | more


def rows_panel(clients: Sequence[Client], group: str, metric: Metric) -> Figure:
    """A row for each client: before (hollow), after (filled)."""
    some, colour = ranked(clients, metric), GROUP_COLOURS[group]
    before, after = (shown_values(some, when, metric) for when in WHENS)
    rows, (low, high) = range(len(some)), limits([*before, *after], metric)
    room = 0.03 * (high - low)
    joins: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [v for b, a in zip(before, after, strict=True) for v in (b, a, None)],
        "y": [v for row in rows for v in (row, row, None)],
        "line": {"color": translucent(colour, 0.45), "width": 3},
        "hoverinfo": "skip",
    }
    hollow = {"color": "#fff", "size": 9, "line": {"color": colour, "width": 2}}
    return figure(
        [joins, dots(some, metric, before, rows, marker=hollow),
         dots(some, metric, after, rows, marker={"color": colour, "size": 10})],
        title=f"{GROUP_NAMES[group]} ({len(clients):,})",
        x={"title": f"{metric.title}:  ○ before  ● after", "range": [low - room, high + room]},
        y={"title": "client", "tickvals": list(rows), "showgrid": False,
           "ticktext": [safe(c.name, 14) for c in some], "range": [-0.8, len(some) - 0.2]},
        height=max(220, 110 + 18 * len(some)),
    )  # fmt: skip


def histogram_panel(clients: Sequence[Client], group: str, metric: Metric) -> Figure:
    """How many clients reach which value."""
    bins = edges(clients, metric)
    middles = [(low + high) / 2 for low, high in pairwise(bins)]
    looks = {
        "before": "rgba(128, 128, 128, 0.55)",
        "after": translucent(GROUP_COLOURS[group], 0.75),
    }
    traces = [
        {
            "type": "bar",
            "x": middles,
            "y": counts(shown_values(clients, when, metric), bins),  # type: ignore[arg-type]
            "marker": {"color": colour},
            "hovertemplate": f"{when}: %{{y}} clients<extra></extra>",
        }
        for when, colour in looks.items()
    ]
    return figure(
        traces,
        title=f"{GROUP_NAMES[group]} ({len(clients):,}): grey before, coloured after",
        x={"title": metric.title, "range": [bins[0], bins[-1]]},
        y={"title": "clients"},
        barmode="group",
        bargap=0.08,
        hovermode="x unified",
    )


def scatter_panel(clients: Sequence[Client], group: str, metric: Metric) -> Figure:
    """Before against after; the diagonal divides clients that gained from those that lost."""
    some = ranked(clients, metric)
    some = [some[i] for i in thinned(len(some), MOST_POINTS)]
    colour = translucent(GROUP_COLOURS[group], 0.5)
    before, after = (shown_values(some, when, metric) for when in WHENS)
    low, high = limits([*before, *after], metric)
    room = [low - 0.02 * (high - low), high + 0.02 * (high - low)]
    diagonal = {"type": "line", "x0": low, "x1": high, "y0": low, "y1": high,
                "line": {"color": GREY, "width": 1, "dash": "dot"}}  # fmt: skip
    shown = "" if len(some) == len(clients) else f", {len(some):,} shown"
    return figure(
        [dots(some, metric, before, after, marker={"color": colour, "size": 6})],
        title=f"{GROUP_NAMES[group]} ({len(clients):,}{shown})",
        x={"title": metric.titled("before"), "range": room},
        y={"title": metric.titled("after"), "range": room},
        shapes=[diagonal],
    )
