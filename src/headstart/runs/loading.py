"""A run from its folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jax

from headstart.errors import CheckpointError, InputError
from headstart.keys import Keys
from headstart.runs.checkpoint import checkpoints, load_checkpoint
from headstart.runs.directory import RunDirectory
from headstart.runs.run import Run
from headstart.simulation.rounds import memory_for_all
from headstart.simulation.simulation import Progress


def load_run(path: str | Path) -> Run:
    """A finished run, ready to personalise; the data it was trained on are not needed."""
    folder = RunDirectory(Path(path))
    if not folder.path.is_dir():
        raise InputError(f"{folder.path} does not exist; give the folder of a run")
    try:
        return _load(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder.path} is damaged: {type(error).__name__} {error}") from None


def _load(folder: RunDirectory) -> Run:
    experiment, summary, schema = folder.experiment(), folder.summary(), folder.schema()
    model, algorithm = experiment.build_model(), experiment.build_algorithm()

    def start() -> tuple[Any, Any]:
        state = algorithm.init(model.init(Keys.from_seed(0).init, schema))
        # In a federation every site has its own memory on its own disk.
        apart = summary.get("engine") == "flower"
        known = summary["clients"]["known"]
        return state, () if apart else memory_for_all(algorithm, state, known)

    state, memory = jax.eval_shape(start)
    frame = Progress(0, state, memory)
    found = checkpoints(folder.checkpoints)
    if not found:
        raise CheckpointError(f"{folder.checkpoints} holds no checkpoint; the run cannot be used")
    own = experiment.fingerprint(with_data=summary.get("engine") != "flower")
    fingerprint = f"{own}-{summary['data_digest']}"
    progress = load_checkpoint(found[-1], frame, fingerprint).progress
    return Run(
        summary=summary,
        records=read_metrics(folder.path / "metrics.jsonl"),
        clients=read_clients(folder.path / "clients.csv"),
        model=model,
        algorithm=algorithm,
        state=progress.state,
        schema=schema,
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The evaluations of a run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_clients(path: Path) -> list[dict[str, Any]]:
    """The rows of ``clients.csv``, numbers as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{k: _number(v, k) for k, v in row.items()} for row in csv.DictReader(file)]


def _number(text: str, column: str) -> Any:
    if column in ("name", "kind"):
        return text
    return float(text) if column.startswith(("loss", "accuracy")) else int(text)
