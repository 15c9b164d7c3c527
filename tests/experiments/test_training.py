"""Whole runs: what they leave, and that stopping them anywhere loses nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny

import headstart as hs
from headstart._experiments import (
    Experiment,
    Listener,
    RunDirectory,
    load_run,
    results,
    run_experiment,
)
from headstart._experiments.personalization import personalize_file
from headstart._simulation.constant import score_constant_answer
from headstart._simulation.scoring import Scores
from headstart.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DivergedError,
    InputError,
    OutputError,
)
from headstart.models import Classification
from headstart.records import BeforeAfter, Evaluation, GroupScores, ScoreSummary, describe
from headstart.records._checkpoint import checkpoint_files


class StopAt(Listener):
    """Breaks off a run, as a crash would."""

    def __init__(self, round: int) -> None:
        self.round = round
        self.notes: list[str] = []

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        if done >= self.round:
            raise KeyboardInterrupt

    def note(self, message: str) -> None:
        self.notes.append(message)


def timeless(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    drop = ("seconds", "evaluation_seconds")
    return [{k: v for k, v in json.loads(line).items() if k not in drop} for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by the first test that needs it."""
    return tmp_path_factory.mktemp("runs") / "finished"


@pytest.fixture
def run_folder(finished: Path, experiment: Experiment) -> Path:
    if not finished.exists():
        run_experiment(experiment, finished)
    return finished


def test_a_run_leaves_what_the_design_says(run_folder: Path) -> None:
    names = {p.name for p in run_folder.iterdir()}
    assert names >= {
        "config.toml",
        "metrics.jsonl",
        "clients.csv",
        "summary.json",
        "model.safetensors",
        "schema.json",
        "checkpoint",
    }
    summary = json.loads((run_folder / "summary.json").read_text())
    assert summary["algorithm"] == "apfl" and summary["rounds"] == 8
    assert summary["active_clients"] == 3
    assert summary["gradient_evaluations"] == 8 * 3 * (2 * 2 + 1)
    for group in (summary, summary["new_clients"]):
        for when in ("before", "after"):
            assert 0 <= group["accuracy"][when]["mean"] <= 1
            assert set(group["accuracy"][when]) >= {"std", "min", "p10", "p50", "p90", "ci95"}
    assert summary["adaptation"]["steps"] == [0, 1, 2, 3]
    assert [m["round"] for m in timeless(run_folder)] == [0, 3, 6, 8]
    assert len((run_folder / "clients.csv").read_text().splitlines()) == 1 + 6


def test_two_runs_of_one_config_are_identical(
    run_folder: Path, experiment: Experiment, tmp_path: Path
) -> None:
    run_experiment(experiment, tmp_path / "again")
    for name in ("model.safetensors", "clients.csv", "config.toml"):
        assert (tmp_path / "again" / name).read_bytes() == (run_folder / name).read_bytes()
    assert timeless(tmp_path / "again") == timeless(run_folder)


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_run_broken_off_and_resumed_is_identical(
    run_folder: Path, experiment: Experiment, tmp_path: Path, stop: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, tmp_path / "cut", listener=StopAt(stop))
    assert not RunDirectory(tmp_path / "cut").is_complete
    run_experiment(experiment, tmp_path / "cut", resume=True)
    for name in ("model.safetensors", "clients.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (run_folder / name).read_bytes()
    assert timeless(tmp_path / "cut") == timeless(run_folder)


def test_a_damaged_checkpoint_costs_rounds_not_the_run(
    run_folder: Path, experiment: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, tmp_path / "cut", listener=StopAt(7))
    newest = checkpoint_files(tmp_path / "cut" / "checkpoint")[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    listener = StopAt(99)
    run_experiment(experiment, tmp_path / "cut", resume=True, listener=listener)
    assert any(newest.name in note and "not used" in note for note in listener.notes)
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (
        run_folder / "model.safetensors"
    ).read_bytes()


def test_a_finished_run_can_be_made_longer(experiment: Experiment, tmp_path: Path) -> None:
    run_experiment(replace(experiment, rounds=6), tmp_path / "longer")
    run_experiment(experiment, tmp_path / "longer", resume=True)
    run_experiment(experiment, tmp_path / "whole")
    for name in ("model.safetensors", "clients.csv"):
        assert (tmp_path / "longer" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    with pytest.raises(ConfigError, match="less than the 8 rounds already done"):
        run_experiment(replace(experiment, rounds=5), tmp_path / "longer", resume=True)


def test_a_resume_that_cannot_work_changes_nothing(
    experiment: Experiment, table: dict[str, Any], tmp_path: Path
) -> None:
    """Fewer rounds, no usable checkpoint, other data: refused before anything is touched."""
    run_experiment(experiment, tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="less than the 8 rounds"):
        run_experiment(replace(experiment, rounds=2), tmp_path / "run", resume=True)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before

    for path in checkpoint_files(tmp_path / "run" / "checkpoint"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="nothing was changed"):
        run_experiment(experiment, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "summary.json").exists()


def test_other_data_under_the_same_name_are_noticed(
    table: dict[str, Any], clients: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(clients, folder)
    table["data"]["path"] = str(folder)
    experiment = Experiment.from_table(table)
    run_experiment(experiment, tmp_path / "run")
    text = (folder / "site-0.csv").read_text()
    (folder / "site-0.csv").write_text(text.replace(",x\n", ",y\n", 1))
    with pytest.raises(CheckpointError, match="other data"):
        run_experiment(experiment, tmp_path / "run", resume=True)


def test_a_folder_that_holds_something_is_not_touched(
    run_folder: Path, experiment: Experiment, table: dict[str, Any], tmp_path: Path
) -> None:
    before = {p: p.read_bytes() for p in run_folder.iterdir() if p.is_file()}
    with pytest.raises(OutputError, match="already holds another run"):
        run_experiment(experiment, run_folder)
    other = Experiment.from_table({**table, "seed": 5})
    with pytest.raises(ConfigError, match="another configuration"):
        run_experiment(other, run_folder, resume=True)
    assert {p: p.read_bytes() for p in run_folder.iterdir() if p.is_file()} == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="already holds other files"):
        run_experiment(experiment, tmp_path)
    with pytest.raises(InputError, match="nothing to resume"):
        run_experiment(experiment, tmp_path / "nowhere", resume=True)


def test_divergence_is_an_end_with_a_reason(table: dict[str, Any], tmp_path: Path) -> None:
    """β grows the model beyond float32 within a few rounds; the checkpoint of round 0 stays."""
    table["algorithm"] = {
        "name": "fedavg", "local_lr": 1e38, "batch_size": 5, "max_gradient_norm": float("inf"),
    }  # fmt: skip
    with pytest.raises(DivergedError, match=r"round \d+ at client .*last good checkpoint"):
        run_experiment(Experiment.from_table(table), tmp_path / "run")
    assert [c.name for c in checkpoint_files(tmp_path / "run" / "checkpoint")] == [
        "round-000000000.safetensors"
    ]
    assert not (tmp_path / "run" / "summary.json").exists()
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_adapting_on_test_data_is_marked(table: dict[str, Any], tmp_path: Path) -> None:
    table["evaluation"]["adapt_on"] = "test"
    table["rounds"] = 2
    run = run_experiment(Experiment.from_table(table), tmp_path / "run")
    assert "paper P" in str(run.summary.warning)
    assert "warning" in str(run.summary)
    assert all(m["adapt_on"] == "test" for m in timeless(tmp_path / "run"))


def test_python_gives_the_same_as_the_folder(run_folder: Path, clients: Path) -> None:
    run = load_run(run_folder)
    assert "known clients" in str(run.summary) and "new clients" in str(run.summary)
    x, y = hs.data.read_examples(clients / "site-2.csv", run.schema)
    mine = run.personalize(x, y, steps=2)
    assert mine.predict(x).shape == y.shape
    np.testing.assert_allclose(mine.probabilities(x).sum(axis=1), 1, rtol=1e-5)
    assert tiny.distance(run.personalize(x, y, steps=0).params, run.params) < 1e-6
    with pytest.raises(DataError, match="shape"):
        run.personalize(x[:, :2], y)
    with pytest.raises(DataError, match="not a finite number"):
        mine.accuracy(x * np.nan, y)
    with pytest.raises(DivergedError, match="not finite"):
        replace(mine, params=jax.tree.map(lambda p: p * np.inf, mine.params)).accuracy(x, y)
    with pytest.raises(DataError, match="not whole numbers"):
        mine.accuracy(x, y + 0.5)
    with pytest.raises(DataError, match="label 7"):
        run.personalize(x, y * 0 + 7)
    with pytest.raises(ConfigError, match="steps=-1"):
        run.personalize(x, y, steps=-1)


def test_a_strangers_file_becomes_a_model(run_folder: Path, clients: Path, tmp_path: Path) -> None:
    result = personalize_file(
        run_folder, clients / "site-5.csv", steps=2, out=tmp_path / "m.safetensors"
    )
    assert result.train_examples + result.test_examples == 79
    assert 0 <= (result.primary.after or 0) <= 1
    assert (tmp_path / "m.safetensors").exists() and (tmp_path / "m.json").exists()
    with pytest.raises(OutputError, match="--force"):
        personalize_file(run_folder, clients / "site-5.csv", out=tmp_path / "m.safetensors")
    with pytest.raises(OutputError, match="must end in"):
        personalize_file(run_folder, clients / "site-5.csv", out=tmp_path / "m.json")
    lines = (clients / "site-5.csv").read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join(lines[:2]))
    with pytest.raises(DataError, match="has 1 example"):
        personalize_file(run_folder, tmp_path / "one.csv")
    with pytest.raises(InputError, match="does not exist"):
        load_run(tmp_path / "none")
    with pytest.raises(InputError, match="not a run"):
        load_run(tmp_path)


def test_training_from_python_needs_no_folder() -> None:
    run = hs.train(
        tiny.federation(), tiny.MODEL, hs.PerFedAvg(**tiny.COMMON), rounds=3, participation=0.6
    )
    assert [e.round for e in run.evaluations] == [0, 3]
    assert run.summary.new is not None
    with pytest.raises(ConfigError, match="rounds=0"):
        hs.train(tiny.federation(), tiny.MODEL, hs.FedAvg(), rounds=0)


def test_a_collapsed_model_is_called_a_failure() -> None:
    """Finite weights, 10 % of ten classes: steps that are too large, not an ordinary result."""
    data = hs.data.load("digits").split(hs.data.iid(clients=8), seed=0)
    too_large = hs.FedAvg(
        inner_lr=0.01, local_lr=4.0, local_steps=5, batch_size=20, max_gradient_norm=np.inf
    )
    run = hs.train(data, hs.models.mlp([16, 16]), too_large, rounds=20)
    assert any("at chance" in failure for failure in run.summary.failures)
    assert "FAILED" in str(run.summary) and "lower algorithm.local_lr" in str(run.summary)
    good = hs.train(data, hs.models.mlp([16, 16]), hs.FedAvg(batch_size=20), rounds=20)
    assert good.summary.failures == () and "FAILED" not in str(good.summary)


@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_dead_units_are_called_a_failure(activation: str) -> None:
    """Saturated units count as well as those that are always zero."""
    data = hs.data.load("digits").split(hs.data.iid(clients=8), seed=0)
    model = hs.models.mlp([16, 16], activation)
    too_large = hs.FedAvg(
        inner_lr=0.01, local_lr=8.0, local_steps=5, batch_size=20, max_gradient_norm=np.inf
    )
    run = hs.train(data, model, too_large, rounds=20)
    assert any("same answer to every input" in failure for failure in run.summary.failures)
    assert "dead" in run.summary.to_json()


def test_a_model_that_is_only_useful_after_adaptation_has_no_dead_units() -> None:
    """With own labels the shared model itself is at chance, but its outputs vary."""
    data = hs.data.load("digits").split(hs.data.iid(clients=8), seed=0).with_own_labels(0)
    algorithm = hs.PerFedAvg(inner_lr=0.4, local_lr=0.1, local_steps=2, batch_size=20)
    run = hs.train(data, hs.models.mlp([16, 16], "relu"), algorithm, rounds=60)
    assert not any("dead" in failure for failure in run.summary.failures)


def test_a_collapse_during_training_is_called_a_failure() -> None:
    """The best evaluation counts if it is better by more than noise and by much."""
    data = tiny.federation()
    scores = scores_of(np.full((5, 2), 0.4))

    def evaluation(round: int, values: list[float]) -> Evaluation:
        accuracy = BeforeAfter(before=describe(values), after=describe(values))
        return Evaluation(
            round=round, gradient_evaluations=0, adapt_steps=1, adapt_on="train",
            scores=ScoreSummary(known=GroupScores(metrics={"accuracy": accuracy})),
        )  # fmt: skip

    first, last = evaluation(0, [0.3, 0.32, 0.28]), evaluation(400, [0.4, 0.41, 0.39])
    cases = {
        "clear": ([0.8, 0.81, 0.79], True),
        "noise": ([0.2, 1.0, 1.0], False),
        "little": ([0.44, 0.44, 0.44], False),
        "kept more than half": ([0.49, 0.49, 0.49], False),
    }
    for name, (best, collapsed) in cases.items():
        history = [first, evaluation(300, best), last]
        found = results.find_failures(scores, data, 1, history)
        words = "collapsed during training: 80.0 % after adaptation at round 300, 40.0 % at the end"
        assert any(words in line for line in found) is collapsed, name
    assert not any("collapsed" in t for t in results.find_failures(scores, data, 1, [first]))


def test_a_run_that_ends_worse_than_it_began_says_so() -> None:
    data = tiny.federation()
    scores = scores_of(np.full((5, 2), 0.6))
    for began, worse in ((0.7, True), (0.6, False), (0.5, False)):
        accuracy = BeforeAfter(before=describe([began]), after=describe([began]))
        first = Evaluation(
            round=0, gradient_evaluations=0, adapt_steps=1, adapt_on="train",
            scores=ScoreSummary(known=GroupScores(metrics={"accuracy": accuracy})),
        )  # fmt: skip
        found = results.find_failures(scores, data, 1, [first])
        assert any("made the model worse" in line for line in found) is worse
    assert results.find_failures(scores, data, 1, []) == ()


def test_a_constant_answer_that_is_as_good_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny.federation()
    clients = [data.client(c) for c in range(5)]
    wanted = np.mean([np.mean(c.y_test == np.bincount(c.y_train).argmax()) for c in clients])
    constant = score_constant_answer(Classification(tiny.MODEL, data.schema), data, range(5))
    assert constant is not None and constant.value == pytest.approx(wanted)
    monkeypatch.setattr("headstart._simulation.constant.MOST_NUMBERS", 40)  # ten examples at a time
    assert (
        score_constant_answer(Classification(tiny.MODEL, data.schema), data, range(5)) == constant
    )
    for accuracy, said in ((wanted - 0.01, True), (wanted + 0.01, False)):
        scores = scores_of(np.full((5, 2), accuracy))
        assert (results.constant_note(scores, data, 1, constant) is not None) is said


def scores_of(accuracy: np.ndarray) -> Scores:
    measure = Classification(tiny.MODEL, tiny.federation().schema).primary
    finite = np.zeros(accuracy.shape, bool)
    return Scores(np.arange(len(accuracy)), accuracy, finite, {"accuracy": accuracy}, (measure,))
