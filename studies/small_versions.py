"""Small versions of all experiments for ``--quick``: embedded digits instead of the real data.

A quick study takes about a minute. It shows that the pipeline from data to page works and that the
methods learn. Its numbers say nothing about the papers.
"""

from __future__ import annotations

from typing import Any

from headstart._experiments.configuration import Experiment
from studies.study import Piece, Record

ROUNDS, CLIENTS, BATCH, HIDDEN = 40, 10, 10, [16]
QUICK_TRIES = 2
FASTER = 40.0
"""The factor on step sizes: digits have 64 inputs, and there are few rounds."""


def make_piece(cell: str, table: dict[str, Any], quick: bool, **options: Any) -> Piece:
    """Return a piece with this experiment, or with its small version."""
    return Piece(cell, Experiment.from_table(shrink(table) if quick else table), **options)


def shrink(table: dict[str, Any]) -> dict[str, Any]:
    """Return the same methods and partition with few digits, a small network and few rounds."""
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
    """Return whether a result comes from a small version."""
    config = record["config"]
    hidden = config.get("model", {}).get("hidden", HIDDEN)
    few = config["rounds"] == ROUNDS and list(hidden) == HIDDEN
    return few and config["data"].get("source") == "digits"


def _digits(data: dict[str, Any]) -> dict[str, Any]:
    """Return the same partition; for natural clients, a Dirichlet split with some new clients.

    Every seed gives arrays of the same size, so programs are compiled once.
    """
    natural = "partition" not in data
    partition = "dirichlet" if natural else data["partition"]
    chosen: dict[str, Any] = {"source": "digits", "partition": partition, "clients": CLIENTS}
    if partition == "class-groups":
        chosen["different"] = data.get("different", False)
    if partition == "dirichlet":
        chosen |= {"alpha": data.get("alpha", 0.5), "examples": 100}
    if natural or "new_clients" in data:
        chosen["new_clients"] = 2
    kept = ("own_labels", "own_rotation")
    return chosen | {name: data[name] for name in kept if name in data}
