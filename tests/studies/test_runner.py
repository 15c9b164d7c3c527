"""A study is carried out in pieces: skipped when done, resumed when interrupted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headstart._experiments import Listener
from headstart._experiments.configuration import Experiment
from headstart.errors import InputError
from studies import Results, run_study
from studies.settings import PLAIN
from studies.study import Piece, Record, Section
from studies.tuning import TUNING_SEED, Contender

TABLE: dict[str, Any] = {
    "rounds": 6,
    "participation": 0.5,
    "data": {"source": "digits", "partition": "iid", "clients": 4},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 1, "batch_size": 5, **PLAIN},
    "evaluation": {"every": 3, "adapt_steps": 1, "curve_steps": 1},
}


class Small:
    """Two cells."""

    name = "small"
    title = "Small"
    summary = "two cells"
    reads: Sequence[str] = ()

    def __init__(self, rounds: int = 6) -> None:
        self.rounds = rounds

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Two step sizes."""
        return [
            Piece(
                f"rate/{rate}",
                Experiment.from_table(
                    {**TABLE, "rounds": self.rounds, "seed": seed,
                     "algorithm": {**TABLE["algorithm"], "local_lr": rate}}
                ),
                on_test=rate == 0.1,
            )
            for rate in (0.1, 0.3)
            for seed in seeds
        ]  # fmt: skip

    def section(self, records: Sequence[Record]) -> Section:
        """Nothing."""
        return Section("")


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    copy = json.loads(json.dumps(record))
    for part in (copy, *copy["training"]):
        part.pop("seconds")
        part.pop("evaluation_seconds", None)
    return copy


class Stop(Listener):
    """Interrupts in the middle of a run."""

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        if done >= 3:
            raise KeyboardInterrupt


def test_an_interrupted_study_goes_on_and_ends_with_the_same_numbers(tmp_path: Path) -> None:
    whole = Results(tmp_path / "whole", "small")
    assert run_study(Small(), whole, tmp_path / "a", seeds=range(2)) == 4

    said: list[str] = []

    def listener(label: str) -> Listener:
        return Stop() if label == "rate/0.1, seed 1" else Listener()

    with pytest.raises(KeyboardInterrupt):
        cut = Results(tmp_path / "cut", "small")
        run_study(Small(), cut, tmp_path / "b", seeds=range(2), listener=listener)
    cut = Results(tmp_path / "cut", "small")
    assert [(r["cell"], r["seed"]) for r in cut.records] == [("rate/0.1", 0), ("rate/0.3", 0)]
    assert run_study(Small(), cut, tmp_path / "b", seeds=range(2), say=said.append) == 2
    assert said[0] == "small: 1 of 2, rate/0.1, seed 1" and "left" in said[1]
    assert list(map(without_times, cut.records)) == list(map(without_times, whole.records))
    assert run_study(Small(), cut, tmp_path / "b", seeds=range(2)) == 0


def test_what_is_kept_says_how_it_was_made(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    run_study(Small(), results, tmp_path / "runs", seeds=[3])
    first, second = results.records
    assert first["config"]["seed"] == 3 and first["config"]["algorithm"]["local_lr"] == 0.1
    assert first["host"]["versions"]["jax"] and first["data_digest"] == second["data_digest"]
    assert len(first["known"]["accuracy"]) == 2 and first["new"] is None
    assert [entry["round"] for entry in first["training"]] == [0, 3, 6]
    assert len(first["known_adapted_on_test"]) == 2
    assert first["known_adapted_on_test"][0] == first["known"]["accuracy"][0]
    assert "known_adapted_on_test" not in second
    assert results.path.stat().st_size < 6000


def test_other_settings_are_run_anew_and_replace_the_old_result(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    run_study(Small(), results, tmp_path / "a", seeds=[0])
    assert run_study(Small(rounds=4), results, tmp_path / "a", seeds=[0]) == 2
    assert [r["config"]["rounds"] for r in Results(tmp_path, "small").records] == [4, 4]


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "small.jsonl").write_text('{"cell": "a", "seed": 0}\n')
    with pytest.raises(InputError, match="a line has no 'fingerprint'"):
        Results(tmp_path, "small")


def test_a_broken_file_of_results_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "small.jsonl").write_text('{"cell": "a"\n')
    with pytest.raises(InputError, match=r"small\.jsonl cannot be read"):
        Results(tmp_path, "small")
    assert (tmp_path / "small.jsonl").read_text() == '{"cell": "a"\n'


class Tuned(Small):
    """One method with two tries, of which one diverges."""

    tries = ({"local_lr": 3e38}, {"local_lr": 0.2})
    contender = Contender("best", "best", TABLE["algorithm"], tries)

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        return self.contender.pieces(TABLE, seeds, False, done)


def test_tries_are_made_on_training_data_only_and_the_best_one_is_used(tmp_path: Path) -> None:
    results = Results(tmp_path, "tuned")
    assert run_study(Tuned(), results, tmp_path / "runs", seeds=range(2)) == 4
    by_cell = {(r["cell"], r["seed"]): r for r in results.records}
    assert "diverged" in by_cell["best/try-1", TUNING_SEED]
    assert by_cell["best", 0]["config"]["algorithm"]["local_lr"] == 0.2
    tried = by_cell["best/try-2", TUNING_SEED]
    whole = Experiment.from_table({**TABLE, "seed": TUNING_SEED}).build_data()
    assert tried["data_digest"] == whole.for_tuning().digest() != whole.digest()


def test_tries_made_with_other_settings_choose_nothing(tmp_path: Path) -> None:
    results = Results(tmp_path, "tuned")
    run_study(Tuned(), results, tmp_path / "runs", seeds=[0])
    other = Contender("best", "best", TABLE["algorithm"], [{"local_lr": 0.1}, {"local_lr": 0.3}])
    pieces = other.pieces(TABLE, [0], False, results.records)
    assert [piece.cell for piece in pieces] == ["best/try-1", "best/try-2"]
