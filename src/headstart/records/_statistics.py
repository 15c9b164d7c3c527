"""Statistics over clients and over seeds: one interval and one paired verdict for all reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import SerializerFunctionWrapHandler, model_serializer

from headstart._metric import Direction, Metric
from headstart.records._base import JsonTable, Number, Record

CONFIDENCE = 0.95
Verdict = Literal["better", "worse", "no difference shown", "one seed: undecided", "failed"]
BETTER: Verdict = "better"
"""The verdict on a difference in the right direction whose interval excludes zero."""
WORSE: Verdict = "worse"
"""The verdict on a difference in the wrong direction whose interval excludes zero."""
NOT_SHOWN: Verdict = "no difference shown"
"""The verdict on a difference whose interval includes zero."""
UNDECIDED: Verdict = "one seed: undecided"
"""The verdict on a difference without an interval."""
FAILED: Verdict = "failed"
"""The verdict on a comparison with a run that failed."""


class Statistic(Record):
    """A mean and what surrounds it; only what was computed is stored.

    ``ci95`` is half the width of the mean's 95 % confidence interval (Student's t). Over clients
    there are deciles and extremes; over seeds there are the single values.
    """

    count: int | None = None
    mean: Number = None
    std: Number = None
    ci95: Number = None
    min: Number = None
    p10: Number = None
    p20: Number = None
    p30: Number = None
    p40: Number = None
    p50: Number = None
    p60: Number = None
    p70: Number = None
    p80: Number = None
    p90: Number = None
    max: Number = None
    values: tuple[Number, ...] = ()

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> JsonTable:
        table: JsonTable = handler(self)
        return {name: table[name] for name in table if name in self.model_fields_set}

    def tail(self, metric: Metric) -> float | None:
        """Return the value that one client in ten does worse than."""
        return self.p10 if metric.direction == "higher" else self.p90

    def worst(self, metric: Metric) -> float | None:
        """Return the worst client's value."""
        return self.min if metric.direction == "higher" else self.max


class PairedDifference(Record):
    """The mean difference to a baseline over the same seeds, with its 95 % interval."""

    mean: float
    ci95: Number = None
    differences: tuple[Number, ...] = ()
    verdict: str = UNDECIDED


def describe(values: Sequence[float] | np.ndarray) -> Statistic:
    """Describe one value per client: mean, standard deviation, interval, extremes and deciles.

    >>> summary = describe([0.5, 0.75, 1.0])
    >>> summary.mean, round(summary.ci95, 3), summary.min
    (0.75, 0.621, 0.5)
    """
    v = np.asarray(values, float)
    deciles = {f"p{q}": float(np.percentile(v, q)) for q in range(10, 100, 10)}
    return Statistic(
        count=len(v),
        mean=float(np.mean(v)),
        std=float(np.std(v, ddof=1)) if len(v) > 1 else 0.0,
        ci95=half_width(v),
        min=float(np.min(v)),
        max=float(np.max(v)),
        **deciles,
    )


def describe_defined(values: np.ndarray) -> Statistic:
    """Describe the values that are finite; a metric may be undefined for some clients."""
    defined = values[np.isfinite(values)]
    if len(defined):
        return describe(defined)
    return Statistic(**dict.fromkeys(describe([0.0]).model_fields_set, None) | {"count": 0})


def half_width(values: Sequence[float] | np.ndarray) -> float | None:
    """Return half of the 95 % confidence interval of the mean (Student's t).

    None for a single value: it says nothing about its spread.
    """
    from scipy.stats import t

    v = np.asarray(values, float)
    if len(v) < 2:
        return None
    return float(t.ppf(0.5 + CONFIDENCE / 2, len(v) - 1) * np.std(v, ddof=1) / np.sqrt(len(v)))


def worse_beyond_chance(better: int, worse: int) -> bool:
    """Return whether an exact one-sided sign test at 2.5 % says that a model is worse.

    Of the examples that two models answer differently, the second is worse on ``worse`` and better
    on ``better``. If neither were better, worse ~ Binomial(better + worse, ½).

    >>> worse_beyond_chance(better=0, worse=5), worse_beyond_chance(better=0, worse=6)
    (False, True)
    """
    from scipy.stats import binom

    return bool(binom.sf(worse - 1, better + worse, 0.5) <= (1 - CONFIDENCE) / 2)


def over_seeds(values: Sequence[float | None]) -> Statistic:
    """Describe one value per seed; without a mean if one of them is missing.

    >>> over_seeds([0.5, 0.7, 0.9]).ci95  # t(0.975; 2) · 0.2 / √3
    0.496...
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Statistic(mean=None, ci95=None, values=tuple(values))
    return Statistic(mean=float(np.mean(known)), ci95=half_width(known), values=tuple(known))


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if a value is missing."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def paired_difference(
    values: Sequence[float], baseline: Sequence[float], direction: Direction = "higher"
) -> PairedDifference:
    """Compare values with a baseline's for the same seeds; ``direction`` says what is better."""
    difference = np.asarray(values, float) - np.asarray(baseline, float)
    mean, width = float(np.mean(difference)), half_width(difference)
    return PairedDifference(
        mean=mean,
        ci95=width,
        differences=tuple(difference.tolist()),
        verdict=verdict_of(mean, width, direction),
    )


def verdict_of(mean: float, half_width: float | None, direction: Direction = "higher") -> Verdict:
    """Call a difference better or worse only if its 95 % interval excludes zero.

    >>> verdict_of(0.02, 0.01), verdict_of(0.02, 0.01, "lower"), verdict_of(0.02, 0.03)
    ('better', 'worse', 'no difference shown')
    """
    if half_width is None:
        return UNDECIDED
    if abs(mean) <= half_width:
        return NOT_SHOWN
    return BETTER if (mean > 0) == (direction == "higher") else WORSE
