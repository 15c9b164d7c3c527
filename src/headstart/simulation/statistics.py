"""Honest summaries of many clients and several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.metric import Direction

CONFIDENCE = 0.95


def describe(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Mean, spread, extremes and deciles; ``ci95`` is half the width of the mean's interval.

    >>> summary = describe([0.5, 0.75, 1.0])
    >>> summary["mean"], round(summary["ci95"], 3), summary["min"]
    (0.75, 0.621, 0.5)
    """
    v = np.asarray(values, float)
    deciles = {f"p{q}": float(np.percentile(v, q)) for q in range(10, 100, 10)}
    return {
        "count": len(v),
        "mean": float(np.mean(v)),
        "std": float(np.std(v, ddof=1)) if len(v) > 1 else 0.0,
        "ci95": half_width(v),
        "min": float(np.min(v)),
        **deciles,
        "max": float(np.max(v)),
    }


def half_width(values: Sequence[float] | np.ndarray) -> float | None:
    """Half of the 95 % confidence interval of the mean (Student's t); None for a single value."""
    from scipy.stats import t

    v = np.asarray(values, float)
    if len(v) < 2:
        return None
    return float(t.ppf(0.5 + CONFIDENCE / 2, len(v) - 1) * np.std(v, ddof=1) / np.sqrt(len(v)))


def paired(
    values: Sequence[float], baseline: Sequence[float], direction: Direction = "higher"
) -> dict[str, Any]:
    """The mean difference to a baseline over the same seeds, with its confidence interval.

    ``direction`` says which differences are good.
    """
    difference = np.asarray(values, float) - np.asarray(baseline, float)
    width = half_width(difference)
    mean = float(np.mean(difference))
    return {
        "mean": mean,
        "ci95": width,
        "differences": difference.tolist(),
        "verdict": _verdict(mean if direction == "higher" else -mean, width),
    }


def _verdict(mean: float, width: float | None) -> str:
    if width is None:
        return "one seed: undecided"
    if abs(mean) <= width:
        return "no difference shown"
    return "better" if mean > 0 else "worse"
