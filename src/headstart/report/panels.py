"""Interactive panels, drawn with Plotly: their common look, and lines.

Every text of the user's goes through :func:`safe`, because Plotly reads tags in texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
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
    """Text of the user's as Plotly shall show it, letter by letter."""
    return html.escape(text if most is None else short(text, most), quote=False)


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
        "hoverlabel": {"bgcolor": "#fff", "font": {"color": "#222"}, "bordercolor": "#bbb"},
    }
    return Figure(
        data=list(traces),
        layout=style | layout | {"xaxis": axis | dict(x), "yaxis": axis | dict(y)},
    )


def lines_panel(
    lines: Sequence[Line], x_title: str, y_title: str, title: str = "", *, steps: int | None = None
) -> Figure:
    """Lines with bands; one box names all lines at a position, if they share positions."""
    percent = y_title.endswith("(%)")
    numbers = [v for line in lines for v in (*line.y, *line.low) if v is not None]
    y: dict[str, Any] = {"title": {"text": y_title}}
    y["range"] = [floor_ten(numbers) - 1, 101] if percent else [0, 1.08 * max(numbers, default=1)]
    shared = len({line.x for line in lines}) == 1
    marker = {"type": "line", "x0": steps, "x1": steps, "y0": 0, "y1": 1, "yref": "paper",
              "line": {"color": GREY, "width": 1, "dash": "dot"}}  # fmt: skip
    traces = [trace for line in lines for trace in line_traces(line, percent)]
    return figure(
        traces,
        title=title,
        x={"title": {"text": x_title}},
        y=y,
        hovermode="x unified" if shared else "closest",
        shapes=[marker] if steps else [],
    )


def line_traces(line: Line, percent: bool) -> list[Trace]:
    """The band, if there is one, and the line."""
    look = line.look
    base = {"type": "scatter", "legendgroup": look.key, "name": safe(look.label)}
    ends = [(x, a, b) for x, a, b in zip(line.x, line.low, line.high, strict=False)
            if a is not None and b is not None]  # fmt: skip
    band = base | {
        "x": [e[0] for e in ends] + [e[0] for e in reversed(ends)],
        "y": [e[2] for e in ends] + [e[1] for e in reversed(ends)],
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
    return [band, drawn] if ends else [drawn]


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
