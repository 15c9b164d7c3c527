"""Panels for the page: the data and layout that Plotly's JavaScript draws.

Plotly interprets tags and mathematics in texts, so every text passes through :func:`escape`.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from headstart.report._charts import (
    Axis,
    Bars,
    Box,
    Guide,
    HeatMap,
    Hover,
    Line,
    Mark,
    Panel,
    Points,
    RowSpans,
    shorten,
)
from headstart.report._palette import BLUE, GREY, PALE

Json = dict[str, Any]
GRID, CLEAR = "rgba(128, 128, 128, 0.22)", "rgba(0,0,0,0)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FEW_TICKS = 12
"""Up to this number every whole number has a tick."""
LAYOUT: Json = {
    "template": "none",
    "font": {"family": FONT, "size": 12.5},
    "margin": {"l": 56, "r": 16, "t": 36, "b": 48},
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "showlegend": False,
    "modebar": {"bgcolor": CLEAR, "color": "#999", "activecolor": "#666"},
    "hoverlabel": {
        "align": "left",
        "bgcolor": "#fff",
        "font": {"color": "#222"},
        "bordercolor": "#bbb",
    },
    "barmode": "group",
    "bargap": 0.08,
}
AXIS: Json = {
    "gridcolor": GRID,
    "zeroline": False,
    "linecolor": "#888",
    "ticks": "outside",
    "tickcolor": GRID,
    "automargin": True,
}
TEXT = "%{text}<extra></extra>"


def escape(text: str) -> str:
    """Return text that Plotly shows letter by letter.

    >>> escape("<b>$x$")
    '&lt;b&gt;&#36;x&#36;'
    """
    return html.escape(text, quote=False).replace("$", "&#36;")


def translucent(colour: str, opacity: float) -> str:
    """Return the colour as CSS rgba.

    >>> translucent("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def plotly_panel(panel: Panel) -> Json:
    """Return ``data`` and ``layout`` of a panel; texts take their colour from the style sheet."""
    title = {"text": escape(panel.title), "x": 0.01, "y": 0.98, "yanchor": "top"}
    layout = LAYOUT | {
        "height": panel.height,
        "title": title | {"font": {"size": 14}},
        "xaxis": _axis(panel.x, panel),
        "yaxis": _axis(panel.y, panel),
        "hovermode": "x unified" if _shares_positions(panel.marks) else "closest",
        "shapes": [_guide(guide, panel) for guide in panel.guides],
        "annotations": [_warning(panel.warning)] if panel.warning else [],
    }
    return {"data": [trace for mark in panel.marks for trace in _traces(mark)], "layout": layout}


def _shares_positions(marks: Sequence[Mark]) -> bool:
    """Return whether one box can describe all marks at a position."""
    if all(isinstance(mark, Bars) for mark in marks):
        return True
    lines = [tuple(mark.x) for mark in marks if isinstance(mark, Line)]
    return len(lines) == len(marks) and len(set(lines)) == 1


def _axis(axis: Axis, panel: Panel) -> Json:
    own: Json = {"title": {"text": escape(axis.title), "font": {"size": 13}}}
    if axis.names is not None:
        own |= {"showgrid": False, "tickvals": list(range(len(axis.names)))}
        own |= {"ticktext": [_name(name) for name in axis.names]}
        own |= {} if axis.names else {"showticklabels": False, "ticks": ""}
    if axis.log:
        own["type"] = "log"
    elif axis.limits is not None:
        own["range"] = list(axis.limits)
    furthest = max((x for line in panel.lines for x in line.x), default=0)
    if axis.whole and 0 < furthest <= FEW_TICKS:
        own["dtick"] = 1
    return AXIS | own


def _name(name: str) -> str:
    first, *others = map(escape, name.split("\n"))
    return "<br>".join([f"<b>{first}</b>", *others]) if others else first


def _guide(guide: Guide, panel: Panel) -> Json:
    style = {"width": 2} if guide.solid else {"width": 1, "dash": "dot"}
    shape: Json = {"type": "line", "layer": "below", "line": {"color": GREY, **style}}
    if guide.x is not None:
        return shape | {"x0": guide.x, "x1": guide.x, "y0": 0, "y1": 1, "yref": "paper"}
    if guide.y is not None:
        return shape | {"x0": 0, "x1": 1, "y0": guide.y, "y1": guide.y, "xref": "paper"}
    low, high = panel.x.limits or (0.0, 1.0)
    return shape | {"x0": low, "x1": high, "y0": low, "y1": high}


def _warning(text: str) -> Json:
    """Return a warning inside the panel, where it stays when the panel is saved as an image."""
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left"}
    font = {"size": 10, "color": "#C2001B"}
    brief = escape(text.partition(" (")[0])
    return place | {"text": f"⚠ {brief}", "font": font, "yanchor": "bottom", "showarrow": False}


def _hover(hover: Hover) -> str:
    heading, *lines = map(escape, hover)
    return "<br>".join([f"<b>{heading}</b>", *lines])


def _traces(mark: Mark) -> list[Json]:
    match mark:
        case Line():
            return _line(mark)
        case Points():
            return [_points(mark)]
        case RowSpans():
            return [_row_spans(mark)]
        case Bars():
            return [_bars(mark)]
        case Box():
            return _box(mark)
        case HeatMap():
            return [_heat_map(mark)]


def _line(line: Line) -> list[Json]:
    style, (x, y) = line.style, band_outline(line)
    base = {"type": "scatter", "legendgroup": style.key, "name": escape(style.label)}
    band = base | {
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": translucent(style.colour, 0.1),
        "line": {"width": 0.6, "color": translucent(style.colour, 0.35)},
        "mode": "lines",
        "hoverinfo": "skip",
    }
    name = escape(shorten(style.label, 32))
    drawn = base | {
        "x": list(line.x),
        "y": list(line.y),
        "mode": "lines+markers" if len(line.x) <= 40 else "lines",
        "line": {"color": style.colour, "width": 2.2, "dash": style.dash},
        "marker": {"size": 5.5, "color": style.colour},
        "text": [f"<b>{name}</b> {escape(text)}" for text in line.texts],
        "hovertemplate": TEXT,
    }
    return [band, drawn] if x else [drawn]


def band_outline(line: Line) -> tuple[list[float | None], list[float | None]]:
    """Return the corners of the band, along its top and back along its bottom.

    Where there is no interval the band is interrupted.
    """
    corners = list(zip(line.x, line.low, line.high, strict=False))
    xs: list[float | None] = []
    ys: list[float | None] = []
    for complete, part in groupby(corners, key=lambda c: c[1] is not None and c[2] is not None):
        if complete:
            piece = list(part)
            xs += [c[0] for c in piece] + [c[0] for c in reversed(piece)] + [None]
            ys += [c[2] for c in piece] + [c[1] for c in reversed(piece)] + [None]
    return xs, ys


def _points(points: Points) -> Json:
    colour = translucent(points.colour, points.opacity)
    marker: Json = {"color": colour, "size": points.size}
    if points.shape.startswith("hollow"):
        marker |= {"color": "#fff", "line": {"color": colour, "width": 2}}
    if points.shape.endswith("diamond"):
        marker["symbol"] = "diamond"
    trace: Json = {
        "type": "scatter",
        "mode": "markers",
        "x": list(points.x),
        "y": list(points.y),
        "marker": marker,
        "text": [_hover(hover) for hover in points.hovers],
        "hovertemplate": TEXT,
        "legendgroup": points.key,
    }
    if points.half_width is not None:
        width = [points.half_width] * len(points.x)
        style = {"color": colour, "thickness": 2.4, "width": 6}
        trace["error_x"] = {"type": "data", "array": width, **style}
    return trace


def _row_spans(spans: RowSpans) -> Json:
    ends = list(zip(spans.start, spans.end, strict=True))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [value for start, end in ends for value in (start, end, None)],
        "y": [value for row in range(len(ends)) for value in (row, row, None)],
        "line": {"color": translucent(spans.colour, 0.45), "width": 3},
        "hoverinfo": "skip",
    }


def _bars(bars: Bars) -> Json:
    return {
        "type": "bar",
        "x": [(low + high) / 2 for low, high in pairwise(bars.edges)],
        "y": list(bars.counts),
        "marker": {"color": translucent(bars.colour, 0.75)},
        "hovertemplate": f"{escape(bars.label)}: %{{y}} clients<extra></extra>",
    }


def _box(box: Box) -> list[Json]:
    frame: Json = {
        "type": "box",
        "orientation": "h",
        "y": [box.row],
        "q1": [box.p25],
        "median": [box.p50],
        "q3": [box.p75],
        "lowerfence": [box.p10],
        "upperfence": [box.p90],
        "width": 0.5,
        "fillcolor": CLEAR,
        "line": {"color": box.colour, "width": 1.6},
        "hoverinfo": "skip",
        "legendgroup": box.key,
    }
    return [frame, _points(box.mean_point)]


def _heat_map(heat: HeatMap) -> Json:
    return {
        "type": "heatmap",
        "z": [list(row) for row in heat.values],
        "text": [[escape(text) for text in row] for row in heat.texts],
        "hovertemplate": TEXT,
        "colorscale": [[0, PALE], [1, BLUE]],
        "colorbar": {"title": {"text": escape(heat.title)}, "thickness": 12, "outlinewidth": 0},
    }
