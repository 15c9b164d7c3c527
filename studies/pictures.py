"""Curves with intervals over seeds, drawn as in the reports of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.records import half_width
from headstart.report.drawing import draw_lines, label_ends
from headstart.report.figures import style, whole_ticks
from headstart.report.lines import Line
from headstart.report.palette import COLOURS, GREY, Look
from studies.numbers import of_cell
from studies.study import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = tuple[Sequence[float], Sequence[float]]
"""One seed's curve: x and y."""


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The first grey, as what the others are measured against; then one colour each."""
    colours = [GREY, *COLOURS]
    return {label: Look(label, label, colours[i]) for i, label in enumerate(labels)}


def curve(
    records: Sequence[Record], cell: str, look: Look, points: Callable[[Record], Points]
) -> Line | None:
    """A cell's mean over seeds with its interval; x is averaged over seeds, too."""
    found = of_cell(records, cell)
    if not found:
        return None
    seeds = [points(found[seed]) for seed in sorted(found)]
    x, y = (np.array([seed[axis] for seed in seeds], float) for axis in (0, 1))
    width = [half_width(column) or 0.0 for column in y.T]
    middle = y.mean(axis=0)
    band = (middle - width, middle + width) if len(seeds) > 1 else ((), ())
    return Line(look, *(tuple(map(float, part)) for part in (x.mean(axis=0), middle, *band)))


def figure(
    parts: Sequence[tuple[str, str, Sequence[Line | None]]], *, y: str, height: float = 2.9
) -> Figure:
    """Panels, two in a row: title, name of the x axis, lines."""
    from matplotlib.figure import Figure

    columns = min(len(parts), 2)
    rows = -(-len(parts) // columns)
    with style():
        drawn = Figure(figsize=(4.6 * columns, height * rows), layout="constrained")
        axes = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for place, (ax, (title, x, lines)) in enumerate(zip(axes, parts, strict=True)):
            there = [line for line in lines if line is not None]
            draw_lines(ax, there, x, "" if place % columns else y, title)
            label_ends(ax, there)
            whole_ticks(ax.xaxis)
    return drawn


def over_rounds(when: str = "after", by: str = "round") -> Callable[[Record], Points]:
    """Accuracy in percent against rounds or gradient evaluations, as evaluated in training."""

    def points(record: Record) -> Points:
        entries: list[Mapping[str, Any]] = record["training"]
        return [entry[by] for entry in entries], [100 * entry[when] for entry in entries]

    return points


def over_steps(group: str = "known") -> Callable[[Record], Points]:
    """Accuracy in percent against adaptation steps at the end of training."""

    def points(record: Record) -> Points:
        values = record[group]["accuracy"]
        return range(len(values)), [100 * value for value in values]

    return points
