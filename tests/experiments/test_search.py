"""Successive halving keeps to its budget and finds what is better."""

from __future__ import annotations

from typing import Any

import pytest

from headstart._experiments.configuration import Experiment
from headstart._experiments.search import Trial, candidate_settings, search
from headstart.errors import ConfigError, DivergedError

TABLE: dict[str, Any] = {
    "participation": 0.5,
    "data": {"source": "digits", "partition": "iid", "clients": 6, "new_clients": 1},
    "model": {"name": "logistic"},
    "algorithm": {"local_steps": 1, "batch_size": 5, "inner_lr": 0.003, "local_lr": 0.003},
    "evaluation": {"adapt_steps": 1},
}


def options(inner_lr: float, local_lr: float) -> dict[str, Any]:
    return {
        "method": "exact", "inner_steps": 1, "local_steps": 1, "inner_lr": inner_lr,
        "local_lr": local_lr,
    }  # fmt: skip


def test_the_best_setting_wins_within_the_budget() -> None:
    experiment = Experiment.from_table(TABLE)
    tries = [options(0.01, rate) for rate in (0.0031, 0.0032, 0.0033, 0.0034, 0.3, 1e38)]
    said: list[str] = []
    found = search(experiment, budget=3000, candidates=tries, seed=1, say=said.append)
    assert found.best.algorithm["local_lr"] == 0.3
    assert found.spent <= 3000 * 1.2
    by_rate = {trial.options["local_lr"]: trial for trial in found.trials}
    assert by_rate[1e38].diverged or (by_rate[1e38].value or 0) < 0.5
    assert len(by_rate[0.3].seen) == len(said) > 1
    assert max(len(trial.seen) for rate, trial in by_rate.items() if rate != 0.3) < len(said)
    frontier = found.frontier()
    assert [cost for cost, _, _ in frontier] == sorted({cost for cost, _, _ in frontier})
    accuracies = [accuracy for _, accuracy, _ in frontier]
    assert accuracies == sorted(accuracies)


def test_the_experiments_own_options_take_part_and_draws_repeat() -> None:
    experiment = Experiment.from_table(TABLE)
    one, again = (search(experiment, budget=400, most=3, seed=5) for _ in range(2))
    assert one.trials[0].options["inner_lr"] == 0.003
    assert [t.options for t in one.trials] == [t.options for t in again.trials]
    assert [t.seen for t in one.trials] == [t.seen for t in again.trials]


def test_a_setting_that_learns_nothing_is_not_chosen() -> None:
    """A failed trial ranks below any that is of use, whatever its accuracy."""
    useful, failed, diverged = Trial({}, [(1, 0.3)]), Trial({}, [(1, 0.9)], failed=True), Trial({})
    diverged.diverged = True
    assert max((useful, failed, diverged), key=lambda trial: trial.rank) is useful
    model = {"name": "mlp", "hidden": [16, 16]}
    algorithm = {**TABLE["algorithm"], "local_lr": 1e3}
    hopeless = Experiment.from_table({**TABLE, "model": model, "algorithm": algorithm})
    with pytest.raises(DivergedError, match="every setting diverged or learned nothing"):
        search(hopeless, budget=400, candidates=[options(0.003, 1e4)], most=2)


def test_what_is_tried() -> None:
    tried = candidate_settings(adapt_steps=3)
    assert {t["inner_steps"] for t in tried} == {1, 3}
    assert len({tuple(t.items()) for t in tried}) == len(tried)


def test_too_small_a_budget_and_other_algorithms_are_refused() -> None:
    with pytest.raises(ConfigError, match="budget=10 gradient evaluations is too small for 4"):
        search(Experiment.from_table(TABLE), budget=10, most=4)
    with pytest.raises(ConfigError, match="only per-fedavg"):
        search(Experiment.from_table({**TABLE, "algorithm": {"name": "fedavg"}}), budget=10**6)
