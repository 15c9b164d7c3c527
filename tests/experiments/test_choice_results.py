"""Clients' own numbers of steps, and few examples: records, personalisation, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart._experiments import Experiment, load_run, run_experiment
from headstart._experiments.personalization import personalize_client, personalize_file
from headstart._simulation.step_choice import FOLDS
from headstart.errors import ConfigError
from headstart.records import (
    ChosenSteps,
    RunSummary,
    is_comparison,
    read_run,
    worse_beyond_chance,
)
from headstart.report import make_report

ALGORITHMS = ("per-fedavg", "apfl", "local")
STEPS = 3


@pytest.fixture(scope="module", params=ALGORITHMS)
def folder(
    request: pytest.FixtureRequest, clients: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run whose clients chose, with a step so large that some chose fewer."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run_experiment(Experiment.from_table(make_table(clients, request.param)), path)
    return path


def make_table(clients: Path, algorithm: str = "per-fedavg", **evaluation: Any) -> dict[str, Any]:
    return {
        "rounds": 8,
        "data": {"path": str(clients), "new_clients": 2},
        "model": {"name": "logistic"},
        "algorithm": {"name": algorithm, "local_steps": 2, "batch_size": 5, "inner_lr": 1.0},
        "evaluation": {"every": 8, "adapt_steps": STEPS, "curve_steps": STEPS, **evaluation},
    }


def test_personalisation_takes_the_steps_that_the_evaluation_chose(folder: Path) -> None:
    run = load_run(folder)
    values = []
    for row in run.clients:
        mine, own = run.personalize(client=row.client), run.client_data(row.client)[1]
        assert mine.chosen is not None
        assert mine.steps == mine.chosen.steps == row.chosen_steps
        assert mine.chosen.examples == row.train_examples
        values.append((row.group, mine.accuracy(own.x_test, own.y_test)))
    choice = run.summary.choice
    assert choice is not None and (choice.most_steps, choice.folds) == (STEPS, FOLDS)
    for group, part in choice.groups.items():
        own_values = [value for name, value in values if name == group]
        assert part.metric.mean == pytest.approx(np.mean(own_values), abs=1e-6)
        steps = [row.chosen_steps or 0 for row in run.clients if row.group == group]
        assert part.mean_steps == pytest.approx(np.mean(steps))
        assert part.unadapted == pytest.approx(np.mean(np.equal(steps, 0)))


def test_a_lower_metric_is_counted(folder: Path) -> None:
    run = load_run(folder)
    assert run.summary.choice is not None
    for group, part in run.summary.choice.groups.items():
        changes = [row["accuracy"] for row in run.clients if row.group == group]
        lower = np.mean([(c.after or 0) < (c.before or 0) for c in changes])
        assert part.fixed.lower == pytest.approx(lower)
        assert (part.fixed.beyond_chance or 0) <= lower


def test_without_the_choice_all_other_numbers_are_the_same(clients: Path, tmp_path: Path) -> None:
    chosen, fixed = (
        run_experiment(Experiment.from_table(make_table(clients, choose_steps=on)), tmp_path / name)
        for on, name in ((True, "chosen"), (False, "fixed"))
    )
    assert fixed.summary.choice is None
    assert fixed.clients[0].chosen_steps is None
    assert chosen.summary.scores == fixed.summary.scores
    assert chosen.summary.adaptation == fixed.summary.adaptation
    plain = [row.model_copy(update={"chosen_steps": None}) for row in chosen.clients]
    assert plain == list(fixed.clients)
    assert "own choice of steps" not in str(fixed.summary)
    assert "with own choice of steps: known " in str(chosen.summary)
    mine = load_run(tmp_path / "fixed").personalize(client=0)
    assert (mine.steps, mine.chosen) == (STEPS, None)


def test_defaults_leave_the_fingerprint_of_earlier_folders(clients: Path) -> None:
    plain = Experiment.from_table(make_table(clients))
    spelled = Experiment.from_table(make_table(clients, choose_steps=True, shots=[]))
    assert {"choose_steps", "shots"}.isdisjoint(plain.to_table()["evaluation"])
    assert plain.fingerprint() == spelled.fingerprint()
    other = Experiment.from_table(make_table(clients, choose_steps=False, shots=[2, 5]))
    again = Experiment.from_table(other.to_table())
    assert again.evaluation == other.evaluation and again.evaluation.shots == (2, 5)
    assert other.fingerprint() != plain.fingerprint()


def test_a_strangers_file_is_adapted_as_its_examples_suggest(
    folder: Path, clients: Path, tmp_path: Path
) -> None:
    file = clients / "site-5.csv"
    result = personalize_file(folder, file, out=tmp_path / "m.safetensors")
    assert result.chosen is not None and result.steps == result.chosen.steps <= STEPS
    expected = f"chosen by cross-validation on the client's own {result.train_examples} examples"
    assert expected in str(result)
    again = type(result).from_table(result.to_table())
    assert again == result
    same = personalize_client(folder, "site-1", out=tmp_path / "c.safetensors")
    row = next(row for row in load_run(folder).clients if row.name == "site-1")
    assert same.steps == row.chosen_steps


def test_one_example_is_too_few_to_choose_by(folder: Path) -> None:
    run = load_run(folder)
    own = run.client_data(0)[1]
    mine = run.personalize(own.x_train[:1], own.y_train[:1])
    assert mine.steps == STEPS
    assert str(mine.chosen) == "3 steps, as configured: one example is too few to choose by"


def test_the_words_of_a_choice() -> None:
    metric: Any = {"name": "accuracy", "direction": "higher", "unit": "%"}
    chosen = ChosenSteps(steps=3, examples=72, metric=metric, shared=0.12, personal=0.81)
    assert str(chosen) == (
        "3 steps, chosen by cross-validation on the client's own 72 examples: "
        "81.0 % against 12.0 % with the shared model"
    )
    none = chosen.model_copy(update={"steps": 0, "personal": 0.12})
    assert str(none).endswith("the shared model reaches 12.0 %, and adaptation raises the loss")


def test_few_examples_are_recorded_and_drawn(clients: Path, tmp_path: Path) -> None:
    table = make_table(clients, shots=[1, 5, 1000])
    run = run_experiment(Experiment.from_table(table), tmp_path / "r")
    shots = run.summary.shots
    assert shots is not None and [each.shots for each in shots] == [1, 5, 1000]
    everything = shots[-1].adaptation
    assert everything == run.summary.adaptation, "more than any client has: all of them"
    assert shots[0].adaptation != everything
    for each in shots:
        before = each.adaptation.groups["new"].means["accuracy"][0]
        assert before == run.summary.scores.primary("new").before.mean
    points = run.summary.by_shots("known")
    assert [name for name, _ in points] == ["1", "5", "1000", "all"]
    assert points[2][1].mean == points[3][1].mean
    assert "new clients by number of own examples: " in str(run.summary)
    stored = RunSummary.from_json((tmp_path / "r" / "summary.json").read_text())
    assert stored.shots == shots and stored.choice == run.summary.choice
    assert not is_comparison(tmp_path / "r") and read_run(tmp_path / "r").summary.shots == shots
    page = make_report([tmp_path / "r"]).read_text()
    assert "How many examples a client needs" in page
    assert "Clients that choose their number of steps" in page
    assert (tmp_path / "r" / "figures" / "shots.png").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": [0]}, "evaluation.shots=0 must be at least 1"),
        ({"shots": [2], "adapt_on": "test"}, "evaluation.shots counts training examples"),
        ({"shots": 3}, "evaluation.shots=3 does not fit"),
    ],
)
def test_wrong_options(clients: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.from_table(make_table(clients, **options))


def test_beyond_chance_is_stricter_than_lower() -> None:
    assert not worse_beyond_chance(better=0, worse=1)
    assert not worse_beyond_chance(better=0, worse=0)
    assert worse_beyond_chance(better=3, worse=20)
