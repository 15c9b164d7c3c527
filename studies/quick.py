"""Every experiment small enough for a minute: the embedded digits instead of the real data.

What a quick study shows is that the way from data to page works, and that the methods learn. Its
numbers say nothing about the papers.
"""

from __future__ import annotations

from typing import Any

from headstart.experiments.configuration import Experiment
from studies.study import Piece, Record

ROUNDS, CLIENTS, BATCH, HIDDEN = 40, 10, 10, [16]
QUICK_TRIES = 2
FASTER = 40.0
"""Steps are so many times larger: digits have 64 inputs, and there are few rounds."""


def piece(cell: str, table: dict[str, Any], quick: bool, **options: Any) -> Piece:
    """A piece with this experiment, or with its small version."""
    return Piece(cell, Experiment.from_table(small(table) if quick else table), **options)


def small(table: dict[str, Any]) -> dict[str, Any]:
    """The same methods and partition on few digits, a small network and few rounds."""
    algorithm = dict(table["algorithm"])
    for step in ("inner_lr", "local_lr"):
        if step in algorithm:
            algorithm[step] = min(0.2, FASTER * algorithm[step])
    return {
        **table,
        "rounds": ROUNDS,
        "participation": 0.5,
        "data": _digits(table["data"]),
        "model": {"name": "mlp", "hidden": HIDDEN, "activation": "elu"},
        "algorithm": {**algorithm, "batch_size": BATCH},
        "evaluation": {**table["evaluation"], "every": ROUNDS // 2},
    }


def is_small(record: Record) -> bool:
    """Whether a result comes from a small version."""
    config = record["config"]
    return config["data"].get("source") == "digits" and config["rounds"] == ROUNDS


def _digits(data: dict[str, Any]) -> dict[str, Any]:
    """The same partition; for clients by nature, a Dirichlet split with some that join later.

    Every seed gives arrays of the same size, so that programs are compiled once.
    """
    natural = "partition" not in data
    partition = "dirichlet" if natural else data["partition"]
    chosen: dict[str, Any] = {"source": "digits", "partition": partition, "clients": CLIENTS}
    if partition == "class-groups":
        chosen["different"] = data.get("different", False)
    if partition == "dirichlet":
        chosen |= {"alpha": data.get("alpha", 0.5), "examples": 100}
    if natural:
        chosen["new_clients"] = 2
    return chosen
