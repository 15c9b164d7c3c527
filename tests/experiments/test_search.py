"""Successive halving keeps to its budget and finds what is better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart._experiments.configuration import Experiment
from headstart._experiments.search import (
    Goal,
    StageScore,
    Trial,
    candidate_settings,
    choose_validation_splits,
    search,
)
from headstart._simulation.simulation import Simulation
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError

TABLE: dict[str, Any] = {
    "participation": 0.5,
    "data": {"source": "digits", "partition": "iid", "clients": 6, "new_clients": 1},
    "model": {"name": "logistic"},
    "algorithm": {
        "local_steps": 1,
        "batch_size": 5,
        "inner_lr": 0.003,
        "local_lr": 0.003,
        "max_gradient_norm": float("inf"),
    },
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
    found = search(experiment, budget=3000, candidates=tries, goal="known", say=said.append)
    assert found.best.algorithm["local_lr"] == 0.3 and found.winner.discarded is None
    assert found.spent == sum(trial.spent for trial in found.trials) <= 3000
    by_rate = {trial.options["local_lr"]: trial for trial in found.trials}
    assert by_rate[1e38].discarded and by_rate[1e38].diverged
    assert sorted(len(trial.seen) for trial in found.trials) == [0, 1, 1, 1, 1, 2, 2]
    losers = [trial for trial in found.trials if trial is not found.winner]
    assert all(trial.discarded and trial.discarded.startswith("stage ") for trial in losers)
    assert any("stage 1 of 2, 7 of 7: " in line for line in said)
    assert "1 of 2 candidates stay, best" in said[-1]
    frontier = found.frontier()
    assert [cost for cost, _, _ in frontier] == sorted({cost for cost, _, _ in frontier})
    accuracies = [accuracy for _, accuracy, _ in frontier]
    assert accuracies == sorted(accuracies)


def test_the_experiments_own_options_take_part_and_draws_repeat() -> None:
    experiment = Experiment.from_table(TABLE)
    one, again = (search(experiment, budget=2000, most=3, seed=5) for _ in range(2))
    assert one.trials[0].options["inner_lr"] == 0.003
    assert [t.options for t in one.trials] == [t.options for t in again.trials]
    assert [t.seen for t in one.trials] == [t.seen for t in again.trials]


def test_a_setting_that_learns_nothing_is_not_chosen() -> None:
    """A failed trial ranks below any that is of use, whatever its accuracy."""
    low, high = StageScore(1, 0.3, {}), StageScore(1, 0.9, {})
    useful, failed = Trial({}, seen=[low]), Trial({}, seen=[high], failures=("at chance",))
    diverged = Trial({}, seen=[high], diverged="not finite")
    assert max((useful, failed, diverged), key=lambda trial: trial.rank) is useful
    model = {"name": "mlp", "hidden": [16, 16]}
    algorithm = {**TABLE["algorithm"], "local_lr": 1e3}
    hopeless = Experiment.from_table({**TABLE, "model": model, "algorithm": algorithm})
    with pytest.raises(DivergedError, match="every setting diverged or learned nothing"):
        search(hopeless, budget=400, candidates=[options(0.003, 1e4)], most=2)


def test_a_setting_that_kills_units_is_discarded_with_the_reason() -> None:
    model = {"name": "mlp", "hidden": [16, 16], "activation": "relu"}
    table = {**TABLE, "model": model, "algorithm": {"name": "fedavg", "batch_size": 20}}
    dead = {"local_lr": 4.0, "local_steps": 5, "max_gradient_norm": float("inf")}
    found = search(Experiment.from_table(table), budget=1200, candidates=[dead], goal="known")
    assert found.winner is found.trials[0] and found.best.algorithm["local_lr"] == 0.05
    reason = found.trials[1].discarded
    assert reason is not None and "same answer to every input" in reason


def test_one_search_may_range_over_methods_with_equal_gradients() -> None:
    experiment = Experiment.from_table({**TABLE, "label": "mine"})
    tries: list[dict[str, Any]] = [
        {"name": "fedavg", "local_steps": 5, "local_lr": 0.1},
        {"name": "fedavg", "local_steps": 2, "local_lr": 0.1, "server_optimizer": "momentum"},
        {"name": "per-fedavg", "method": "first-order", "local_lr": 0.1, "local_steps": 2},
        {"name": "local", "local_lr": 0.1},
        {"max_gradient_norm": 1.0, "local_lr": 0.1},
    ]
    found = search(experiment, budget=6000, candidates=tries, goal="known")
    assert len(found.trials) == 6 and found.best.label == "mine"
    assert found.trials[0].options["name"] == "per-fedavg"
    for stage in (0, 1):
        costs = [t.seen[stage].gradients for t in found.trials if len(t.seen) > stage]
        assert max(costs) - min(costs) <= 0.1 * max(costs)
    assert found.best.algorithm["batch_size"] == 5


def test_the_last_candidates_are_compared_with_several_seeds() -> None:
    experiment = Experiment.from_table(TABLE)
    tries = [options(0.01, rate) for rate in (0.01, 0.3)]
    cases: list[tuple[int, Goal]] = [(1, "known"), (3, "known"), (3, "new")]
    for seeds, goal in cases:
        found = search(experiment, budget=4000, candidates=tries, goal=goal, final_seeds=seeds)
        splits = 3 if goal == "new" else 1
        for trial in found.trials:
            assert trial.spent == seeds * splits * trial.seen[-1].gradients
        assert 0.8 * 4000 < found.spent <= 4000


@given(known=st.integers(2, 400), seed=st.integers(0, 3))
def test_validation_clients_are_three_or_more_and_a_quarter_at_most(known: int, seed: int) -> None:
    splits = choose_validation_splits(known, seed)
    everyone = [client for split in splits for client in split]
    assert len(set(everyone)) == len(everyone) >= min(3, known)
    assert set(everyone) <= set(range(known))
    assert all(1 <= len(split) <= max(1, known / 4) for split in splits)
    assert len(splits) == 1 or known < 12
    most = known // len(splits[0])
    every = choose_validation_splits(known, seed, splits=most)
    assert len({client for split in every for client in split}) == most * len(splits[0])
    assert every[: len(splits)] == splits
    with pytest.raises(ConfigError, match=f"validation_splits={most + 1} must lie between 1"):
        choose_validation_splits(known, seed, splits=most + 1)


def test_settings_for_new_clients_are_judged_by_clients_kept_out_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By rows: nothing that is held out, of a new client, or (in training) to validate is there."""
    experiment = Experiment.from_table(TABLE)
    whole = experiment.build_data()
    used: list[FederatedDataset] = []
    create = Simulation.__init__

    def record(self: Simulation, data: FederatedDataset, *args: Any, **options: Any) -> None:
        used.append(data)
        create(self, data, *args, **options)

    monkeypatch.setattr(Simulation, "__init__", record)
    found = search(experiment, budget=2000, candidates=[options(0.01, 0.3)])
    assert found.goal == "new" and len(found.validation_clients) == 3
    assert set(found.winner.seen[-1].groups) == {"known", "new"}
    assert found.winner.value == found.winner.seen[-1].groups["new"]
    allowed = {
        (client, row.tobytes())
        for client in range(whole.known_clients)
        for row in whole.client(client).x_train
    }
    for data in used:
        assert data.new_clients == 1
        for client in range(data.clients):
            part = data.client(client)
            rows = [*part.x_train, *part.x_test]
            assert all((int(part.name), row.tobytes()) in allowed for row in rows)
    names = {data.name(data.clients - 1) for data in used}
    assert names == set(found.validation_clients)


def test_training_does_not_depend_on_validation_clients() -> None:
    experiment = Experiment.from_table(TABLE)
    data = experiment.build_data().for_tuning(validation_clients=[1])
    x = np.array(data.x)
    x[int(data.offsets[data.known_clients]) :] = 0
    models = []
    for each in (data, replace(data, x=x)):
        model, algorithm = experiment.build_model(), experiment.build_algorithm()
        simulation = Simulation(each, model, algorithm, participation=0.5, seed=0)
        models.append(simulation.advance(simulation.start(), 5).state)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *models))


def test_the_goal_decides_what_is_compared() -> None:
    experiment = Experiment.from_table(TABLE)
    tries = [options(0.01, 0.3)]
    result = search(experiment, budget=2000, candidates=tries, goal="both", validation_splits=5)
    assert sorted(result.validation_clients) == ["0", "1", "2", "3", "4"]
    both = result.winner.seen[-1]
    assert both.value == pytest.approx((both.groups["known"] + both.groups["new"]) / 2)
    alone = {**TABLE["data"], "new_clients": 0}
    known = search(Experiment.from_table({**TABLE, "data": alone}), budget=2000, candidates=tries)
    assert known.goal == "known" and known.validation_clients == ()
    with pytest.raises(ConfigError, match="goal='nobody'"):
        search(experiment, budget=2000, goal="nobody")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="1 known client cannot be kept out"):
        choose_validation_splits(1, 0)


def test_what_is_tried() -> None:
    tried = candidate_settings(adapt_steps=3)
    assert {t["inner_steps"] for t in tried} == {1, 3}
    assert len({tuple(t.items()) for t in tried}) == len(tried)
    averaging = Experiment.from_table({**TABLE, "algorithm": {"name": "fedavg", "batch_size": 5}})
    found = search(averaging, budget=3000, most=2, goal="known")
    assert set(found.trials[1].options) == {"local_steps", "inner_lr", "local_lr"}


def test_too_small_a_budget_and_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="budget=10 gradient evaluations is too small for 4"):
        search(Experiment.from_table(TABLE), budget=10, most=4)
    with pytest.raises(ConfigError, match="method"):
        search(
            Experiment.from_table(TABLE), budget=10**6,
            candidates=[{"name": "fedavg", "method": "exact"}],
        )  # fmt: skip
