r"""Find the best method and options on a budget of gradient evaluations: successive halving
(Jamieson, Talwalkar 2016).

Many candidates are trained briefly, all for the same number of gradient evaluations. The best third
is trained further, and so on until at most three are left, which are compared with several seeds if
asked for. Every stage costs about the same, so little of the budget is spent on bad candidates. A
candidate that stays resumes where it stopped. Step sizes are inputs of the compiled program, so
only other methods and numbers of steps compile again.

Candidates are judged after the experiment's adaptation steps, on training data alone: held-out
examples and new clients are never used. What they are judged on is the *goal*:

- ``known``: a quarter of the known clients' training examples, kept out of training.
- ``new``: *validation clients*, known clients that are kept out of training; they adapt like new
  ones.
- ``both``: the mean of the two.

A fifth of the known clients, at least three and at most a quarter, become validation clients. With
fewer than twelve known clients a quarter is less than three. Every candidate is then trained
several times, each time without other clients, until at least three (or all) have been validated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from headstart._experiments import results
from headstart._experiments.configuration import (
    Experiment,
    Table,
    build_aggregated_algorithm,
    is_given,
)
from headstart._metric import ACCURACY, Metric
from headstart._simulation.scoring import Scores
from headstart._simulation.simulation import Progress, Simulation
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike
from headstart.options import require_at_least, require_one_of
from headstart.records import KNOWN, NEW, Evaluation

Goal = Literal["new", "known", "both"]
Say = Callable[[str], None]
KEEP = 3
"""One in this many candidates stays after each stage; the last stage has at most this many."""
MOST = 27
"""Candidates tried unless the caller lists them."""
LEAST_VALIDATED = 3
"""At least this many clients validate, if there are as many."""
INNER_LR = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LOCAL_LR = (0.003, 0.01, 0.03, 0.1, 0.3)
LOCAL_STEPS = (1, 5)
SYMBOLS = {"inner_steps": "ν", "local_steps": "τ", "inner_lr": "α", "local_lr": "β"}


class Subject(NamedTuple):
    """What every candidate is trained on; from Python these may be objects without a name."""

    data: FederatedDataset
    model: Model
    objective: ObjectiveLike = None

    @classmethod
    def from_experiment(cls, experiment: Experiment) -> Subject:
        """Build what the experiment names."""
        return cls(experiment.build_data(), experiment.build_model(), experiment.objective)


class StageScore(NamedTuple):
    """What a candidate had reached at the end of a stage."""

    gradients: int
    """Gradient evaluations of one training run so far."""
    value: float
    """The primary metric, by which candidates are ranked: a mean over groups, splits and seeds."""
    groups: dict[str, float]
    """The metric of known clients, and of validation clients (``new``)."""


@dataclass
class Trial:
    """One candidate: its options, what it spent, what it reached, and why it was discarded."""

    options: Table
    """As listed; what is not listed is the experiment's."""
    shown: Table = field(default_factory=dict)
    """The options in which candidates differ."""
    seen: list[StageScore] = field(default_factory=list)
    """One for each stage that it finished."""
    spent: int = 0
    """Gradient evaluations of all its training runs."""
    diverged: str | None = None
    """Why a training run diverged."""
    failures: tuple[str, ...] = ()
    """Why its model was useless after the latest stage, with finite numbers."""
    discarded: str | None = None
    """Why it did not stay; None for the winner."""
    metric: Metric = ACCURACY

    @property
    def value(self) -> float | None:
        """The latest score; None for a candidate that diverged."""
        return None if self.diverged or not self.seen else self.seen[-1].value

    @property
    def is_useful(self) -> bool:
        """Whether it has a score and its model is of use."""
        return self.value is not None and not self.failures

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of candidates, the best last; those that failed come first."""
        worth = -math.inf if self.value is None else float(self.metric.gain(self.value, 0.0))
        return self.is_useful, worth


@dataclass(frozen=True)
class Search:
    """All trials, and the experiment with the best options."""

    trials: Sequence[Trial]
    winner: Trial
    best: Experiment
    spent: int
    """Gradient evaluations in all."""
    goal: Goal
    validation_clients: tuple[str, ...]
    """Names of the clients that took the place of new ones."""

    def frontier(self) -> list[tuple[int, float, Table]]:
        """Return what no cheaper trial reached: (gradient evaluations, metric, options)."""
        points = sorted(
            (seen.gradients, -self.metric.gain(seen.value, 0.0), seen.value, number)
            for number, trial in enumerate(self.trials)
            for seen in trial.seen
        )
        frontier: list[tuple[int, float, Table]] = []
        for cost, _, value, number in points:
            if not frontier or self.metric.gain(value, frontier[-1][1]) > 0:
                frontier.append((cost, value, self.trials[number].options))
        return frontier

    @property
    def metric(self) -> Metric:
        """The metric that candidates are judged by."""
        return self.winner.metric


def candidate_settings(
    adapt_steps: int, methods: Sequence[str] = ("exact",)
) -> list[dict[str, object]]:
    """Return settings of Per-FedAvg; ν is 1, or the number of adaptation steps at test time."""
    steps = sorted({1, max(1, adapt_steps)})
    return _combine(
        method=methods, inner_steps=steps, local_steps=LOCAL_STEPS,
        inner_lr=INNER_LR, local_lr=LOCAL_LR,
    )  # fmt: skip


def search(
    experiment: Experiment,
    *,
    budget: int,
    candidates: Sequence[Table] | None = None,
    goal: Goal | None = None,
    validation_splits: int | None = None,
    most: int | None = None,
    final_seeds: int = 1,
    shots: int | None = None,
    seed: int = 0,
    say: Say = lambda line: None,
    subject: Subject | None = None,
) -> Search:
    """Find the best candidate within about ``budget`` gradient evaluations.

    Args:
        experiment: Data, model, adaptation, and the options that candidates do not change. Its own
            options are the first candidate.
        budget: Gradient evaluations in all, on batches; adaptation for scoring does not count.
        candidates: Tables of options of ``[algorithm]``. One with a ``name`` is of that algorithm,
            which keeps the options it shares with the experiment's. By default step sizes and
            numbers of steps of the experiment's algorithm.
        goal: Clients to judge by; by default ``new`` if the experiment has new clients.
        validation_splits: How often each candidate is trained, each time without other clients; by
            default once, or as often as fewer than twelve known clients need. More splits judge by
            more clients and divide the budget.
        most: The most candidates to try, drawn at random; by default all that are listed, or 27.
        final_seeds: Seeds that each candidate of the last stage is trained with.
        shots: Clients are judged after adapting to at most this many examples; by default to all.
        seed: Decides which candidates are drawn, and the validation clients.
        say: Receives a line for each candidate and stage.
        subject: Data, model and objective; by default what the experiment names.
    """
    require_at_least(1, final_seeds=final_seeds)
    if goal is not None:
        require_one_of(("new", "known", "both"), goal=goal)
    subject = subject or Subject.from_experiment(experiment)
    whole = subject.data
    chosen: Goal = goal or ("new" if whole.new_clients else "known")
    splits = _tuning_splits(whole, chosen, validation_splits, seed)
    trials = _draw_trials(experiment, candidates, most, seed)
    subjects = [subject._replace(data=split) for split in splits]
    contestants = [_Contestant(experiment, subjects, chosen, shots, trial) for trial in trials]
    stages = _Stages.plan(len(trials), budget / len(splits), final_seeds)
    stages.refuse_small_budget(contestants, budget, len(splits))
    validated = tuple(split.name(c) for split in splits for c in _validation_clients(split))
    say(
        f"{len(trials)} candidates in {stages.count} stages, judged by "
        + (f"{len(validated)} validation clients" if chosen == "new" else f"{chosen} clients")
    )
    best = _hold_stages(contestants, stages, say)
    spent = sum(trial.spent for trial in trials)
    found = _with_options(experiment, best.algorithm)
    return Search(trials, best.trial, found, spent, chosen, validated)


def choose_validation_splits(
    known: int, seed: int, *, splits: int | None = None
) -> list[list[int]]:
    """Return the validation clients of each split of this many known clients.

    No client is in two splits. By default there are as few as three validation clients need.

    >>> [len(split) for split in choose_validation_splits(50, 0)]
    [10]
    >>> [len(split) for split in choose_validation_splits(9, 0)]
    [2, 2]
    >>> [len(split) for split in choose_validation_splits(9, 0, splits=4)]
    [2, 2, 2, 2]
    >>> sorted(choose_validation_splits(2, 0))
    [[0], [1]]
    """
    if known < 2:
        raise ConfigError(
            f"{known} known client cannot be kept out of training; use goal='known' to judge by "
            "further examples of known clients"
        )
    each = max(1, min(max(LEAST_VALIDATED, known // 5), known // 4))
    count = math.ceil(min(LEAST_VALIDATED, known) / each) if splits is None else splits
    if not 1 <= count <= known // each:
        raise ConfigError(
            f"validation_splits={count} must lie between 1 and {known // each}: each keeps {each} "
            f"of {known} known clients out of training"
        )
    drawn = np.random.default_rng(seed).permutation(known)[: each * count]
    return [sorted(part.tolist()) for part in drawn.reshape(count, each)]


@dataclass(frozen=True)
class _Stages:
    """How many candidates each stage has, and how long it trains them."""

    sizes: tuple[int, ...]
    share: float
    """Gradient evaluations of a stage, of one split."""
    final_seeds: int

    @classmethod
    def plan(cls, candidates: int, budget: float, final_seeds: int) -> _Stages:
        """Give every stage the same share; further seeds repeat all that finalists did so far."""
        sizes = [candidates]
        while sizes[-1] > KEEP:
            sizes.append(max(1, sizes[-1] // KEEP))
        repeated = (final_seeds - 1) * sizes[-1] * sum(1 / size for size in sizes)
        return cls(tuple(sizes), budget / (len(sizes) + repeated), final_seeds)

    @property
    def count(self) -> int:
        return len(self.sizes)

    def target(self, stage: int) -> float:
        """Return the gradient evaluations of a candidate from the start to the end of a stage."""
        return self.share * sum(1 / size for size in self.sizes[: stage + 1])

    def refuse_small_budget(
        self, contestants: Sequence[_Contestant], budget: int, splits: int
    ) -> None:
        """Raise ConfigError if the first stage has not one round for the dearest candidate."""
        dearest = max(contestant.cost_of_round for contestant in contestants)
        if self.target(0) < dearest:
            needed = math.ceil(budget * dearest / self.target(0))
            times = "" if splits == 1 else f", each trained on {splits} splits,"
            raise ConfigError(
                f"budget={budget} gradient evaluations is too small for {self.sizes[0]} "
                f"candidates{times}; give at least {needed}, or try fewer"
            )


def _hold_stages(contestants: Sequence[_Contestant], stages: _Stages, say: Say) -> _Contestant:
    """Train and discard, stage by stage; return the winner."""
    alive = list(contestants)
    for stage in range(stages.count):
        last = stage == stages.count - 1
        where = f"stage {stage + 1} of {stages.count}"
        for number, contestant in enumerate(alive, start=1):
            contestant.train(stages.target(stage), seeds=stages.final_seeds if last else 1)
            say(f"{where}, {number} of {len(alive)}: {_describe(contestant.trial)}")
        trained, quota = len(alive), 1 if last else stages.sizes[stage + 1]
        alive = _discard(alive, quota, where)
        top = alive[0].trial if alive else None
        if top is None or (last and not top.is_useful):
            raise DivergedError(
                "every setting diverged or learned nothing; try smaller step sizes or a larger "
                "budget",
                round=0,
                client="",
            )
        reached = f"best {top.metric.text(top.value)} ({format_options(top.shown)})"
        say(f"{where}: {len(alive)} of {trained} candidates stay, {reached}")
    return alive[0]


def _discard(contestants: Sequence[_Contestant], quota: int, where: str) -> list[_Contestant]:
    """Return those that stay, the best first, and note for the others why they do not.

    One that failed may only have been trained too briefly: it stays if no other is better.
    """
    ranked = sorted(contestants, key=lambda each: each.trial.rank, reverse=True)
    useful = any(each.trial.is_useful for each in ranked)
    stay: list[_Contestant] = []
    for contestant in ranked:
        trial = contestant.trial
        if trial.diverged:
            trial.discarded = f"{where}: {trial.diverged}"
        elif trial.failures and useful:
            trial.discarded = f"{where}: {'; '.join(trial.failures)}"
        elif len(stay) >= quota:
            trial.discarded = f"{where}: {trial.metric.text(trial.value)}, others were better"
        else:
            stay.append(contestant)
            continue
        contestant.forget()
    return stay


class _Contestant:
    """A trial with its training runs, one for each split and seed."""

    def __init__(
        self,
        experiment: Experiment,
        subjects: Sequence[Subject],
        goal: Goal,
        shots: int | None,
        trial: Trial,
    ) -> None:
        self.experiment, self.subjects, self.goal, self.trial = experiment, subjects, goal, trial
        self.shots = shots
        self.algorithm = _complete_options(experiment, trial.options)
        self.runs = [_TrainingRun(experiment, self.algorithm, each, shots, 0) for each in subjects]
        self.cost_of_round = max(run.cost_of_round for run in self.runs)
        trial.metric = self.runs[0].metric

    def train(self, gradients: float, seeds: int) -> None:
        """Train every run up to this many gradient evaluations in all, and note the score."""
        have = len(self.runs) // len(self.subjects)
        self.runs += [
            _TrainingRun(self.experiment, self.algorithm, subject, self.shots, seed)
            for seed in range(have, seeds)
            for subject in self.subjects
        ]
        trial = self.trial
        failures: list[str] = []
        groups: dict[str, list[float]] = {}
        try:
            for run in self.runs:
                outcome = run.train(gradients)
                failures += outcome.failures
                for group, value in outcome.groups.items():
                    groups.setdefault(group, []).append(value)
        except DivergedError as error:
            trial.diverged = str(error)
            return
        finally:
            trial.spent = sum(run.spent for run in self.runs)
        means = {group: float(np.mean(values)) for group, values in groups.items()}
        wanted = [KNOWN, NEW] if self.goal == "both" else [self.goal]
        if any(group not in means for group in wanted):
            trial.diverged = f"no client defines the metric {trial.metric.word}"
            return
        value = float(np.mean([means[group] for group in wanted]))
        trial.seen.append(StageScore(self.runs[0].spent, value, means))
        trial.failures = tuple(dict.fromkeys(failures))

    def forget(self) -> None:
        """Free the models."""
        self.runs.clear()


class _Outcome(NamedTuple):
    """The scores of a training run."""

    groups: dict[str, float]
    failures: tuple[str, ...]


class _TrainingRun:
    """Training that can be continued; between stages it holds no copy of the data."""

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Table,
        subject: Subject,
        shots: int | None,
        seed: int,
    ) -> None:
        self.experiment, self.algorithm, self.subject = experiment, algorithm, subject
        self.data = subject.data
        self.shots = shots
        self.seed = (experiment.seed + seed) % 2**32
        simulation = self._simulation()
        self.steps = experiment.evaluation.adapt_steps
        self.progress: Progress = simulation.start()
        self.metric: Metric = simulation.objective.primary
        self.cost_of_round = simulation.active * simulation.gradients_per_client
        """On average: with local epochs it depends on the clients of the round."""
        self.spent = 0
        self.evaluations = [self._evaluation(self._scores(simulation))]

    def train(self, gradients: float) -> _Outcome:
        """Train up to this many gradient evaluations in all, then score and check the model."""
        simulation = self._simulation()
        rounds = max(1, int(gradients / self.cost_of_round)) - self.progress.round
        try:
            self.progress = simulation.advance(self.progress, max(0, rounds))
        except DivergedError as error:
            self.spent = simulation.gradient_evaluations(error.round or self.progress.round)
            raise
        self.spent = simulation.gradient_evaluations(self.progress.round)
        self.progress = self.progress._replace(log={})
        scores = self._scores(simulation)
        results.refuse_diverged(scores, self.data, self.steps, self.progress.round)
        self.evaluations.append(self._evaluation(scores))
        failures = results.find_failures(
            scores, self.data, self.steps, self.evaluations, simulation.constant_answer(),
            simulation.liveness(self.progress),
        )  # fmt: skip
        return _Outcome(_group_means(scores, self.data, self.steps), failures)

    def _scores(self, simulation: Simulation) -> Scores:
        steps = [0, self.steps]
        return simulation.evaluate(self.progress, steps, most=self.steps, shots=self.shots)

    def _evaluation(self, scores: Scores) -> Evaluation:
        return Evaluation(
            round=self.progress.round,
            gradient_evaluations=self.spent,
            adapt_steps=self.steps,
            adapt_on="train",
            scores=results.summarize_scores(scores, self.data, self.steps),
        )

    def _simulation(self) -> Simulation:
        experiment = self.experiment
        return Simulation(
            self.data,
            self.subject.model,
            build_aggregated_algorithm(self.algorithm, experiment.aggregation),
            participation=experiment.participation,
            seed=self.seed,
            evaluate_at_most=experiment.evaluation.max_clients,
            parts=experiment.parts,
            objective=self.subject.objective,
        )


def _group_means(scores: Scores, data: FederatedDataset, steps: int) -> dict[str, float]:
    """Return the mean of the primary metric over the clients of each group that define it."""
    means = {}
    for group, rows in results.rows_by_group(scores, data).items():
        values = scores.primary[rows, steps]
        defined = values[np.isfinite(values)]
        if len(defined):
            means[group] = float(np.mean(defined))
    return means


def _tuning_splits(
    data: FederatedDataset, goal: Goal, splits: int | None, seed: int
) -> list[FederatedDataset]:
    if goal == "known":
        return [data.for_tuning()]
    return [
        data.for_tuning(validation_clients=clients)
        for clients in choose_validation_splits(data.known_clients, seed, splits=splits)
    ]


def _validation_clients(split: FederatedDataset) -> range:
    return range(split.known_clients, split.clients)


def _draw_trials(
    experiment: Experiment, candidates: Sequence[Table] | None, most: int | None, seed: int
) -> list[Trial]:
    """Return trials of the experiment's own options and of others, drawn at random."""
    if is_given(experiment.algorithm):
        raise ConfigError("an algorithm given from Python cannot be searched; name one instead")
    others = _default_candidates(experiment) if candidates is None else list(candidates)
    limit = most if most is not None else MOST if candidates is None else len(others) + 1
    require_at_least(2, most=limit)
    keys = dict.fromkeys(key for table in others for key in table)
    own = {key: experiment.algorithm[key] for key in keys if key in experiment.algorithm}
    full = _complete_options(experiment, own)
    order = np.random.default_rng(seed).permutation(len(others))
    chosen: list[tuple[Table, Table]] = [(own, full)]
    for options in (others[place] for place in order):
        complete = _complete_options(experiment, options)
        if all(complete != other for _, other in chosen):
            chosen.append((options, complete))
    tables = [options for options, _ in chosen[:limit]]
    varying = [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]
    return [
        Trial(dict(table), {key: table[key] for key in varying if key in table}) for table in tables
    ]


def _complete_options(experiment: Experiment, options: Table) -> Table:
    """Return the whole ``[algorithm]`` table of a candidate."""
    name = str(options.get("name", experiment.algorithm["name"]))
    same = name == experiment.algorithm["name"]
    base = experiment if same else experiment.with_algorithm(name)
    table = base.to_table()
    changed = {**table["algorithm"], **options}
    return Experiment.from_table({**table, "algorithm": changed}).algorithm


def _with_options(experiment: Experiment, algorithm: Table) -> Experiment:
    """Return the experiment with other options; a label made from the old ones is made again."""
    table = experiment.to_table()
    if experiment.label == experiment.build_algorithm().label:
        del table["label"]
    return Experiment.from_table({**table, "algorithm": dict(algorithm)})


def _default_candidates(experiment: Experiment) -> list[dict[str, object]]:
    """Return step sizes and numbers of steps, as far as the algorithm has such options."""
    own = experiment.algorithm
    if own["name"] == "per-fedavg":
        return candidate_settings(experiment.evaluation.adapt_steps, [str(own["method"])])
    known = {"local_steps": LOCAL_STEPS, "inner_lr": INNER_LR, "local_lr": LOCAL_LR}
    present = {key: values for key, values in known.items() if key in own}
    if not present:
        raise ConfigError(
            f"algorithm {own['name']!r} has none of {list(known)}; list the candidates"
        )
    return _combine(**present)


def _combine(**values: Sequence[object]) -> list[dict[str, object]]:
    """Return a table for every combination of the options' values."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def format_options(options: Table) -> str:
    """Format options for tables: ν, τ, α and β by their symbols, others by their names.

    >>> format_options({"name": "fedavg", "local_steps": 5, "local_lr": 0.1, "server_lr": 0.5})
    'fedavg, τ = 5, β = 0.1, server_lr = 0.5'
    """
    words = [str(options[key]) for key in ("name", "method") if key in options]
    for key in sorted(options, key=lambda key: (key not in SYMBOLS, [*SYMBOLS, key].index(key))):
        if key in ("name", "method"):
            continue
        value = options[key]
        number = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(f"{SYMBOLS.get(key, key)} = {number}")
    return ", ".join(words)


def _describe(trial: Trial) -> str:
    options = format_options(trial.shown)
    if trial.diverged:
        return f"{options}: diverged"
    failed = f", failed: {trial.failures[0]}" if trial.failures else ""
    return f"{options}: {trial.metric.text(trial.value)}{failed}"


__all__ = [
    "Goal",
    "Search",
    "StageScore",
    "Subject",
    "Trial",
    "candidate_settings",
    "choose_validation_splits",
    "format_options",
    "search",
]
