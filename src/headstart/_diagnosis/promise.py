"""What the convergence theorem promises for a run, to stand beside what was measured in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headstart._atomic_files import write_json
from headstart._diagnosis.measuring import FEW_CLIENTS, FEW_EXAMPLES
from headstart._experiments.configuration import Experiment
from headstart._experiments.run import Run
from headstart._experiments.trajectory import models_on_the_way
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError
from headstart.theory import Constants, bounds
from headstart.theory._estimation import compute_mean_loss, estimate_constants

FILE = "theory.json"


def write_promise(experiment: Experiment, data: FederatedDataset, run: Run, folder: Path) -> None:
    """``theory.json`` in the run's folder, from which ``headstart report`` draws the bound."""
    write_json(folder / FILE, promised(experiment, data, run))


def promised(experiment: Experiment, data: FederatedDataset, run: Run) -> dict[str, Any]:
    """The bound after every evaluated number of rounds, or why there is none.

    Constants are looked for at the initial and the final model: lower estimates, so the bound
    is one, too.
    """
    start = models_on_the_way(experiment, data, rounds=1, count=1)[0]
    end = run.algorithm.model(run.state)
    options = experiment.algorithm
    model, inner_lr = experiment.build_model(), float(options["inner_lr"])
    found = estimate_constants(
        data, model, [start, end], inner_lr=inner_lr, clients=FEW_CLIENTS, examples=FEW_EXAMPLES,
        seed=experiment.seed, objective=run.objective,
    )  # fmt: skip
    gap = compute_mean_loss(
        data, model, start, clients=FEW_CLIENTS, examples=FEW_EXAMPLES, objective=run.objective
    )
    table = {"constants": asdict(found.constants), "what": found.describe(), "initial_gap": gap}
    rounds = [evaluation.round for evaluation in run.evaluations if evaluation.round]
    try:
        _refuse_other_algorithms(options)
        bound = [_bound(experiment, data, found.constants, gap, k) for k in rounds]
    except ConfigError as error:
        return {**table, "bound": None, "reason": str(error)}
    return {**table, "bound": {"rounds": rounds, "total": bound}, "reason": None}


def _bound(
    experiment: Experiment, data: FederatedDataset, c: Constants, gap: float, rounds: int
) -> float:
    algorithm: Any = experiment.build_algorithm()
    inner, outer, hessian = algorithm.batch_sizes
    options = experiment.algorithm
    steps = options.get("inner_steps", 0)
    step: dict[str, Any] = {"inner_lr": algorithm.inner_lr, "inner_steps": steps}
    sizes: Sequence[int] = [inner] * steps + [outer]
    if steps == 0:  # FedAvg: the theorem with no adaptation
        step, sizes = {"inner_lr": 0.0, "inner_steps": 1}, [inner, outer]
    return bounds.sharpest.stationarity(
        c, **step, batch_sizes=sizes, hessian_batch_sizes=hessian,
        method=options.get("method", "exact"), delta=options.get("delta", 1e-3),
        local_lr=algorithm.local_lr, local_steps=algorithm.local_steps, rounds=rounds,
        participation=experiment.participation, clients=data.known_clients, initial_gap=gap,
    ).total  # fmt: skip


def _refuse_other_algorithms(options: Any) -> None:
    if options.get("server_optimizer") or options["local_lr_decay"] != "none":
        raise ConfigError("the theorem is about plain averaging with a constant local_lr")
    if options["weights"] != "uniform":
        raise ConfigError("the theorem is about clients that count alike: weights='uniform'")
