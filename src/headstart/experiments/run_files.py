"""A run from its folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jax

from headstart.algorithms.contract import Algorithm
from headstart.data.federated import FederatedDataset
from headstart.errors import CheckpointError, InputError
from headstart.experiments.checkpoint import checkpoints, load_checkpoint
from headstart.records import RunDirectory
from headstart.experiments.run import Run
from headstart.keys import Keys
from headstart.models.model import Model
from headstart.models.objectives import Given, objective_for
from headstart.parts import prepare
from headstart.simulation.rounds import memory_for_all
from headstart.simulation.simulation import Progress


def load_run(
    path: str | Path,
    *,
    model: Model | None = None,
    algorithm: Algorithm | None = None,
    objective: Given = None,
    data: FederatedDataset | None = None,
) -> Run:
    """A finished run from its folder, ready to personalise.

    ``model``, ``algorithm`` and ``objective`` are needed only if they were given from Python and
    could not be written down; ``data`` only to personalise one of the run's own clients when they
    were.
    """
    folder = RunDirectory(Path(path))
    if not folder.path.is_dir():
        raise InputError(f"{folder.path} does not exist; give the folder of a run")
    try:
        return _load(folder, model, algorithm, objective, data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder.path} is damaged: {type(error).__name__} {error}") from None


def _load(
    folder: RunDirectory,
    model: Model | None,
    algorithm: Algorithm | None,
    objective: Given,
    data: FederatedDataset | None,
) -> Run:
    experiment, summary, schema = folder.experiment(), folder.summary(), folder.schema()
    model = model or experiment.build_model()
    plain = algorithm or experiment.build_algorithm()
    key = Keys.from_seed(experiment.seed).init
    prepared = prepare(experiment.parts, model, plain, key, schema)

    def start() -> tuple[Any, Any]:
        state = prepared.algorithm.init(prepared.params)
        # In a federation every site has its own memory on its own disk.
        apart = summary.get("engine") == "flower"
        known = summary["clients"]["known"]
        return state, () if apart else memory_for_all(prepared.algorithm, state, known)

    state, memory = jax.eval_shape(start)
    found = checkpoints(folder.checkpoints)
    if not found:
        raise CheckpointError(f"{folder.checkpoints} holds no checkpoint; the run cannot be used")
    own = experiment.fingerprint(with_data=summary.get("engine") != "flower")
    fingerprint = f"{own}-{summary['data_digest']}"
    progress = load_checkpoint(found[-1], Progress(0, state, memory), fingerprint).progress
    judged = objective if objective is not None else experiment.objective
    return Run(
        summary=summary,
        records=read_metrics(folder.path / "metrics.jsonl"),
        clients=read_clients(folder.path / "clients.csv"),
        model=model,
        algorithm=prepared.algorithm,
        state=progress.state,
        schema=schema,
        objective=objective_for(model, schema, judged),
        memory=progress.memory,
        parts=prepared.parts,
        experiment=experiment,
        data=data,
        folder=folder.path,
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
    return float(text) if column.endswith(("_before", "_after")) else int(text)
