"""Plans keep their promise, and none with fewer rounds does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.theory import Constants
from headstart.theory._planning import ADVICE, FederationProfile, make_plan
from headstart.theory.bounds import sharpest

C = Constants(
    B=1, L=1, rho=0.1, sigma_G=0.5, sigma_H=0.5, kappa_G=0.1, kappa_H=0.1, gamma_G=0.3, gamma_H=0.3
)
SOME = FederationProfile(clients=20, participation=0.5, initial_gap=1.0)


def promise(p: Any, **changes: Any) -> float:
    options: dict[str, Any] = {
        "method": p.method, "inner_lr": p.inner_lr, "inner_steps": p.inner_steps,
        "batch_sizes": p.batch_size, "local_lr": p.local_lr, "local_steps": p.local_steps,
        "rounds": p.rounds, "participation": SOME.participation, "clients": SOME.clients,
        "initial_gap": SOME.initial_gap,
    }  # fmt: skip
    return sharpest.stationarity(C, **{**options, **changes}).total


@pytest.mark.parametrize("nu", [1, 2])
def test_the_plan_reaches_epsilon_and_one_round_less_does_not(nu: int) -> None:
    found = make_plan(C, SOME, epsilon=0.5, inner_lr=0.1, inner_steps=nu)
    assert promise(found) == pytest.approx(found.promised.total) and found.promised.total <= 0.5
    assert promise(found, rounds=found.rounds - 1) > 0.5 * (1 - 1e-6)
    assert (
        4
        * sharpest.gradient_bias(
            C, method="exact", inner_lr=0.1, inner_steps=nu, batch_sizes=found.batch_size
        )
        ** 2
        <= 0.25
    )


def test_no_other_step_size_or_number_of_local_steps_needs_clearly_fewer_rounds() -> None:
    found = make_plan(C, SOME, epsilon=0.5, inner_lr=0.1)
    for tau in (1, 2, 4, 16, 64):
        for share in np.geomspace(1e-4, 1, 60):
            limit = 1 / (10 * tau * sharpest.smoothness(C, inner_lr=0.1, inner_steps=1))
            fewer = max(1, int(found.rounds * 0.85))
            assert promise(found, local_steps=tau, local_lr=limit * share, rounds=fewer) > 0.5


@pytest.mark.parametrize("participation, power", [(1.0, 1.5), (0.1, 2.0)])
def test_rounds_grow_as_the_corollary_says_if_all_take_part(
    participation: float, power: float
) -> None:
    """K ~ ε^{−3/2}; α = 0, so that no bias is in the way.

    With some of the clients only, what the papers' theorem lacks goes with βτ, not with (βτ)²: the
    rounds that are promised then grow as ε^{−2}.
    """
    few = dataclasses.replace(SOME, participation=participation)
    plans = [make_plan(C, few, epsilon=e, inner_lr=0.0) for e in (1e-5, 1e-6)]
    assert np.log10(plans[1].rounds / plans[0].rounds) == pytest.approx(power, abs=0.1)


def test_noise_that_batches_cannot_remove_is_said() -> None:
    with pytest.raises(ConfigError, match="bias does not vanish"):
        make_plan(C, SOME, epsilon=0.01, inner_lr=0.5, method="first-order")
    with pytest.raises(ConfigError, match="epsilon"):
        make_plan(C, SOME, epsilon=0.0, inner_lr=0.1)


def test_advice_names_the_largest_term() -> None:
    found = make_plan(C, SOME, epsilon=0.5, inner_lr=0.1)
    assert found.advice() == ADVICE[found.promised.dominant]
    assert set(ADVICE) == set(found.promised.terms)
