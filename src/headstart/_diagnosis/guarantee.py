"""What the convergence theorem guarantees for a run, to compare with what the run measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from headstart._diagnosis.measuring import FEW_CLIENTS, FEW_EXAMPLES
from headstart._experiments.configuration import Experiment
from headstart._experiments.finished_run import Run
from headstart._experiments.trajectory import sample_trajectory
from headstart.algorithms._averaging import Averaging
from headstart.algorithms._per_fedavg import PerFedAvg
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError
from headstart.options import convert
from headstart.records import BoundByRounds, RunDirectory, TheoryBound
from headstart.theory import Constants, bounds
from headstart.theory._estimation import compute_mean_loss, estimate_constants


def write_theory_bound(
    experiment: Experiment, data: FederatedDataset, run: Run, folder: Path
) -> None:
    """Write ``theory.json`` to the run's folder; ``headstart report`` draws the bound from it."""
    RunDirectory(folder).write_theory_bound(compute_theory_bound(experiment, data, run))


def compute_theory_bound(experiment: Experiment, data: FederatedDataset, run: Run) -> TheoryBound:
    """Return the bound after every evaluated number of rounds, or why the theorem does not apply.

    The constants are the largest values at the initial and the final model. These are lower
    estimates, and so is the bound.
    """
    start = sample_trajectory(experiment, data, rounds=1, count=1)[0]
    end = run.algorithm.model(run.state)
    model = experiment.build_model()
    inner_lr: float = convert(float, experiment.algorithm["inner_lr"], "algorithm.inner_lr")
    estimate = estimate_constants(
        data, model, [start, end], inner_lr=inner_lr, clients=FEW_CLIENTS, examples=FEW_EXAMPLES,
        seed=experiment.seed, objective=run.objective,
    )  # fmt: skip
    gap = compute_mean_loss(
        data, model, start, clients=FEW_CLIENTS, examples=FEW_EXAMPLES, objective=run.objective
    )
    bound, reason = None, None
    try:
        bound = _bound_by_rounds(experiment, data, estimate.constants, gap, run)
    except ConfigError as error:
        reason = str(error)
    return TheoryBound(
        constants=asdict(estimate.constants),
        what=estimate.describe(),
        initial_gap=gap,
        bound=bound,
        reason=reason,
    )


def _bound_by_rounds(
    experiment: Experiment, data: FederatedDataset, constants: Constants, gap: float, run: Run
) -> BoundByRounds:
    algorithm = _require_plain_averaging(experiment)
    rounds = tuple(evaluation.round for evaluation in run.evaluations if evaluation.round)
    totals = (_bound(experiment, algorithm, data, constants, gap, count) for count in rounds)
    return BoundByRounds(rounds=rounds, total=tuple(totals))


def _bound(
    experiment: Experiment,
    algorithm: Averaging,
    data: FederatedDataset,
    constants: Constants,
    gap: float,
    rounds: int,
) -> float:
    inner, outer, hessian = algorithm.batch_sizes
    inner_lr, steps, method, delta = 0.0, 1, "exact", 1e-3
    if isinstance(algorithm, PerFedAvg):
        method, delta = algorithm.method, algorithm.delta
        if algorithm.inner_steps:  # without, and for FedAvg: the theorem with no adaptation
            inner_lr, steps = algorithm.inner_lr, algorithm.inner_steps
    return bounds.sharpest.stationarity(
        constants, inner_lr=inner_lr, inner_steps=steps,
        batch_sizes=[inner] * steps + [outer], hessian_batch_sizes=hessian,
        method=method, delta=delta,
        local_lr=algorithm.local_lr, local_steps=algorithm.local_steps, rounds=rounds,
        participation=experiment.participation, clients=data.known_clients, initial_gap=gap,
    ).total  # fmt: skip


def _require_plain_averaging(experiment: Experiment) -> Averaging:
    algorithm = experiment.build_algorithm()
    if (
        not isinstance(algorithm, Averaging)
        or algorithm.server_optimizer not in (None, "none")
        or (algorithm.server_lr, algorithm.server_lr_decay) != (1.0, "none")
        or algorithm.warmup_rounds
        or algorithm.weight_decay
        or algorithm.learns_rates
        or algorithm.local_lr_decay != "none"
    ):
        raise ConfigError("the theorem is about plain averaging with a constant local_lr")
    if algorithm.weights != "uniform":
        raise ConfigError("the theorem is about clients that count alike: weights='uniform'")
    if algorithm.clips:
        raise ConfigError(
            "the theorem is about steps that are not clipped: set algorithm.max_gradient_norm=inf "
            f"instead of {algorithm.max_gradient_norm:g}"
        )
    return algorithm
