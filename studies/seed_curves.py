"""Curves of a study: the mean over seeds with its interval, as panels of a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headstart.records import half_width
from headstart.report import Axis, Line, Panel, SeriesStyle, method_styles
from studies.seed_statistics import records_of_cell
from studies.study import Record

SeedCurve = tuple[Sequence[float], Sequence[float]]
"""One seed's curve: x and y."""


def label_styles(labels: Sequence[str]) -> dict[str, SeriesStyle]:
    """Return styles; the first label is grey, because the others are compared with it."""
    return method_styles(labels, baseline=labels[0])


def mean_curve(
    records: Sequence[Record],
    cell: str,
    style: SeriesStyle,
    seed_curve: Callable[[Record], SeedCurve],
) -> Line | None:
    """Return a cell's mean over seeds with its interval; x is averaged over seeds, too."""
    by_seed = records_of_cell(records, cell)
    if not by_seed:
        return None
    curves = [seed_curve(by_seed[seed]) for seed in sorted(by_seed)]
    x, y = (np.array([curve[axis] for curve in curves], float) for axis in (0, 1))
    mean, half = y.mean(axis=0), np.array([half_width(column) or 0.0 for column in y.T])
    low, high = (mean - half, mean + half) if len(curves) > 1 else (mean[:0], mean[:0])
    return Line(style, x.mean(axis=0).tolist(), mean.tolist(), low.tolist(), high.tolist())


def curve_panels(
    parts: Sequence[tuple[str, str, Sequence[Line | None]]], y_title: str
) -> list[Panel]:
    """Return a panel for each title, name of the x axis, and lines."""
    return [
        Panel(Axis(x, whole=True), Axis(y_title), [line for line in lines if line], title)
        for title, x, lines in parts
    ]


def over_rounds(when: str = "after", by: str = "round") -> Callable[[Record], SeedCurve]:
    """Return accuracy in percent over training, against rounds or gradient evaluations."""

    def curve(record: Record) -> SeedCurve:
        entries: list[Mapping[str, Any]] = record["training"]
        return [entry[by] for entry in entries], [100 * entry[when] for entry in entries]

    return curve


def over_steps(group: str = "known") -> Callable[[Record], SeedCurve]:
    """Return accuracy in percent against adaptation steps at the end of training."""

    def curve(record: Record) -> SeedCurve:
        values = record[group]["accuracy"]
        return range(len(values)), [100 * value for value in values]

    return curve
