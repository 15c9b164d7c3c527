"""Experiments on a small folder of CSV files, one per client."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import tiny

from headstart._experiments import Experiment


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny federation as a user would bring it."""
    folder = tmp_path_factory.mktemp("clients")
    data = tiny.federation(clients=6, new_clients=0)
    for i in range(6):
        rows = range(int(data.offsets[i]), int(data.offsets[i + 1]))
        with (folder / f"site-{i}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "c", "d", "label"])
            writer.writerows([*data.x[r].tolist(), "xyz"[data.y[r]]] for r in rows)
    return folder


@pytest.fixture
def table(clients: Path) -> dict[str, Any]:
    """An experiment on it."""
    return {
        "rounds": 8,
        "participation": 0.6,
        "data": {"path": str(clients), "new_clients": 1},
        "model": {"name": "logistic"},
        "algorithm": {"name": "apfl", "local_steps": 2, "batch_size": 5},
        "evaluation": {"every": 3, "adapt_steps": 2, "curve_steps": 3},
    }


@pytest.fixture
def experiment(table: dict[str, Any]) -> Experiment:
    """The same, checked."""
    return Experiment.from_table(table)
