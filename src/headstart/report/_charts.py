"""What a chart shows, as plain data; nothing is drawn here.

A :class:`Chart` has one or more views, a view has panels side by side, a panel has two axes and
marks. :mod:`headstart.report._plotly_backend` draws panels for the page,
:mod:`headstart.report._matplotlib_backend` for papers. Texts are plain: back ends escape them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from headstart.report._palette import SeriesStyle

Numbers = Sequence[float | None]
"""None where there is no number."""
Hover = Sequence[str]
"""What is said of one point: a heading, then lines."""
Shape = Literal["dot", "hollow dot", "diamond", "hollow diamond"]
PANEL_HEIGHT = 340


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    title: str = ""
    limits: tuple[float, float] | None = None
    """By default what the marks need."""
    names: tuple[str, ...] | None = None
    """Names at 0, 1, 2 … instead of numbers, some with a second line; no ticks at all if empty."""
    whole: bool = False
    """Ticks at whole numbers only."""
    log: bool = False
    other_unit: tuple[str, float] | None = None
    """For papers, a second scale: its title, and how many of its units one unit is."""


@dataclass(frozen=True)
class Line:
    """A line, with a band around it where ``low`` and ``high`` are given."""

    style: SeriesStyle
    x: Sequence[float]
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()
    texts: Sequence[str] = ()
    """What is said of each point after the line's name."""

    @property
    def has_band(self) -> bool:
        """Whether any point has an interval."""
        return any(value is not None for value in self.low)


@dataclass(frozen=True)
class Points:
    """Single points, with a horizontal interval where ``half_width`` is given."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    size: float
    hovers: Sequence[Hover]
    opacity: float = 1.0
    shape: Shape = "dot"
    half_width: float | None = None
    key: str = ""
    """The series they belong to, if it can be hidden."""


@dataclass(frozen=True)
class RowSpans:
    """In rows 0, 1, 2 … a line from ``start`` to ``end``."""

    start: Sequence[float]
    end: Sequence[float]
    colour: str


@dataclass(frozen=True)
class Bars:
    """How many values lie between neighbouring edges."""

    label: str
    edges: Sequence[float]
    counts: Sequence[int]
    colour: str
    outline: bool = False
    """For papers: drawn as an outline, as what filled bars are compared with."""


@dataclass(frozen=True)
class Box:
    """The middle half of some values with their median, deciles as whiskers, and their mean."""

    row: int
    p10: float
    p25: float
    p50: float
    p75: float
    p90: float
    mean: float
    colour: str
    key: str
    hover: Hover

    @property
    def mean_point(self) -> Points:
        """The mean, as a point above the box."""
        return Points(
            [self.mean], [self.row], self.colour, 10, [self.hover], shape="hollow diamond",
            key=self.key,
        )  # fmt: skip


@dataclass(frozen=True)
class HeatMap:
    """A number for each row and column, as colour; ``title`` names what the colour means."""

    values: Sequence[Numbers]
    texts: Sequence[Sequence[str]]
    title: str


Mark = Line | Points | RowSpans | Bars | Box | HeatMap


@dataclass(frozen=True)
class Guide:
    """A thin line across the panel at ``x`` or ``y``; without either, the diagonal."""

    x: float | None = None
    y: float | None = None
    solid: bool = False


@dataclass(frozen=True)
class Panel:
    """Two axes and what is drawn between them."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    guides: Sequence[Guide] = ()
    height: float = PANEL_HEIGHT
    """In pixels of the page."""
    warning: str = ""
    """Why its numbers must not be trusted."""

    @property
    def lines(self) -> list[Line]:
        """The lines among the marks."""
        return [mark for mark in self.marks if isinstance(mark, Line)]


@dataclass(frozen=True)
class View:
    """One of several ways to look at a chart: panels side by side."""

    name: str
    panels: Sequence[Panel]
    figure: str | None = None
    """The file it is saved as for papers; views with the same file share it."""


@dataclass(frozen=True)
class Chart:
    """A chart of the page with its caption; series in ``legend`` can be hidden there."""

    kind: ClassVar = "chart"
    key: str
    title: str
    caption: str
    views: Sequence[View]
    legend: Sequence[SeriesStyle] = ()


def figures_of(charts: Sequence[Chart]) -> Mapping[str, Sequence[Panel]]:
    """Return the panels of every figure for papers, by file name."""
    figures: dict[str, list[Panel]] = {}
    for view in (view for chart in charts for view in chart.views):
        if view.figure is not None and view.panels:
            figures.setdefault(view.figure, []).extend(view.panels)
    return figures


def add_warning(charts: Sequence[Chart], warning: str) -> list[Chart]:
    """Return the charts with a warning on every panel, except those of the training loss."""

    def warn(view: View) -> View:
        panels = [p if "loss" in p.y.title else replace(p, warning=warning) for p in view.panels]
        return replace(view, panels=panels)

    return [replace(chart, views=[warn(view) for view in chart.views]) for chart in charts]


def shorten(text: str, most: int = 18) -> str:
    """Return a name that fits beside an axis, on one line.

    >>> shorten("a rather long client name", 12)
    'a rather lo…'
    """
    line = " ".join(text.split()) or "?"
    return line if len(line) <= most else line[: most - 1] + "…"
