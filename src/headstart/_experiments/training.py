"""Train a shared model and evaluate it, with or without a folder to keep the run in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from headstart._experiments import choice_results, results
from headstart._experiments.arguments import check_arguments
from headstart._experiments.callbacks import Listener, Listeners
from headstart._experiments.configuration import EvaluationOptions, Experiment
from headstart._experiments.description import describe_experiment
from headstart._experiments.finished_run import Run
from headstart._experiments.progress import progress_listeners
from headstart._experiments.run_files import RunStore
from headstart._simulation.scoring import Scores
from headstart._simulation.simulation import Progress, Simulation
from headstart._simulation.step_choice import Choices, make_choices
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DataError, DivergedError
from headstart.machine import broadcast_from_leader, is_leader
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike
from headstart.parts import Parts
from headstart.records import (
    ADAPTED_ON_TEST,
    AdaptationCurves,
    AdaptOn,
    ByteCounts,
    ClientCounts,
    Evaluation,
    GradientsPerClient,
    RunDirectory,
    RunSummary,
    ShotScores,
)
from headstart.records._checkpoint import Checkpoint

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
    objective: ObjectiveLike = None,
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
        resume: Resume the run in ``out`` where it stopped; if there is none, start it.
        callbacks: Follow progress, and may end the run early (:class:`headstart.EarlyStopping`).
        progress: Whether to show progress; by default on a terminal and in a notebook.
        layout: How clients are laid out over the devices; by default by the size of the network.

    Call :func:`headstart.machine.use_all_cores` first, before JAX has started, to use every core.
    """
    check_arguments(data, model, algorithm, rounds)
    if resume and out is None:
        raise ConfigError("resume=True needs out: the folder of the run to resume")
    options = evaluation or EvaluationOptions()
    experiment = describe_experiment(
        data, model, algorithm, rounds=rounds, participation=participation, seed=seed,
        evaluation=options, objective=objective, parts=parts or Parts(), label=label,
    )  # fmt: skip
    simulation = Simulation(
        data, model, algorithm, participation=participation, seed=seed, layout=layout,
        evaluate_at_most=options.max_clients, objective=objective, parts=parts,
    )  # fmt: skip
    digest = data.digest()
    store = None if out is None else _store(experiment, Path(out), digest)
    resumed = resume and store is not None and store.folder.path.exists()
    if resumed and store is not None:
        store.refuse_other_experiment()
    with progress_listeners(progress) as watching:
        listener = Listeners([*watching, *callbacks])
        return _train(experiment, simulation, store, digest, listener, resume=resumed)


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    layout: str | None = None,
    listener: Listener | None = None,
    data: FederatedDataset | None = None,
) -> Run:
    """Run an experiment and keep it in a folder; with ``resume``, continue where it stopped.

    ``data`` is the result of ``experiment.build_data()``, if the caller has it already.
    """
    if resume and is_leader():
        RunStore(RunDirectory(out), experiment, "").refuse_other_experiment()
    data = experiment.build_data() if data is None else data
    simulation = _simulation(experiment, data, layout)
    digest = data.digest()
    store = _store(experiment, out, digest)
    return _train(experiment, simulation, store, digest, listener or Listener(), resume=resume)


def score_again(
    experiment: Experiment, run: Run, data: FederatedDataset, *, adapt_on: AdaptOn
) -> AdaptationCurves:
    """Return the finished run's metrics after 0, 1, 2 … steps of adaptation on the given split.

    Only for algorithms whose clients keep no memory between rounds.
    """
    if run.algorithm.needs_memory:
        raise ConfigError(f"{run.algorithm.name} keeps a memory per client; it is not at hand here")
    simulation = _simulation(experiment, data, None)
    progress = Progress(experiment.rounds, run.state, ())
    most = experiment.evaluation.most_steps
    scores = simulation.evaluate(progress, list(range(most + 1)), adapt_on=adapt_on, most=most)
    return results.adaptation_curves(scores, data)


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


def _store(experiment: Experiment, out: Path, digest: str) -> RunStore | None:
    """Return what keeps the run in its folder: only the first of several processes has it."""
    return RunStore(RunDirectory(out), experiment, digest) if is_leader() else None


def _train(
    experiment: Experiment,
    simulation: Simulation,
    store: RunStore | None,
    digest: str,
    listener: Listener,
    *,
    resume: bool,
) -> Run:
    _refuse_unequal_data(digest)
    checkpoint = None
    if resume and store is not None:
        checkpoint = store.newest_checkpoint(simulation.shapes(), listener.note)
    if store is not None:
        store.folder.claim(experiment.to_toml(), resume=resume)
        store.folder.write_schema(simulation.data.schema)
    loop = _TrainingLoop(simulation, experiment, listener, store)
    loop.resume(checkpoint)
    try:
        loop.run_rounds()
        run = loop.finish(digest)
    except DivergedError as error:
        raise _name_checkpoints(error, store) from error
    if store is not None:
        store.write_results(run)
    return run


class _TrainingLoop:
    """Advances the engine, evaluates when it is due and reports to the listener."""

    def __init__(
        self,
        simulation: Simulation,
        experiment: Experiment,
        listener: Listener,
        store: RunStore | None,
    ) -> None:
        self.simulation, self.experiment, self.listener = simulation, experiment, listener
        self.store = store
        self.rounds, self.options = experiment.rounds, experiment.evaluation
        self.progress = simulation.start()
        self.evaluations: list[Evaluation] = []
        self.evaluated_round = -1
        """The round of the newest evaluation; a process without the folder has no others."""
        self.seconds = self.evaluation_seconds = 0.0
        self.piece = 1
        """Rounds of the next call of the compiled program."""
        self.stopped: str | None = None
        """Why the run ended before its last round, if it did."""

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Continue from a checkpoint; evaluations made after it are repeated.

        The first of several processes has the folder; it tells the others where the run is.
        """
        if checkpoint is not None:
            self.progress = Progress(
                checkpoint.round, checkpoint.state, checkpoint.memory, checkpoint.log
            )
            self.evaluations = list(checkpoint.evaluations)
            self.evaluated_round = self.evaluations[-1].round if self.evaluations else -1
            self.seconds = checkpoint.seconds
            self.evaluation_seconds = checkpoint.evaluation_seconds
        if broadcast_from_leader(checkpoint is not None):
            self.evaluated_round = int(broadcast_from_leader(self.evaluated_round))
            state, memory = broadcast_from_leader((self.progress.state, self.progress.memory))
            round = int(broadcast_from_leader(self.progress.round))
            self.progress = Progress(round, state, memory, self.progress.log)
        if self.store is not None:
            self.store.folder.write_evaluations(self.evaluations)

    def run_rounds(self) -> None:
        """Run the remaining rounds."""
        self.listener.started(self.progress.round, self.rounds)
        self._evaluate_if_due()
        while self.progress.round < self.rounds and self.stopped is None:
            every = self.options.every
            boundary = min(self.rounds, (self.progress.round // every + 1) * every)
            self._advance(min(self.piece, boundary - self.progress.round))
            self._evaluate_if_due()
            if self.store is not None and self.store.seconds_since_saved > CHECKPOINT_SECONDS:
                self._save()

    def finish(self, data_digest: str) -> Run:
        """Evaluate after every number of adaptation steps and return the run."""
        simulation, steps = self.simulation, self.options.adapt_steps
        scores = self._evaluate(list(range(self.options.most_steps + 1)))
        results.refuse_diverged(scores, simulation.data, steps, self.progress.round)
        clients = results.client_results(scores, simulation.data, steps)
        choices = self._choose_steps() if self.options.compares_steps else None
        if choices is not None:
            clients = choice_results.add_choices(clients, choices)
        return Run(
            summary=self._summary(scores, choices, data_digest),
            evaluations=tuple(self.evaluations),
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
            folder=None if self.store is None else self.store.folder.path,
        )

    def _advance(self, rounds: int) -> None:
        begin = time.perf_counter()
        self.progress = self.simulation.advance(self.progress, rounds)
        took = time.perf_counter() - begin
        self.seconds += took
        took = float(broadcast_from_leader(took))
        if took < PIECE_SECONDS:
            self.piece = min(2 * self.piece, 256)
        elif took > 2 * PIECE_SECONDS:
            self.piece = max(1, self.piece // 2)
        loss = float(self.progress.losses[-1])
        self.listener.advanced(self.progress.round, self.rounds, loss)

    def _evaluate_if_due(self) -> None:
        now = self.progress.round
        due = now % self.options.every == 0 or now == self.rounds
        if not due or self.evaluated_round == now:
            return
        scores = self._evaluate([0, self.options.adapt_steps])
        results.refuse_diverged(scores, self.simulation.data, self.options.adapt_steps, now)
        evaluation = self._evaluation(scores)
        self.progress = self.progress._replace(log={})
        self.evaluations.append(evaluation)
        self.evaluated_round = now
        if self.store is not None:
            self.store.folder.append_evaluation(evaluation)
        self._save()
        self.listener.evaluated(evaluation)
        if now < self.rounds:
            why = self.listener.stops()
            if broadcast_from_leader(why is not None):  # of several processes the first decides
                self.stopped = why or "as process 0 decided"

    def _evaluate(self, steps: list[int], shots: int | None = None) -> Scores:
        begin = time.perf_counter()
        scores = self.simulation.evaluate(
            self.progress,
            steps,
            adapt_on=self.options.adapt_on,
            most=self.options.most_steps,
            shots=shots,
        )
        self.evaluation_seconds += time.perf_counter() - begin
        return scores

    def _choose_steps(self) -> Choices:
        """Let every evaluated client choose its number of adaptation steps."""
        begin, simulation = time.perf_counter(), self.simulation
        comparison = simulation.compare_steps(self.progress, self.options.adapt_steps)
        counts = np.asarray(simulation.data.train_counts)[simulation.evaluated]
        choices = make_choices(comparison, simulation.evaluated, counts)
        self.evaluation_seconds += time.perf_counter() - begin
        return choices

    def _score_shots(self) -> tuple[ShotScores, ...] | None:
        """Score clients that adapt to a few of their examples."""
        steps = list(range(self.options.most_steps + 1))
        scores = {shots: self._evaluate(steps, shots) for shots in self.options.shots}
        return choice_results.summarize_shots(scores, self.simulation.data)

    def _evaluation(self, scores: Scores) -> Evaluation:
        round_, steps = self.progress.round, self.options.adapt_steps
        losses, log = self.progress.losses, self.progress.log
        return Evaluation(
            round=round_,
            seconds=round(self.seconds, 3),
            evaluation_seconds=round(self.evaluation_seconds, 3),
            gradient_evaluations=self.simulation.gradient_evaluations(round_),
            train_loss=float(np.mean(losses)) if len(losses) else None,
            reported={name: float(np.mean(values)) for name, values in log.items()},
            adapt_steps=steps,
            adapt_on=self.options.adapt_on,
            scores=results.summarize_scores(scores, self.simulation.data, steps),
            gradient_norm_squared=self._gradient_norm_squared(),
        )

    def _gradient_norm_squared(self) -> float | None:
        if not self.options.gradient_norm:
            return None
        begin = time.perf_counter()
        norm = self.simulation.gradient_norm_squared(self.progress)
        self.evaluation_seconds += time.perf_counter() - begin
        return norm

    def _save(self) -> None:
        if self.store is not None:
            self.store.save(self.progress, self.evaluations, self.seconds, self.evaluation_seconds)

    def _summary(self, scores: Scores, choices: Choices | None, data_digest: str) -> RunSummary:
        simulation, data, options = self.simulation, self.simulation.data, self.options
        shots = self._score_shots()
        rounds, steps = self.progress.round, options.adapt_steps
        constant = simulation.constant_answer()
        traffic = simulation.traffic.times(rounds * simulation.active)
        return RunSummary(
            algorithm=simulation.algorithm.name,
            label=self.experiment.label,
            data=data.description,
            data_digest=data_digest,
            clients=ClientCounts(known=data.known_clients, new=data.new_clients),
            evaluated_clients=results.count_evaluated(scores, data),
            active_clients=simulation.active,
            rounds=rounds,
            stopped_early=self.stopped,
            seed=self.experiment.seed,
            seconds=round(self.seconds, 3),
            evaluation_seconds=round(self.evaluation_seconds, 3),
            gradient_evaluations=simulation.gradient_evaluations(rounds),
            gradient_evaluations_per_client=GradientsPerClient(
                round=simulation.gradients_per_client,
                adaptation=steps * simulation.algorithm.gradients_per_step,
            ),
            bytes=ByteCounts(down=traffic.down, up=traffic.up),
            adapt_steps=steps,
            adapt_on=options.adapt_on,
            warning=ADAPTED_ON_TEST if options.adapt_on == "test" else None,
            note=results.constant_note(scores, data, steps, constant),
            failures=results.find_failures(
                scores, data, steps, self.evaluations, constant, simulation.liveness(self.progress)
            ),
            scores=results.summarize_scores(scores, data, steps),
            adaptation=results.adaptation_curves(scores, data),
            rates=results.mean_rates(simulation.algorithm.adaptation_rates(self.progress.state)),
            choice=None
            if choices is None
            else choice_results.summarize_choices(scores, choices, data, steps),
            shots=shots,
            host=results.host_facts(),
        )


def _name_checkpoints(error: DivergedError, store: RunStore | None) -> DivergedError:
    """Return the error with the place of the last good checkpoint, if there is one."""
    if store is None:
        return error
    checkpoints = f"; the last good checkpoint is in {store.folder.checkpoints}"
    return DivergedError(str(error) + checkpoints, round=error.round, client=error.client)


def _refuse_unequal_data(digest: str) -> None:
    """Processes on several hosts build the data themselves: they must have built the same."""
    mine = np.frombuffer(digest.encode().ljust(16)[:16], np.uint8)
    if not np.array_equal(broadcast_from_leader(mine), mine):
        raise DataError(
            f"this process has other data (digest {digest}) than process 0; give all processes "
            "the same experiment and the same data files"
        )
