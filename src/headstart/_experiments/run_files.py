"""A run and its folder: what is stored during training; how a run is saved and loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from headstart._experiments.configuration import Experiment, read_experiment
from headstart._experiments.finished_run import Run
from headstart._keys import Keys
from headstart._simulation.rounds import init_memories
from headstart._simulation.simulation import Progress
from headstart.algorithms._contract import Algorithm, Memory, State
from headstart.data._federated import FederatedDataset
from headstart.errors import CheckpointError, ConfigError, InputError
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike, make_objective
from headstart.parts import prepare_training
from headstart.records import Evaluation, RunDirectory
from headstart.records._checkpoint import (
    Checkpoint,
    checkpoint_files,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)


class RunStore:
    """Keeps a run in its folder: configuration, evaluations, checkpoints, results."""

    def __init__(self, folder: RunDirectory, experiment: Experiment, data_digest: str) -> None:
        self.folder, self.experiment = folder, experiment
        self.fingerprint = f"{experiment.fingerprint()}-{data_digest}"
        self._saved_at = time.monotonic()

    @property
    def seconds_since_saved(self) -> float:
        """The age of the newest checkpoint."""
        return time.monotonic() - self._saved_at

    def refuse_other_experiment(self) -> None:
        """Raise an error unless the folder holds this experiment; label and rounds may differ."""
        path = self.folder.path
        if not path.exists():
            raise InputError(f"{path} does not exist; there is nothing to resume")
        if read_experiment(path).fingerprint() != self.experiment.fingerprint():
            raise ConfigError(
                f"{path} holds a run with another configuration; resume it without an "
                "experiment file, or choose another folder with --out"
            )

    def newest_checkpoint(self, shapes: Progress, note: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest usable checkpoint, or None if none was written; nothing is changed."""
        checkpoints, rounds = self.folder.checkpoints, self.experiment.rounds
        newest, refused = load_newest(checkpoints, shapes.state, shapes.memory, self.fingerprint)
        for line in refused:
            note(f"{line}; it is not used")
        if newest is None and refused:
            raise CheckpointError(
                f"no checkpoint in {checkpoints} can be used ({refused[0]}); nothing was "
                "changed; to start again, choose another folder with --out"
            )
        if newest is not None and newest.round > rounds:
            raise ConfigError(
                f"rounds={rounds} is less than the {newest.round} rounds already done"
            )
        return newest

    def save(
        self,
        progress: Progress,
        evaluations: Sequence[Evaluation],
        seconds: float,
        evaluation_seconds: float,
    ) -> None:
        """Write a checkpoint."""
        checkpoint = Checkpoint(
            progress.round, progress.state, progress.memory, progress.log, seconds,
            evaluation_seconds, tuple(evaluations),
        )  # fmt: skip
        save_checkpoint(self.folder.checkpoints, checkpoint, self.fingerprint)
        self._saved_at = time.monotonic()

    def write_results(self, run: Run) -> None:
        """Write model, clients and summary; the summary last, it marks the run as complete."""
        run.start.save(self.folder.model_file, algorithm=run.summary.algorithm)
        self.folder.write_results(run.summary, run.clients)


def save_run(run: Run, path: Path) -> Path:
    """Write the run's folder; an existing one is not replaced."""
    if run.experiment is None:
        raise ConfigError("the run does not know its configuration and cannot be saved")
    folder, summary = RunDirectory(path), run.summary
    store = RunStore(folder, run.experiment, summary.data_digest)
    folder.claim(run.experiment.to_toml(), resume=False)
    folder.write_schema(run.schema)
    folder.write_evaluations(run.evaluations)
    progress = Progress(summary.rounds, run.state, run.memory)
    store.save(progress, run.evaluations, summary.seconds or 0.0, summary.evaluation_seconds)
    store.write_results(run)
    return path


def write_report(run: Run, path: Path | None) -> Path:
    """Write the run's page; a run without a folder is saved in ``path`` first."""
    from headstart.report import make_report

    folder = run.folder or path
    if folder is None:
        raise ConfigError("the run has no folder yet; give one, as in run.report('runs/mine')")
    if run.folder is None:
        save_run(run, folder)
    return make_report([folder])


def load_run(
    path: str | Path,
    *,
    model: Model | None = None,
    algorithm: Algorithm | None = None,
    objective: ObjectiveLike = None,
    data: FederatedDataset | None = None,
) -> Run:
    """Load a finished run from its folder, ready to personalise.

    ``model``, ``algorithm`` and ``objective`` are needed only if they were given from Python and
    could not be written to the configuration; ``data`` only to personalise one of the run's own
    clients in that case.
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
    objective: ObjectiveLike,
    data: FederatedDataset | None,
) -> Run:
    experiment, summary, schema = read_experiment(folder.path), folder.summary(), folder.schema()
    federated = summary.engine == "flower"
    model = model or experiment.build_model()
    plain = algorithm or experiment.build_algorithm()
    key = Keys.from_seed(experiment.seed).init
    prepared = prepare_training(experiment.parts, model, plain, key, schema)

    def start() -> tuple[State, Memory]:
        state = prepared.algorithm.init(prepared.params)
        if federated:  # Every site keeps its memory on its own disk.
            return state, ()
        return state, init_memories(prepared.algorithm, state, summary.clients.known)

    state, memory = jax.eval_shape(start)
    checkpoints = checkpoint_files(folder.checkpoints)
    if not checkpoints:
        raise CheckpointError(f"{folder.checkpoints} holds no checkpoint; the run cannot be used")
    fingerprint = f"{experiment.fingerprint(with_data=not federated)}-{summary.data_digest}"
    checkpoint = load_checkpoint(checkpoints[-1], state, memory, fingerprint)
    given = objective if objective is not None else experiment.objective
    return Run(
        summary=summary,
        evaluations=folder.evaluations(),
        clients=folder.clients(),
        model=model,
        algorithm=prepared.algorithm,
        state=checkpoint.state,
        schema=schema,
        objective=make_objective(model, schema, given),
        memory=checkpoint.memory,
        parts=prepared.parts,
        experiment=experiment,
        data=data,
        folder=folder.path,
    )
