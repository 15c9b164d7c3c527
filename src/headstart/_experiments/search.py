r"""Tune α, β, τ and ν on a budget of gradient evaluations: successive halving (Jamieson, Talwalkar
2016).

Many settings are trained briefly. The best third is trained three times as long, and so on until
one is left. Every stage costs about the same, so little of the budget is spent on bad settings.
Settings are judged after the experiment's adaptation steps, on training data alone, split again:
held-out examples and new clients are not used. A setting that stays resumes where it stopped. Step
sizes are inputs of the compiled program, so only other values of τ and ν compile again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headstart._experiments import results
from headstart._experiments.configuration import Experiment, Table, build_aggregated_algorithm
from headstart._metric import ACCURACY, Metric
from headstart._simulation.simulation import Progress, Simulation
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.options import require_at_least
from headstart.records import Evaluation

KEEP = 3
"""One in this many settings stays after each stage."""
INNER_LR = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LOCAL_LR = (0.003, 0.01, 0.03, 0.1, 0.3)
LOCAL_STEPS = (1, 5)


@dataclass
class Trial:
    """One setting, how long it was trained and its score at each evaluation."""

    options: Table
    seen: list[tuple[int, float]] = field(default_factory=list)
    """(gradient evaluations so far, primary metric)."""
    diverged: bool = False
    failed: bool = False
    """Whether the model was last no better than the untrained one, or than a constant answer."""

    metric: Metric = ACCURACY

    @property
    def value(self) -> float | None:
        """The latest score; None for a setting that diverged."""
        return None if self.diverged or not self.seen else self.seen[-1][1]

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of settings, the best last; those that failed come first."""
        worth = -math.inf if self.value is None else float(self.metric.gain(self.value, 0.0))
        return not (self.failed or self.diverged), worth


@dataclass(frozen=True)
class Search:
    """All trials, and the experiment with the best options."""

    trials: Sequence[Trial]
    best: Experiment
    spent: int
    """Gradient evaluations in all."""

    def frontier(self) -> list[tuple[int, float, Table]]:
        """Return what no cheaper trial reached: (gradient evaluations, metric, options)."""
        points = sorted(
            (cost, -self.metric.gain(value, 0.0), value, number)
            for number, trial in enumerate(self.trials)
            for cost, value in trial.seen
        )
        frontier: list[tuple[int, float, Table]] = []
        for cost, _, value, number in points:
            if not frontier or self.metric.gain(value, frontier[-1][1]) > 0:
                frontier.append((cost, value, self.trials[number].options))
        return frontier

    @property
    def metric(self) -> Metric:
        """The metric that settings are judged by."""
        return self.trials[0].metric


def candidate_settings(
    adapt_steps: int, methods: Sequence[str] = ("exact",)
) -> list[dict[str, object]]:
    """Return the settings to try; ν is 1, or the number of adaptation steps at test time."""
    steps = sorted({1, max(1, adapt_steps)})
    return [
        {"method": method, "inner_steps": nu, "local_steps": tau, "inner_lr": a, "local_lr": b}
        for method, nu, tau, a, b in itertools.product(
            methods, steps, LOCAL_STEPS, INNER_LR, LOCAL_LR
        )
    ]


def search(
    experiment: Experiment,
    *,
    budget: int,
    candidates: Sequence[Table] | None = None,
    most: int = 27,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Search:
    """Find the best options within ``budget`` gradient evaluations; also try the experiment's."""
    require_at_least(2, most=most)
    if experiment.algorithm["name"] != "per-fedavg":
        raise ConfigError("only per-fedavg can be searched; set algorithm.name=per-fedavg")
    data = experiment.build_data().for_tuning()
    trials = _draw_trials(experiment, candidates, most, seed)
    runs = [_TrialRun(experiment, data, trial) for trial in trials]
    stages = max(1, round(np.log(len(trials)) / np.log(KEEP)) + 1)
    share = budget / stages
    cheapest = min(run.cost_of_round for run in runs)
    if share / len(trials) < cheapest:
        raise ConfigError(
            f"budget={budget} gradient evaluations is too small for {len(trials)} settings; "
            f"give at least {int(np.ceil(cheapest * len(trials) * stages))}, or try fewer"
        )
    alive = list(runs)
    for stage in range(stages):
        for run in alive:
            run.train(share / len(alive))
        alive.sort(key=lambda run: run.trial.rank, reverse=True)
        top = alive[0].trial
        best_yet = f"best {top.metric.text(top.value)} ({format_options(top.options)})"
        say(f"stage {stage + 1} of {stages}: {len(alive)} settings, {best_yet}")
        alive = alive[: max(1, len(alive) // KEEP)]
    if not alive[0].trial.rank[0]:
        raise DivergedError(
            "every setting diverged or learned nothing; try smaller step sizes or a larger budget",
            round=0,
            client="",
        )
    table = experiment.to_table()
    options = {**table["algorithm"], **alive[0].trial.options}
    best = Experiment.from_table({**table, "algorithm": options})
    return Search(trials, best, sum(run.spent for run in runs))


class _TrialRun:
    """A trial that can be trained further; between stages it holds no copy of the data."""

    def __init__(self, experiment: Experiment, data: FederatedDataset, trial: Trial) -> None:
        self.experiment, self.data, self.trial = experiment, data, trial
        simulation = self._simulation()
        self.progress: Progress = simulation.start()
        trial.metric = simulation.objective.primary
        steps = experiment.evaluation.adapt_steps
        scores = simulation.evaluate(self.progress, [0, steps], most=steps)
        self.untrained = Evaluation(
            round=0,
            gradient_evaluations=0,
            adapt_steps=steps,
            adapt_on="train",
            scores=results.summarize_scores(scores, data, steps),
        )
        self.cost_of_round = simulation.gradient_evaluations(1)

    @property
    def spent(self) -> int:
        return self.progress.round * self.cost_of_round

    def train(self, gradients: float) -> None:
        """Train for about this many gradient evaluations, at least one round; then evaluate."""
        if self.trial.diverged:
            return
        simulation, steps = self._simulation(), self.experiment.evaluation.adapt_steps
        try:
            rounds = max(1, int(gradients / self.cost_of_round))
            self.progress = simulation.advance(self.progress, rounds)
        except DivergedError:
            self.trial.diverged = True
            return
        self.progress = self.progress._replace(log={})
        scores = simulation.evaluate(self.progress, [steps], most=steps)
        value = results.known_mean(scores, self.data, steps)
        if value is None or scores.diverged[:, steps].any():
            self.trial.diverged = True
            return
        self.trial.seen.append((self.spent, value))
        constant = simulation.constant_answer()
        self.trial.failed = bool(
            results.find_failures(scores, self.data, steps, self.untrained, constant)
        )

    def _simulation(self) -> Simulation:
        experiment = self.experiment
        return Simulation(
            self.data,
            experiment.build_model(),
            build_aggregated_algorithm(
                {**experiment.algorithm, **self.trial.options}, experiment.aggregation
            ),
            participation=experiment.participation,
            seed=experiment.seed,
            parts=experiment.parts,
            objective=experiment.objective,
        )


def _draw_trials(
    experiment: Experiment, candidates: Sequence[Table] | None, most: int, seed: int
) -> list[Trial]:
    """Return trials of the experiment's own options and of others, drawn at random."""
    keys = ("method", "inner_steps", "local_steps", "inner_lr", "local_lr")
    own = {key: experiment.algorithm[key] for key in keys}
    steps = experiment.evaluation.adapt_steps
    others = list(
        candidate_settings(steps, [str(own["method"])]) if candidates is None else candidates
    )
    order = np.random.default_rng(seed).permutation(len(others))
    chosen = [own] + [o for o in (others[i] for i in order) if o != own]
    return [Trial(dict(options)) for options in chosen[:most]]


def format_options(options: Table) -> str:
    """Format ν, τ, α and β for tables."""
    return (
        f"ν = {options['inner_steps']}, τ = {options['local_steps']}, "
        f"α = {options['inner_lr']:g}, β = {options['local_lr']:g}"
    )


__all__ = ["Search", "Trial", "candidate_settings", "format_options", "search"]
