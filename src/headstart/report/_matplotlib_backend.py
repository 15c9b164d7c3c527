"""Panels for papers and slides, drawn with Matplotlib and saved as PNG and SVG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from headstart._atomic_files import write_bytes
from headstart.report._charts import (
    PANEL_HEIGHT,
    Axis,
    Bars,
    Box,
    Guide,
    HeatMap,
    Line,
    Mark,
    Numbers,
    Panel,
    Points,
    RowSpans,
    shorten,
)
from headstart.report._palette import BLUE, PALE, SeriesStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as DrawnAxis
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#888888",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "svg.hashsalt": "headstart",
    "text.parse_math": False,
}
WIDTH, SINGLE_WIDTH = 7.0, 5.0
INCHES = 2.9 / PANEL_HEIGHT
"""Of a pixel of the page."""
DASHES = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.5)), "dashdot": (0, (5, 2, 1, 2))}
INK = "#444444"
WARNING_LETTERS = 15
"""In an inch of a warning."""
LABEL_GAP = 0.072
"""Between the names of lines, as a share of the panel's height."""


def save_figures(figures: Mapping[str, Sequence[Panel]], folder: Path) -> list[Path]:
    """Save each figure as PNG and SVG."""
    paths = []
    for name, panels in figures.items():
        figure = draw_figure(panels)
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            write_bytes(path, render_figure(figure, kind))
            paths.append(path)
    return paths


def render_figure(figure: Figure, kind: str) -> bytes:
    """Return the file's content; without a date, so that equal numbers give equal files."""
    content = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with _style():
        figure.savefig(content, format=kind, dpi=200, metadata=metadata)
    return content.getvalue()


def draw_figure(
    panels: Sequence[Panel], *, columns: int | None = None, width: float | None = None
) -> Figure:
    """Draw panels, by default all in one row; panels with the same y axis share it."""
    from matplotlib.figure import Figure

    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    width = width or (WIDTH if columns > 1 else SINGLE_WIDTH)
    shared = len({panel.y for panel in panels}) == 1
    with _style():
        height = rows * max(_height(panel, width / columns) for panel in panels)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, columns, sharey=shared, squeeze=False).ravel()
        for place, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            _draw_panel(ax, panel, y_title=not shared or place % columns == 0)
        for place, (ax, panel) in enumerate(zip(axes, panels, strict=False), start=1):
            if place % columns == 0 or _styles([panel]) != _styles(panels[place : place + 1]):
                label_lines(ax, panel)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        for text in {panel.warning for panel in panels if panel.warning}:
            lines = fill(f"⚠ {text}", width=int(WARNING_LETTERS * width))
            figure.suptitle(lines, color="#B00020", fontsize=8.5)
    return figure


def _height(panel: Panel, width: float) -> float:
    """Return the panel's height in inches; the cells of a heat map are squares."""
    heat = any(isinstance(mark, HeatMap) for mark in panel.marks)
    return min(INCHES * panel.height, 1.15 * width) if heat else INCHES * panel.height


def _styles(panels: Sequence[Panel]) -> list[SeriesStyle]:
    return [line.style for panel in panels for line in panel.lines]


@contextmanager
def _style() -> Iterator[None]:
    """Apply the look while drawing; a letter that the font lacks is drawn as a box."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _draw_panel(ax: Axes, panel: Panel, *, y_title: bool) -> None:
    for guide in panel.guides:
        _draw_guide(ax, guide)
    for mark in panel.marks:
        _draw_mark(ax, mark)
    ax.set(title=panel.title, xlabel=panel.x.title, ylabel=panel.y.title if y_title else "")
    ax.margins(x=0.02 if panel.lines else 0.05)
    _set_axis(ax, "x", panel.x)
    _set_axis(ax, "y", panel.y)
    if panel.x.other_unit is not None:
        _add_other_unit(ax, *panel.x.other_unit)


def _set_axis(ax: Axes, name: Literal["x", "y"], axis: Axis) -> None:
    drawn: DrawnAxis = getattr(ax, f"{name}axis")
    if axis.limits is not None:
        ax.set(**{f"{name}lim": axis.limits})
    if axis.log:
        _use_log_scale(ax, name)
    if axis.whole:
        _use_whole_ticks(drawn)
    if axis.names is not None:
        rotation = 90 if name == "x" else 0
        small = len(axis.names) > 8
        drawn.set_ticks(range(len(axis.names)), axis.names)
        ax.tick_params(name, rotation=rotation, labelsize=6.5 if small else None)
        ax.grid(axis=name, visible=False)


def _use_whole_ticks(drawn: DrawnAxis) -> None:
    """Put ticks at whole numbers, written as 500, 10 k, 2 M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    drawn.set_major_locator(MaxNLocator(nbins=6, integer=True))
    drawn.set_major_formatter(EngFormatter())


def _use_log_scale(ax: Axes, name: str) -> None:
    """Make an axis logarithmic, with plain numbers; a short one also has 2 and 5 of a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set(**{f"{name}scale": "log"})
    drawn: DrawnAxis = getattr(ax, f"{name}axis")
    low, high = getattr(ax, f"get_{name}lim")()
    if high < 100 * low:
        drawn.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    drawn.set_minor_formatter(NullFormatter())


def _add_other_unit(ax: Axes, title: str, factor: float) -> None:
    """Add a second scale below the x axis."""

    def to_other(values: Any) -> Any:
        return values * factor

    def from_other(values: Any) -> Any:
        return values / factor

    below = ax.secondary_xaxis(-0.24, functions=(to_other, from_other))
    _use_whole_ticks(below.xaxis)
    below.set_xlabel(title)


def _draw_guide(ax: Axes, guide: Guide) -> None:
    look: Any = {"color": INK, "linewidth": 1} if guide.solid else {"color": "#999999"}
    look |= {} if guide.solid else {"linewidth": 0.8, "linestyle": ":"}
    if guide.x is not None:
        ax.axvline(guide.x, **look)
    elif guide.y is not None:
        ax.axhline(guide.y, **look)
    else:
        ax.axline((0, 0), slope=1, **look)


def _draw_mark(ax: Axes, mark: Mark) -> None:
    match mark:
        case Line():
            _draw_line(ax, mark)
        case Points():
            _draw_points(ax, mark)
        case RowSpans():
            rows = range(len(mark.start))
            ax.hlines(rows, mark.start, mark.end, color=mark.colour, alpha=0.45, linewidth=1.6)
        case Bars():
            look: Any = {"zorder": 2, "linewidth": 1.3} if mark.outline else {"fill": True}
            alpha = 1.0 if mark.outline else 0.75
            ax.stairs(mark.counts, mark.edges, color=mark.colour, alpha=alpha, **look)
        case Box():
            _draw_box(ax, mark)
        case HeatMap():
            _draw_heat_map(ax, mark)


def _draw_line(ax: Axes, line: Line) -> None:
    style = line.style
    ax.plot(line.x, _with_gaps(line.y), color=style.colour, linestyle=DASHES[style.dash],
            marker="o" if len(line.y) <= 15 else None, markersize=3, linewidth=1.6)  # fmt: skip
    if line.has_band:
        low, high = _with_gaps(line.low), _with_gaps(line.high)
        ax.fill_between(line.x, low, high, color=style.colour, alpha=0.1, linewidth=0)
        for side in (low, high):
            ax.plot(line.x, side, color=style.colour, alpha=0.35, linewidth=0.6)


def _with_gaps(values: Numbers) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _draw_points(ax: Axes, points: Points) -> None:
    size: Any = (points.size / 2) ** 2
    look: Any = {"s": size, "color": points.colour, "alpha": points.opacity, "linewidth": 0}
    if points.shape.startswith("hollow"):
        look = {"s": size, "facecolor": "white", "edgecolor": points.colour}
    if points.half_width is not None:
        ax.errorbar(points.x, points.y, xerr=points.half_width, fmt="none", color=points.colour,
                    capsize=3, linewidth=1.8)  # fmt: skip
    marker = "D" if points.shape.endswith("diamond") else "o"
    ax.scatter(points.x, points.y, marker=marker, zorder=3, **look)


def _draw_box(ax: Axes, box: Box) -> None:
    look: Any = {"color": box.colour, "linewidth": 1.4}
    ax.hlines(box.row, box.p10, box.p25, **look)
    ax.hlines(box.row, box.p75, box.p90, **look)
    ax.barh(box.row, box.p75 - box.p25, left=box.p25, height=0.52, facecolor="none",
            edgecolor=box.colour, linewidth=1.4)  # fmt: skip
    ax.vlines(box.p50, box.row - 0.26, box.row + 0.26, color=box.colour, linewidth=2.4)
    _draw_points(ax, box.mean_point)


def _draw_heat_map(ax: Axes, heat: HeatMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("pale to blue", [PALE, BLUE])
    image = ax.imshow([_with_gaps(row) for row in heat.values], cmap=colours)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=heat.title)


def label_lines(ax: Axes, panel: Panel) -> None:
    """Write each line's name at its right end; move names apart where they would touch.

    A line without a name, or with the name of its panel, gets none.
    """
    ends = []
    to_share = ax.transScale + ax.transLimits
    ax.get_ylim()  # settles the limits that the transformation uses
    for line in panel.lines:
        values = [value for value in line.y if value is not None]
        if values and line.style.label.lower() not in ("", panel.title.lower()):
            ends.append((float(to_share.transform((1.0, values[-1]))[1]), line.style))
    ends.sort(key=lambda end: end[0])
    for height, (_, style) in zip(
        spread_apart([end for end, _ in ends], LABEL_GAP, 1.0), ends, strict=True
    ):
        ax.annotate(shorten(style.label, 24), (1.015, height), color=style.colour,
                    xycoords="axes fraction", va="center", fontsize=8.5)  # fmt: skip


def spread_apart(heights: Sequence[float], gap: float, most: float) -> list[float]:
    """Return ascending heights at least ``gap`` apart and at most ``most``, near where they were.

    >>> spread_apart([1.0, 1.0, 5.0], gap=1.0, most=5.0)
    [1.0, 2.0, 5.0]
    """
    placed: list[float] = []
    for height in sorted(heights):
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = most
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed
