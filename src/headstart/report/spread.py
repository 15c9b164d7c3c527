"""The few statistics a report works out itself: over seeds, and over pooled clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headstart.metric import Metric
from headstart.report.records import Stat


def over_seeds(values: Sequence[float | None]) -> Stat:
    """Mean and 95 % interval (Student's t) of one value per seed; None if one is missing.

    >>> over_seeds([0.5, 0.7, 0.9]).ci95  # t(0.975; 2) · 0.2 / √3
    0.496...
    """
    from scipy.stats import t

    known = [v for v in values if v is not None]
    if not known or len(known) < len(values):
        return Stat(mean=None)
    width = None
    if len(known) > 1:
        width = float(t.ppf(0.975, len(known) - 1) * np.std(known, ddof=1) / math.sqrt(len(known)))
    return Stat(mean=float(np.mean(known)), ci95=width, values=tuple(known))


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, or None if one is missing."""
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def worst_of(values: Sequence[float | None], metric: Metric) -> float | None:
    """The worst of those that are there."""
    known = [v for v in values if v is not None]
    return min(known, key=lambda v: metric.gain(v, 0.0), default=None)


@dataclass(frozen=True)
class Box:
    """Where clients lie: 10th, 25th, 50th, 75th and 90th percentile, and the mean."""

    p10: float
    p25: float
    p50: float
    p75: float
    p90: float
    mean: float


def box(values: Sequence[float]) -> Box:
    """The box of at least one value."""
    cuts = np.percentile(np.asarray(values, float), (10, 25, 50, 75, 90))
    return Box(*map(float, (*cuts, np.mean(values))))


def counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    """How many values lie between neighbouring edges; the last bin holds its upper edge."""
    return [int(n) for n in np.histogram(np.asarray(values, float), bins=list(edges))[0]]


def thinned(count: int, most: int) -> list[int]:
    """At most so many positions out of ``count``, evenly spread, first and last included.

    >>> thinned(5, 9), thinned(9, 3)
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def floor_ten(values: Sequence[float]) -> float:
    """The ten below the smallest value.

    >>> floor_ten([47.0, 93.0]), floor_ten([])
    (40.0, 0.0)
    """
    return max(0.0, (min(values, default=0.0) - 2) // 10 * 10)
