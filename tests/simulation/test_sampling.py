"""Who takes part in a round."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from headstart._simulation.sampling import choose_clients, count_active_clients
from headstart.errors import ConfigError


def test_every_set_of_clients_is_equally_likely() -> None:
    """All 15 pairs of 6, 3,000 draws; the draw is fixed, so the test is repeatable."""
    keys = jax.random.split(jax.random.key(0), 3000)
    drawn = np.asarray(jax.vmap(lambda key: choose_clients(key, 6, 2))(keys))
    counts = Counter(tuple(sorted(pair)) for pair in drawn.tolist())
    observed = [counts[pair] for pair in combinations(range(6), 2)]
    assert sum(observed) == 3000
    assert chisquare(observed).pvalue > 0.01


@pytest.mark.parametrize("clients, active", [(1, 1), (5, 5), (7, 3), (10**6, 40)])
def test_nobody_is_chosen_twice(clients: int, active: int) -> None:
    chosen = np.asarray(choose_clients(jax.random.key(1), clients, active))
    assert len(set(chosen.tolist())) == active
    assert chosen.min() >= 0 and chosen.max() < clients


@settings(max_examples=200)
@given(st.floats(0.001, 1.0), st.integers(1, 5000))
def test_participation_selects_the_nearest_number_or_says_why_not(r: float, n: int) -> None:
    if round(r * n) < 1:
        with pytest.raises(ConfigError, match="selects none; use at least"):
            count_active_clients(r, n)
    else:
        assert 1 <= count_active_clients(r, n) <= n


@pytest.mark.parametrize("participation", [0.0, -0.2, 1.01, float("nan")])
def test_participation_outside_its_range_is_refused(participation: float) -> None:
    with pytest.raises(ConfigError, match="participation="):
        count_active_clients(participation, 50)
