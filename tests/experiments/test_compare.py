"""Comparisons: fair, paired, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart._experiments import Experiment, Listener
from headstart._experiments.comparison import compare_experiments, slug
from headstart.errors import ConfigError
from headstart.report import comparison_table


def plans(table: dict[str, Any]) -> list[Experiment]:
    rows = []
    for label, algorithm in (
        ("FedAvg + update", {"name": "fedavg"}),
        ("Per-FedAvg", {"name": "per-fedavg", "method": "first-order"}),
        ("too large", {"name": "fedavg", "local_lr": 1e38, "max_gradient_norm": float("inf")}),
    ):
        options = {**algorithm, "batch_size": 5, "local_steps": 2}
        rows.append(Experiment.from_table({**table, "label": label, "algorithm": options}))
    return rows


def test_one_table_with_paired_differences(table: dict[str, Any], tmp_path: Path) -> None:
    table["rounds"] = 3
    started: list[str] = []

    class Counting(Listener):
        def started(self, done: int, rounds: int) -> None:
            started.append("run")

    hear = lambda label, seed: Counting()  # noqa: E731
    record = compare_experiments(plans(table), [0, 1], tmp_path, listener=hear)
    result = record.to_table()
    assert json.loads((tmp_path / "comparison.json").read_text()) == result
    base, meta, broken = result["rows"]
    assert result["baseline"] == "FedAvg + update"
    for group in ("known_clients", "new_clients"):
        by_hand = np.subtract(meta[group]["after"]["values"], base[group]["after"]["values"])
        assert meta["difference"][group]["mean"] == pytest.approx(by_hand.mean())
    assert base["difference"]["known_clients"] is None
    assert broken["seeds"] == [] and len(broken["diverged"]) == 2
    assert broken["known_clients"] is None
    assert (tmp_path / "comparison.csv").read_text().count("\n") == 4

    assert len(started) == 6
    again = compare_experiments(plans(table), [0, 1], tmp_path, listener=hear)
    assert len(started) == 8, "only the diverged runs are tried again"
    assert again == record


def test_unfair_comparisons_are_refused(table: dict[str, Any], tmp_path: Path) -> None:
    first = plans(table)[0]
    other = Experiment.from_table({**table, "label": "b", "participation": 1.0})
    with pytest.raises(ConfigError, match="differ in participation"):
        compare_experiments([first, other], [0], tmp_path / "x")
    with pytest.raises(ConfigError, match="label of its own"):
        compare_experiments([first, first], [0], tmp_path / "x")
    with pytest.raises(ConfigError, match="--baseline"):
        compare_experiments([first], [0], tmp_path / "x", baseline="none")
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare_experiments([], [0], tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_labels_become_folder_names() -> None:
    assert slug("Per-FedAvg (exact, ν=3)") == "per-fedavg-exact-ν=3"
    assert slug("../..") not in ("..", "../..") and slug("///") == "run"


def test_a_failed_method_is_not_called_better(tmp_path: Path) -> None:
    def plan(label: str, rate: float) -> Experiment:
        algorithm = {
            "name": "fedavg", "local_lr": rate, "inner_lr": 0.01, "batch_size": 20,
            "max_gradient_norm": float("inf"),
        }  # fmt: skip
        return Experiment.from_table({
            "label": label, "rounds": 10, "model": {"name": "mlp", "hidden": [16, 16]},
            "data": {"source": "digits", "partition": "iid", "clients": 6, "new_clients": 0},
            "algorithm": algorithm,
        })  # fmt: skip

    record = compare_experiments([plan("good", 0.1), plan("too large", 4.0)], [0, 1], tmp_path)
    result = record.to_table()
    good, bad = result["rows"]
    assert good["failed"] == {} and set(bad["failed"]) == {"0", "1"}
    assert bad["difference"]["known_clients"]["verdict"] == "failed"
    text = str(comparison_table(record).caption)
    assert "too large, seed 0, failed: the model is at chance" in text
