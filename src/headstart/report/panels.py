"""Interactive panels, drawn with Plotly: their common look, and lines.

Every text of the user's goes through :func:`safe`, because Plotly reads tags in texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headstart.report.lines import Line
from headstart.report.palette import GREY, translucent
from headstart.report.people import short
from headstart.report.spread import floor_ten

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HEIGHT = 340
GRID = "rgba(128, 128, 128, 0.22)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
Trace = dict[str, Any]


def safe(text: str, most: int | None = None) -> str:
    """Text of the user's as Plotly shall show it, letter by letter: no tags, no mathematics.

    >>> safe("<b>$x$")
    '&lt;b&gt;&#36;x&#36;'
    """
    plain = html.escape(text if most is None else short(text, most), quote=False)
    return plain.replace("$", "&#36;")


def figure(
    traces: Iterable[Trace],
    *,
    title: str = "",
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    height: int = HEIGHT,
    **layout: Any,
) -> Figure:
    """A panel in the page's look; texts take their colour from the page's style sheet."""
    from plotly.graph_objects import Figure

    def titled(own: Mapping[str, Any]) -> dict[str, Any]:
        title = {"text": own.get("title", ""), "font": {"size": 13}}
        return axis | dict(own) | {"title": title}

    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": "#888", "ticks": "outside",
            "tickcolor": GRID, "automargin": True}  # fmt: skip
    style = {
        "template": "none",
        "height": height,
        "title": {"text": title, "x": 0.01, "y": 0.98, "yanchor": "top", "font": {"size": 14}},
        "font": {"family": FONT, "size": 12.5},
        "margin": {"l": 56, "r": 16, "t": 36, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#999", "activecolor": "#666"},
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#fff",
            "font": {"color": "#222"},
            "bordercolor": "#bbb",
        },
    }
    return Figure(
        data=list(traces),
        layout=style | layout | {"xaxis": titled(x), "yaxis": titled(y)},
    )


def lines_panel(
    lines: Sequence[Line],
    x_title: str,
    y_title: str,
    title: str = "",
    *,
    steps: int | None = None,
    floor: float | None = None,
    log: bool = False,
) -> Figure:
    """Lines with bands; one box names all lines at a position, if they share positions.

    ``steps`` is where a dotted line stands, ``floor`` the lowest share on the axis; ``log`` is
    for numbers of very different size.
    """
    percent = y_title.endswith("(%)")
    numbers = [v for line in lines for v in (*line.y, *line.low) if v is not None]
    low = floor_ten(numbers) if floor is None else floor
    least, most = min(numbers, default=0), max(numbers, default=1)
    limits = [low - 1, 101] if percent else [1.08 * min(0, least), 1.08 * max(0, most)]
    few = steps is not None and max(x for line in lines for x in line.x) <= 12
    shared = len({line.x for line in lines}) == 1
    marker = {"type": "line", "x0": steps, "x1": steps, "y0": 0, "y1": 1, "yref": "paper",
              "line": {"color": GREY, "width": 1, "dash": "dot"}}  # fmt: skip
    traces = [trace for line in lines for trace in line_traces(line, percent)]
    return figure(
        traces,
        title=title,
        x={"title": x_title} | ({"dtick": 1} if few else {}),
        y={"title": y_title} | ({"type": "log"} if log else {"range": limits}),
        hovermode="x unified" if shared else "closest",
        shapes=[marker] if steps else [],
    )


def line_traces(line: Line, percent: bool) -> list[Trace]:
    """The band, if there is one, and the line."""
    look = line.look
    base = {"type": "scatter", "legendgroup": look.key, "name": safe(look.label)}
    x, y = band_outline(line)
    band = base | {
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": translucent(look.colour, 0.1),
        "line": {"width": 0.6, "color": translucent(look.colour, 0.35)},
        "mode": "lines",
        "hoverinfo": "skip",
    }
    drawn = base | {
        "x": list(line.x),
        "y": list(line.y),
        "mode": "lines+markers" if len(line.x) <= 40 else "lines",
        "line": {"color": look.colour, "width": 2.2, "dash": look.dash},
        "marker": {"size": 5.5, "color": look.colour},
        "text": [point_text(line, i, percent) for i in range(len(line.x))],
        "hovertemplate": "%{text}<extra></extra>",
    }
    return [band, drawn] if x else [drawn]


def band_outline(line: Line) -> tuple[list[float | None], list[float | None]]:
    """The corners of the band, there along its top and back along its bottom.

    Where there is no interval the band is interrupted.
    """
    corners = list(zip(line.x, line.low, line.high, strict=False))
    xs: list[float | None] = []
    ys: list[float | None] = []
    for whole, part in groupby(corners, key=lambda c: c[1] is not None and c[2] is not None):
        if whole:
            piece = list(part)
            xs += [c[0] for c in piece] + [c[0] for c in reversed(piece)] + [None]
            ys += [c[2] for c in piece] + [c[1] for c in reversed(piece)] + [None]
    return xs, ys


def point_text(line: Line, index: int, percent: bool) -> str:
    """What is said of one point."""
    name, value = f"<b>{safe(line.look.label, 32)}</b>", line.y[index]
    if value is None:
        return f"{name} –"
    if not percent:
        return f"{name} {value:.4g}"
    low, high = (side[index] if side else None for side in (line.low, line.high))
    interval = "" if low is None or high is None else f" (95 % CI {low:.1f} … {high:.1f})"
    return f"{name} {value:.1f} %{interval}"
