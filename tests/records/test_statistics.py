"""Summaries against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from headstart.records import describe, half_width, paired_difference, worse_beyond_chance


def test_half_width_by_hand() -> None:
    """n = 4, s² = 5/3, t(0.975, 3) = 3.1824 (any t table)."""
    assert half_width([1, 2, 3, 4]) == pytest.approx(3.1824463 * np.sqrt(5 / 3) / 2, rel=1e-6)
    assert half_width([1.0]) is None


def test_coverage_is_what_it_says() -> None:
    """The interval holds the true mean in 95 % of 4,000 samples of 5 (± 3 standard errors)."""
    samples = np.random.default_rng(0).normal(size=(4000, 5))
    inside = [abs(s.mean()) <= half_width(s) for s in samples]
    assert np.mean(inside) == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 4000))


def test_describe_names_the_worst_client_and_the_deciles() -> None:
    summary = describe(np.arange(11) / 10).to_table()
    assert summary["min"] == 0 and summary["max"] == 1 and summary["count"] == 11
    assert [summary[f"p{q}"] for q in range(10, 100, 10)] == pytest.approx(np.arange(1, 10) / 10)


@pytest.mark.parametrize(
    "mine, base, verdict",
    [
        ([0.9, 0.91, 0.92], [0.8, 0.81, 0.82], "better"),
        ([0.7, 0.71, 0.72], [0.8, 0.812, 0.82], "worse"),
        ([0.9, 0.7, 0.8], [0.8, 0.8, 0.8], "no difference shown"),
        ([0.9], [0.8], "one seed: undecided"),
    ],
)
def test_a_difference_is_claimed_only_if_it_is_there(
    mine: list[float], base: list[float], verdict: str
) -> None:
    assert paired_difference(mine, base).verdict == verdict


def test_beyond_chance_is_the_exact_one_sided_sign_test() -> None:
    for better in range(12):
        for worse in range(25):
            expected = worse + better > 0 and (
                binomtest(worse, worse + better, 0.5, alternative="greater").pvalue <= 0.025
            )
            assert worse_beyond_chance(better, worse) == expected, (better, worse)
