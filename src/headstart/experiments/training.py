"""Train, watch, record: a whole run, with or without a folder to keep it in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.contract import Algorithm
from headstart.data.federated import FederatedDataset
from headstart.errors import CheckpointError, ConfigError, DataError, DivergedError, InputError
from headstart.experiments import record
from headstart.experiments.arguments import check_arguments
from headstart.experiments.callbacks import Listener, Listeners
from headstart.experiments.checkpoint import Checkpoint, load_newest, save_checkpoint
from headstart.experiments.configuration import EvaluationOptions, Experiment
from headstart.experiments.description import described
from headstart.records import RunDirectory
from headstart.experiments.progress import shown
from headstart.experiments.run import Run
from headstart.machine import agreed, leads
from headstart.models.model import Model
from headstart.models.objectives import Given
from headstart.parts import Parts
from headstart.simulation.evaluation import AdaptOn
from headstart.simulation.simulation import Progress, Simulation

CHECKPOINT_SECONDS = 20.0
PIECE_SECONDS = 0.5
"""How long the compiled program may run before progress is shown again."""


def train(
    data: FederatedDataset,
    model: Model,
    algorithm: Algorithm,
    *,
    rounds: int,
    participation: float = 0.5,
    seed: int = 0,
    evaluation: EvaluationOptions | None = None,
    objective: Given = None,
    parts: Parts | None = None,
    label: str = "",
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Listener] = (),
    progress: bool | None = None,
    layout: str | None = None,
) -> Run:
    """Train one shared initial model across the known clients, and evaluate it for all.

    Args:
        data: Clients' examples, split.
        model: What is trained: anything with ``init`` and ``apply``.
        algorithm: How; :func:`headstart.aggregated` adds clipping, noise or a robust rule.
        rounds: Communication rounds.
        participation: Fraction of the known clients that take part in a round.
        seed: Decides the first model and every draw.
        evaluation: How often clients are scored, and after how many adaptation steps.
        objective: An objective, its class or its name; by default what fits the labels.
        parts: Which parameters are trained, adapted and kept at the client; by default all.
        label: A name for tables.
        out: Folder to keep the run in; without one nothing is written.
        resume: Resume the run in ``out`` where it stopped; a new folder is begun.
        callbacks: Hear of progress, and may end the run early (:class:`headstart.EarlyStopping`).
        progress: Whether to show progress; by default on a terminal and in a notebook.
        layout: How clients are laid out over the devices; by default by the size of the network.

    Call :func:`headstart.machine.use_all_cores` first, before JAX has started, to use every core.
    """
    check_arguments(data, model, algorithm, rounds)
    if resume and out is None:
        raise ConfigError("resume=True needs out: the folder of the run to resume")
    options = evaluation or EvaluationOptions()
    experiment = described(
        data, model, algorithm, rounds=rounds, participation=participation, seed=seed,
        evaluation=options, objective=objective, parts=parts or Parts(), label=label,
    )  # fmt: skip
    simulation = Simulation(
        data, model, algorithm, participation=participation, seed=seed, layout=layout,
        evaluate_at_most=options.max_clients, objective=objective, parts=parts,
    )  # fmt: skip
    folder = None if out is None or not leads() else RunDirectory(Path(out))
    going_on = resume and folder is not None and folder.path.exists()
    if going_on and folder is not None:
        _refuse_other(folder, experiment)
    with shown(progress) as watching:
        return _carried_out(
            experiment, simulation, folder, Listeners([*watching, *callbacks]), resume=going_on
        )


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    layout: str | None = None,
    listener: Listener | None = None,
    data: FederatedDataset | None = None,
) -> Run:
    """Carry out an experiment and keep it in a folder; with ``resume`` continue where it stopped.

    ``data`` is what ``experiment.build_data()`` would give, if the caller has it already.
    """
    folder = RunDirectory(out) if leads() else None
    if resume and folder is not None:
        _refuse_other(folder, experiment)
    data = experiment.build_data() if data is None else data
    simulation = _simulation(experiment, data, layout)
    return _carried_out(experiment, simulation, folder, listener or Listener(), resume=resume)


def _carried_out(
    experiment: Experiment,
    simulation: Simulation,
    folder: RunDirectory | None,
    listener: Listener,
    *,
    resume: bool,
) -> Run:
    digest = simulation.data.digest()
    _refuse_unequal_data(digest)
    training = _Training(simulation, experiment, listener, folder=folder, digest=digest)
    found = training.find_checkpoint() if resume and folder is not None else None
    if folder is not None:
        folder.claim(experiment.to_toml(), resume=resume)
        folder.write_schema(simulation.data.schema)
    training.take_up(found)
    return training.finish()


def scored_again(
    experiment: Experiment, run: Run, data: FederatedDataset, *, adapt_on: AdaptOn
) -> dict[str, Any]:
    """The finished run's metrics after 0, 1, 2 … steps of adaptation on the given split.

    For algorithms whose clients keep nothing between rounds: a run does not hold their memory.
    """
    if run.algorithm.needs_memory:
        raise ConfigError(f"{run.algorithm.name} keeps a memory per client, which a run has not")
    simulation = _simulation(experiment, data, None)
    progress = Progress(experiment.rounds, run.state, ())
    options = experiment.evaluation
    most = max(options.curve_steps, options.adapt_steps)
    scores = simulation.evaluate(progress, list(range(most + 1)), adapt_on=adapt_on, most=most)
    return record.adaptation_curve(scores, data)


def _simulation(experiment: Experiment, data: FederatedDataset, layout: str | None) -> Simulation:
    return Simulation(
        data,
        experiment.build_model(),
        experiment.build_algorithm(),
        participation=experiment.participation,
        seed=experiment.seed,
        layout=layout,
        evaluate_at_most=experiment.evaluation.max_clients,
        parts=experiment.parts,
        objective=experiment.objective,
    )


class _Training:
    """The loop between the engine, the clock, the listener and the folder."""

    def __init__(
        self,
        simulation: Simulation,
        experiment: Experiment,
        listener: Listener,
        *,
        folder: RunDirectory | None,
        digest: str,
    ) -> None:
        self.simulation, self.experiment, self.listener = simulation, experiment, listener
        self.rounds, self.options = experiment.rounds, experiment.evaluation
        self.folder, self.digest = folder, digest
        self.fingerprint = f"{experiment.fingerprint()}-{digest}"
        self.progress = simulation.start()
        self.records: list[dict[str, Any]] = []
        self.seconds = self.evaluation_seconds = 0.0
        self.saved_at = time.monotonic()
        self.piece = 1
        self.stopped: str | None = None
        """Why the run ended before its last round, if it did."""

    def find_checkpoint(self) -> Checkpoint | None:
        """The newest good checkpoint, if any was ever written; nothing is changed."""
        assert self.folder is not None
        found, refused = load_newest(
            self.folder.checkpoints, self.simulation.shapes(), self.fingerprint
        )
        for line in refused:
            self.listener.note(f"{line}; it is not used")
        if found is None and refused:
            raise CheckpointError(
                f"no checkpoint in {self.folder.checkpoints} can be used ({refused[0]}); nothing "
                "was changed; to begin anew, choose another folder with --out"
            )
        if found is not None and found.progress.round > self.rounds:
            raise ConfigError(
                f"rounds={self.rounds} is less than the {found.progress.round} rounds already done"
            )
        return found

    def take_up(self, checkpoint: Checkpoint | None) -> None:
        """Go on from a checkpoint; evaluations made after it are made again.

        Of several processes the first has the folder, and tells the others where the run stands.
        """
        if checkpoint is not None:
            self.progress, self.records = checkpoint.progress, checkpoint.records
            self.seconds = checkpoint.seconds
            self.evaluation_seconds = checkpoint.evaluation_seconds
        if agreed(checkpoint is not None):
            self.progress = self._same_everywhere(self.progress)
        if self.folder is not None:
            self.folder.write_metrics(self.records)

    def finish(self) -> Run:
        """All rounds that are left, then the final evaluation and the results."""
        self.listener.started(self.progress.round, self.rounds)
        try:
            self._rounds()
            return self._results()
        except DivergedError as error:
            raise self._with_rescue(error) from error

    def _rounds(self) -> None:
        self._evaluate_if_due()
        while self.progress.round < self.rounds and self.stopped is None:
            every = self.options.every
            boundary = min(self.rounds, (self.progress.round // every + 1) * every)
            self._advance(min(self.piece, boundary - self.progress.round))
            self._evaluate_if_due()
            if self.folder is not None and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
                self._save()

    def _advance(self, rounds: int) -> None:
        begin = time.perf_counter()
        self.progress = self.simulation.advance(self.progress, rounds)
        took = time.perf_counter() - begin
        self.seconds += took
        took = float(agreed(took))
        if took < PIECE_SECONDS:
            self.piece = min(2 * self.piece, 256)
        elif took > 2 * PIECE_SECONDS:
            self.piece = max(1, self.piece // 2)
        loss = float(self.progress.losses[-1])
        self.listener.advanced(self.progress.round, self.rounds, loss)

    def _same_everywhere(self, progress: Progress) -> Progress:
        """A process without the folder does not know the records: their last round tells it all
        that matters to it, which evaluation is done already.
        """
        last = agreed(self.records[-1]["round"] if self.records else -1)
        if not self.records and last >= 0:
            self.records = [{"round": int(last)}]
        state, memory = agreed((progress.state, progress.memory))
        return Progress(int(agreed(progress.round)), state, memory, progress.log)

    def _evaluate_if_due(self) -> None:
        now = self.progress.round
        due = now % self.options.every == 0 or now == self.rounds
        if not due or (self.records and self.records[-1]["round"] == now):
            return
        steps = self.options.adapt_steps
        scores = self._timed_scores([0, steps])
        record.refuse_diverged(scores, self.simulation.data, steps, now)
        log = self.progress.log
        losses = self.progress.losses
        entry = {
            "round": now,
            "seconds": round(self.seconds, 3),
            "evaluation_seconds": round(self.evaluation_seconds, 3),
            "gradient_evaluations": self.simulation.gradient_evaluations(now),
            "train_loss": float(np.mean(losses)) if len(losses) else None,
            "reported": {name: float(np.mean(values)) for name, values in log.items()},
            "adapt_steps": steps,
            "adapt_on": self.options.adapt_on,
            **record.evaluation_record(scores, self.simulation.data, steps),
            **self._stationarity(),
        }
        self.progress = self.progress._replace(log={})
        self.records.append(entry)
        if self.folder is not None:
            self.folder.append_metrics(entry)
        self._save()
        self.listener.evaluated(entry)
        if now < self.rounds:
            why = self.listener.stops()
            if agreed(why is not None):  # of several processes the first decides
                self.stopped = why or "as process 0 decided"

    def _stationarity(self) -> dict[str, float]:
        if not self.options.gradient_norm:
            return {}
        begin = time.perf_counter()
        found = self.simulation.gradient_norm_squared(self.progress)
        self.evaluation_seconds += time.perf_counter() - begin
        return {"gradient_norm_squared": found}

    def _timed_scores(self, steps: list[int]) -> Any:
        begin = time.perf_counter()
        most = max(self.options.curve_steps, self.options.adapt_steps)
        scores = self.simulation.evaluate(
            self.progress, steps, adapt_on=self.options.adapt_on, most=most
        )
        self.evaluation_seconds += time.perf_counter() - begin
        return scores

    def _save(self) -> None:
        if self.folder is None:
            return
        checkpoint = Checkpoint(self.progress, self.seconds, self.evaluation_seconds, self.records)
        save_checkpoint(self.folder.checkpoints, checkpoint, self.fingerprint)
        self.saved_at = time.monotonic()

    def _results(self) -> Run:
        simulation, steps = self.simulation, self.options.adapt_steps
        most = max(self.options.curve_steps, steps)
        scores = self._timed_scores(list(range(most + 1)))
        record.refuse_diverged(scores, simulation.data, steps, self.progress.round)
        summary = self._summary(scores)
        clients = record.client_rows(scores, simulation.data, steps)
        run = Run(
            summary=summary,
            records=self.records,
            clients=clients,
            model=simulation.model,
            algorithm=simulation.algorithm,
            state=jax.tree.map(lambda a: jnp.asarray(np.asarray(a)), self.progress.state),
            schema=simulation.data.schema,
            objective=simulation.objective,
            memory=jax.tree.map(np.asarray, self.progress.memory),
            parts=simulation.model_parts,
            experiment=self.experiment,
            data=simulation.data,
            folder=None if self.folder is None else self.folder.path,
        )
        if self.folder is not None:
            self.folder.write_results(summary, clients, run.start)
        return run

    def _summary(self, scores: Any) -> dict[str, Any]:
        data, algorithm, options = self.simulation.data, self.simulation.algorithm, self.options
        constant = self.simulation.constant_answer()
        marked = options.adapt_on == "test"
        return {
            "algorithm": algorithm.name,
            "label": self.experiment.label,
            "data": data.description,
            "data_digest": self.digest,
            "clients": {"known": data.known_clients, "new": data.new_clients},
            "evaluated_clients": {
                "known": int(np.sum(scores.clients < data.known_clients)),
                "new": int(np.sum(scores.clients >= data.known_clients)),
            },
            "active_clients": self.simulation.active,
            "rounds": self.progress.round,
            "stopped_early": self.stopped,
            "seed": self.experiment.seed,
            "seconds": round(self.seconds, 3),
            "evaluation_seconds": round(self.evaluation_seconds, 3),
            "gradient_evaluations": self.simulation.gradient_evaluations(self.progress.round),
            "gradient_evaluations_per_client": {
                "round": self.simulation.gradients_per_client,
                "adaptation": options.adapt_steps * algorithm.gradients_per_step,
            },
            "bytes": self.simulation.traffic.times(self.progress.round * self.simulation.active),
            "adapt_steps": options.adapt_steps,
            "adapt_on": options.adapt_on,
            "warning": record.ADAPTED_ON_TEST if marked else None,
            "note": record.constant_note(scores, data, options.adapt_steps, constant),
            "failures": record.failures(scores, data, options.adapt_steps, self.records, constant),
            **record.evaluation_record(scores, data, options.adapt_steps),
            "adaptation": record.adaptation_curve(scores, data),
            "host": record.host_facts(),
        }

    def _with_rescue(self, error: DivergedError) -> DivergedError:
        if self.folder is None:
            return error
        kept = f"; the last good checkpoint is in {self.folder.checkpoints}"
        return DivergedError(str(error) + kept, round=error.round, client=error.client)


def _refuse_unequal_data(digest: str) -> None:
    """Processes on several hosts build the data themselves: they must have built the same."""
    mine = np.frombuffer(digest.encode().ljust(16)[:16], np.uint8)
    if not np.array_equal(agreed(mine), mine):
        raise DataError(
            f"this process has other data (digest {digest}) than process 0; give all processes "
            "the same experiment and the same data files"
        )


def _refuse_other(folder: RunDirectory, experiment: Experiment) -> None:
    """Resuming goes on with the same experiment; only the label and the end may change."""
    if not folder.path.exists():
        raise InputError(f"{folder.path} does not exist; there is nothing to resume")
    if folder.experiment().fingerprint() != experiment.fingerprint():
        raise ConfigError(
            f"{folder.path} holds a run with another configuration; resume it without an "
            "experiment file, or choose another folder with --out"
        )
