"""Interactive panels of single clients, drawn with Plotly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headstart.report.palette import GREY, GROUP_COLOURS, translucent
from headstart.report.panels import Trace, figure, safe
from headstart.report.people import EDGES, percents, ranked
from headstart.report.reading import Client
from headstart.report.records import GROUP_NAMES
from headstart.report.spread import counts, thinned
from headstart.report.wording import plural, share

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 2000


def client_text(client: Client, extra: str = "") -> str:
    """What is said of one client."""
    return (
        f"<b>client {safe(client.name, 60)}</b>{extra}<br>"
        f"{share(client.before)} → {share(client.after)}<br>"
        f"{client.train:,} training and {plural(client.test, 'held-out example')}<br>"
        f"{plural(client.classes, 'label')} in its data"
    )


def dots(clients: Sequence[Client], x: Sequence[float], y: Sequence[float], **more: Any) -> Trace:
    """A dot for each client."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "text": [client_text(client) for client in clients],
        "hovertemplate": "%{text}<extra></extra>",
    } | more


def rows_panel(clients: Sequence[Client], group: str) -> Figure:
    """A row for each client: before (hollow), after (filled)."""
    some, colour = ranked(clients), GROUP_COLOURS[group]
    before, after, rows = percents(some, "before"), percents(some, "after"), range(len(some))
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
        [joins, dots(some, before, rows, marker=hollow),
         dots(some, after, rows, marker={"color": colour, "size": 10})],
        title=f"{GROUP_NAMES[group]} ({len(clients):,})",
        x={"title": "accuracy (%):  ○ before  ● after", "range": [-3, 103]},
        y={"title": "client", "tickvals": list(rows), "showgrid": False,
           "ticktext": [safe(c.name, 14) for c in some], "range": [-0.8, len(some) - 0.2]},
        height=max(220, 110 + 18 * len(some)),
    )  # fmt: skip


def histogram_panel(clients: Sequence[Client], group: str) -> Figure:
    """How many clients reach which accuracy."""
    middles = [(low + high) / 2 for low, high in pairwise(EDGES)]
    looks = {
        "before": "rgba(128, 128, 128, 0.55)",
        "after": translucent(GROUP_COLOURS[group], 0.75),
    }
    traces = [
        {
            "type": "bar",
            "x": middles,
            "y": counts(percents(clients, when), EDGES),  # type: ignore[arg-type]
            "marker": {"color": colour},
            "hovertemplate": f"{when}: %{{y}} clients<extra></extra>",
        }
        for when, colour in looks.items()
    ]
    return figure(
        traces,
        title=f"{GROUP_NAMES[group]} ({len(clients):,}): grey before, coloured after",
        x={"title": "accuracy (%)", "range": [0, 100]},
        y={"title": "clients"},
        barmode="group",
        bargap=0.08,
        hovermode="x unified",
    )


def scatter_panel(clients: Sequence[Client], group: str) -> Figure:
    """Before against after; above the diagonal a client gained."""
    some = ranked(clients)
    some = [some[i] for i in thinned(len(some), MOST_POINTS)]
    colour = translucent(GROUP_COLOURS[group], 0.5)
    before, after = percents(some, "before"), percents(some, "after")
    diagonal = {"type": "line", "x0": 0, "x1": 100, "y0": 0, "y1": 100,
                "line": {"color": GREY, "width": 1, "dash": "dot"}}  # fmt: skip
    shown = "" if len(some) == len(clients) else f", {len(some):,} shown"
    return figure(
        [dots(some, before, after, marker={"color": colour, "size": 6})],
        title=f"{GROUP_NAMES[group]} ({len(clients):,}{shown})",
        x={"title": "accuracy before (%)", "range": [-2, 102]},
        y={"title": "accuracy after (%)", "range": [-2, 102]},
        shapes=[diagonal],
    )
