"""A recommendation keeps to its budget and comes from valid candidates."""

from __future__ import annotations

from typing import Any

import pytest

import headstart as hs
from headstart._experiments.configuration import Experiment, build_algorithm
from headstart._experiments.recommendation import (
    all_candidates,
    describe_method,
    fedavg_candidates,
    gradient_budget,
    learned_rates_candidates,
    recommend_for_experiment,
    rounds_within,
)
from headstart.errors import ConfigError, DataError

TABLE: dict[str, Any] = {
    "participation": 0.5,
    "rounds": 40,
    "data": {"source": "digits", "partition": "iid", "clients": 13, "new_clients": 1,
             "own_labels": True},
    "model": {"name": "logistic"},
    "algorithm": {"name": "per-fedavg", "local_steps": 2, "batch_size": 5, "weights": "examples",
                  "random_iterate": True},
    "evaluation": {"adapt_steps": 2},
}  # fmt: skip


def test_every_candidate_is_an_algorithm_and_no_two_are_equal() -> None:
    tables = all_candidates(3)
    built = [build_algorithm(table) for table in tables]
    assert len(built) == len({repr(each) for each in built}) == 20
    assert all(table["inner_steps"] == 2 for table in learned_rates_candidates(2))


def test_clients_that_do_not_adapt_get_no_learned_rates() -> None:
    assert all_candidates(0) == fedavg_candidates()


def test_the_recommended_experiment_keeps_to_the_budget() -> None:
    """Batch size and weights are the experiment's; what only its own algorithm had is gone."""
    experiment = Experiment.from_table(TABLE)
    tries = [*fedavg_candidates()[1:3], learned_rates_candidates(2)[1]]
    said: list[str] = []
    found = recommend_for_experiment(experiment, budget=1200, candidates=tries, say=said.append)
    best = found.experiment
    assert best.algorithm["batch_size"] == 5 and best.algorithm["weights"] == "examples"
    assert not best.algorithm["random_iterate"]
    spent = gradient_budget(best)
    assert spent <= 1200 < spent * (best.rounds + 1) / best.rounds
    assert found.search.spent <= 6 * 1200 and found.search.goal == "new"
    assert len(found.search.trials) == 3 and len(found.search.validation_clients) == 3
    assert found.describe()[0].startswith("Recommended: ")
    assert found.to_table()["rounds"] == best.rounds
    again = recommend_for_experiment(experiment, budget=1200, candidates=tries)
    assert again.experiment == best
    assert not any("max_gradient_norm" in line for line in said)  # the same for all candidates


def test_candidates_whose_round_is_too_dear_are_left_out() -> None:
    """Six clients with 50 local steps each need 300 gradients, more than 6 · 400 / (3 · 4)."""
    experiment = Experiment.from_table(TABLE)
    dear = {**fedavg_candidates()[1], "local_steps": 50}
    said: list[str] = []
    found = recommend_for_experiment(
        experiment, budget=400, candidates=[*fedavg_candidates()[:3], dear], say=said.append
    )
    assert len(found.search.trials) == 3
    assert said[0].startswith("too dear for 400 gradients: FedAvg with 50 local steps")


def test_the_budget_is_the_experiments_unless_stated() -> None:
    experiment = Experiment.from_table(TABLE)
    assert gradient_budget(experiment) == 40 * 6 * 2 * 4
    assert rounds_within(experiment, 40 * 6 * 2 * 4) == 40
    assert rounds_within(experiment, 1) == 1


@pytest.mark.parametrize(
    "table, words",
    [
        (fedavg_candidates()[0],
         "FedAvg with 1 local step of β = 0.5, Adam at the server (0.01), weight decay "
         "0.01, then adaptation to all examples with α = 0.03"),
        (learned_rates_candidates(3)[6],
         "Per-FedAvg (first-order, ν = 3) with 1 local step of β = 0.2, Adam at the server (0.01), "
         "rates learned per-array from α = 0.1, losses before the last step counting 0.3, "
         "adaptation to all examples"),
        ({"name": "per-fedavg", "method": "exact", "inner_steps": 1, "local_steps": 2,
          "local_lr": 0.1, "inner_lr": 0.5},
         "Per-FedAvg (exact, ν = 1) with 2 local steps of β = 0.1, α = 0.5"),
    ],
)  # fmt: skip
def test_methods_are_described_in_words(table: Any, words: str) -> None:
    assert describe_method(table) == words


def test_from_python_the_same_clients_get_the_same_recommendation() -> None:
    """Objects without a name serve too; the algorithm and rounds are ready to be trained."""
    experiment = Experiment.from_table({
        **TABLE, "algorithm": {"name": "fedavg", "batch_size": 5},
    })  # fmt: skip
    tries = [*fedavg_candidates()[1:3], learned_rates_candidates(2)[1]]
    expected = recommend_for_experiment(experiment, budget=1200, candidates=tries)
    data = experiment.build_data()
    model = hs.models.from_functions(*_unnamed(hs.models.logistic()))
    found = hs.recommend(
        data, model, budget=1200, adapt_steps=2, batch_size=5, candidates=tries, seed=0
    )
    assert found.search.validation_clients == expected.search.validation_clients
    assert [t.seen for t in found.search.trials] == [t.seen for t in expected.search.trials]
    assert found.experiment.algorithm == expected.experiment.algorithm
    assert found.rounds == expected.rounds and found.algorithm == expected.algorithm
    with pytest.raises(ConfigError, match="budget=0 must be at least 1"):
        hs.recommend(data, model, budget=0)
    with pytest.raises(DataError, match="give a FederatedDataset"):
        hs.recommend([1, 2], model, budget=10)  # type: ignore[arg-type]


def _unnamed(model: Any) -> tuple[Any, Any]:
    """The same model as two functions, which no experiment file can name."""
    return model.init, model.apply
