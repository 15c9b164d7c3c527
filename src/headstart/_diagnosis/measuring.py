"""Measure everything that a diagnosis reports: sizes, distances, γ's, and a pilot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import jax
import numpy as np

from headstart._diagnosis.pilot import ListenerFor, Pilot, level, run_pilot
from headstart._experiments.configuration import Experiment, Table
from headstart._experiments.training import Listener
from headstart._simulation.sampling import count_active_clients
from headstart.data._dataset_summary import describe
from headstart.data._federated import FederatedDataset
from headstart.errors import DataError
from headstart.heterogeneity import (
    Distances,
    estimate_similarity,
    label_distributions,
    label_names,
    total_variation,
    wasserstein,
)
from headstart.options import convert, require_at_least
from headstart.records._base import JsonTable
from headstart.theory._estimation import (
    Estimate,
    Sensitivity,
    estimate_constants,
    estimate_sensitivity,
)
from headstart.theory._label_part import LabelPart, measure_label_part
from headstart.trees import size

PILOT_SHARE = 5
"""The pilot trains for at least a fifth of the rounds: where the methods' order could mostly be
seen in studies of a thousand rounds, and not at a tenth."""
PILOT_WORK = 3e12
"""Floating-point operations that one run of the pilot may take, about half a minute on two cores:
as long as it is cheap, it trains as long as the experiment would."""
CHEAP = 10
"""With this many times less work there are more repetitions, which make intervals narrower."""
MOST_CLIENTS = 200
"""At most this many known clients are examined."""
FEW_CLIENTS, FEW_EXAMPLES = 20, 32
"""Clients and examples for the constants: their Hessians take seconds, not minutes."""


@dataclass(frozen=True)
class Diagnosis:
    """The numbers of a diagnosis; :func:`headstart._diagnosis.assess_diagnosis` interprets them."""

    about: JsonTable
    """The output of ``headstart data describe``."""
    class_names: Sequence[str]
    names: Sequence[str]
    """The names of the examined clients."""
    label_shares: np.ndarray
    """(examined clients, classes)."""
    train_counts: np.ndarray
    labels: Distances
    """Total variation of the labels."""
    examples: Distances
    """1-Wasserstein of the examples."""
    estimate: Estimate
    sensitivity: Sensitivity
    label_part: LabelPart | None
    """What of γ_G the labels explain; None if examples have several labels each."""
    pilot: Pilot
    seconds: float

    def gammas(self) -> dict[str, dict[str, float]]:
        """Return γ_G and γ_H as measured, what explains them, the label bound, and an estimate."""
        c, sensitive = self.estimate.constants, self.sensitivity
        suggested = estimate_similarity(self.examples, L_z=sensitive.L_z, rho_z=sensitive.rho_z)
        gammas = {
            "measured": {"gamma_G": c.gamma_G, "gamma_H": c.gamma_H},
            "by chance": {"gamma_G": self.estimate.chance_G},
            "examples suggest": asdict(suggested),
        }
        if self.label_part is not None:
            gammas["labels explain"] = {"gamma_G": self.label_part.explained_G}
            gammas["label bound"] = {"gamma_G": self.label_part.bound_G}
        return gammas

    def to_table(self) -> JsonTable:
        """Return all numbers but the matrices of distances, for ``diagnosis.json``."""
        pilot = self.pilot
        return {
            "data": dict(self.about),
            "labels": summarize_distances(self.labels),
            "examples": summarize_distances(self.examples),
            "constants": asdict(self.estimate.constants),
            "gammas": self.gammas(),
            "label_premise": None
            if self.label_part is None
            else summarize_label_premise(self.label_part),
            "pilot": {
                "rounds": pilot.rounds,
                "repetitions": len(pilot.meta),
                "adapt_steps": pilot.adapt_steps,
                "options": {name: dict(options) for name, options in pilot.options.items()},
                "common": level(pilot.common),
                "updated": level(pilot.updated),
                "meta": level(pilot.meta),
                "metric": pilot.metric.to_table(),
                "gain_of_updating": [pilot.of_updating.mean, pilot.of_updating.half_width],
                "gain_of_meta_learning": [
                    pilot.of_meta_learning.mean,
                    pilot.of_meta_learning.half_width,
                ],
                "gradient_evaluations": pilot.gradient_evaluations,
            },
            "seconds": round(self.seconds, 1),
        }


def summarize_distances(distances: Distances) -> JsonTable:
    """Return a few numbers that summarise the distances."""
    return {
        "how": distances.how,
        "mean": float(distances.to_mean.mean()),
        "by_chance": float(distances.chance.mean()),
        "share_beyond_chance": float(distances.beyond_chance.mean()),
    }


def summarize_label_premise(part: LabelPart) -> JsonTable:
    """Return whether clients differ in labels alone, as the label bound assumes."""
    return {
        "share_explained": part.share_explained,
        "unexplained_G": part.unexplained_G,
        "unexplained_by_chance_up_to": part.chance_G,
        "largest_gradient_of_an_example": part.B,
        "examples": part.examples,
        "bound_applies": part.bound_applies,
    }


def diagnose(
    experiment: Experiment,
    *,
    baseline: Experiment | None = None,
    data: FederatedDataset | None = None,
    tries: Sequence[Table] = ({},),
    rounds: int | None = None,
    repetitions: int | None = None,
    say: Callable[[str], None] = lambda line: None,
    listener: ListenerFor = lambda label: Listener(),
) -> Diagnosis:
    """Measure how the known clients' training data differ, and train a short pilot.

    The pilot compares Per-FedAvg with the experiment's options to FedAvg with the same options, or
    to ``baseline``. ``data`` is the result of ``experiment.build_data()``, if the caller has it.
    """
    begin = time.monotonic()
    data = experiment.build_data() if data is None else data
    if data.known_clients < 2:
        raise DataError("a diagnosis compares clients: at least two known ones are needed")
    work = estimate_work(_as_per_fedavg(experiment), data)
    if rounds is None:
        rounds = choose_pilot_rounds(experiment.rounds, work)
    if repetitions is None:
        repetitions = 5 if CHEAP * work <= PILOT_WORK else 3
    require_at_least(1, rounds=rounds, repetitions=repetitions)
    some = choose_clients(data, MOST_CLIENTS, experiment.seed)
    say("distances between clients")
    labels = total_variation(some, clients=MOST_CLIENTS)
    examples = wasserstein(some, clients=50)
    tuning = some.for_tuning()
    ours, plain = (
        _prepare_for_pilot(one, data, tuning)
        for one in (_as_per_fedavg(experiment), baseline or experiment.with_algorithm("fedavg"))
    )
    pilot, models = run_pilot(
        ours, plain, tuning, rounds=rounds, repetitions=repetitions, tries=tries,
        listener=listener,
    )  # fmt: skip
    say("constants of the theory")
    model, inner_lr = ours.build_model(), float(pilot.options["per-fedavg"]["inner_lr"])
    objective = ours.build_objective(model, data.schema)
    estimate = estimate_constants(
        some, model, models[:1], inner_lr=inner_lr, clients=FEW_CLIENTS, examples=FEW_EXAMPLES,
        objective=objective,
    )  # fmt: skip
    part = measure_label_part(
        some, model, models[0], clients=FEW_CLIENTS, examples=FEW_EXAMPLES, objective=objective
    )
    names = [some.name(client) for client in range(some.known_clients)]
    return Diagnosis(
        describe(data), label_names(some), names,
        label_distributions(some), np.asarray(some.train_counts), labels, examples, estimate,
        estimate_sensitivity(some, model, models[:1], objective=objective), part, pilot,
        time.monotonic() - begin,
    )  # fmt: skip


def estimate_work(experiment: Experiment, data: FederatedDataset) -> float:
    """Return the floating-point operations of all rounds: 6 per weight and example."""
    model, algorithm = experiment.build_model(), experiment.build_algorithm()
    weights = size(jax.eval_shape(lambda: model.init(jax.random.key(0), data.schema)))
    active = count_active_clients(experiment.participation, data.known_clients)
    examples = round(float(np.mean(data.train_counts[: data.known_clients])))
    gradients = experiment.rounds * active * algorithm.gradients_per_update(examples)
    return 6.0 * gradients * algorithm.largest_batch * weights


def choose_pilot_rounds(rounds: int, work: float) -> int:
    """Return the rounds that the pilot can afford, at least a fifth of the experiment's.

    >>> [choose_pilot_rounds(1000, PILOT_WORK * times) for times in (0.5, 2, 50)]
    [1000, 500, 200]
    """
    least = max(20, rounds // PILOT_SHARE)
    return max(least, min(rounds, int(rounds * PILOT_WORK / work)))


def choose_clients(data: FederatedDataset, most: int, seed: int) -> FederatedDataset:
    """Return the known clients, or ``most`` of them at random if there are more."""
    if data.known_clients <= most:
        return data.part(0, data.known_clients)
    chosen = np.sort(np.random.default_rng(seed).permutation(data.known_clients)[:most])
    return data.of(chosen)


def _as_per_fedavg(experiment: Experiment) -> Experiment:
    if experiment.algorithm["name"] == "per-fedavg":
        return experiment
    return experiment.with_algorithm("per-fedavg")


def _prepare_for_pilot(
    experiment: Experiment, data: FederatedDataset, tuning: FederatedDataset
) -> Experiment:
    """Return the experiment for the pilot.

    It has as many active clients, at least one adaptation step at test time, and batches that fit
    clients with a part of their training data held out.
    """
    share = min(1.0, experiment.participation * data.known_clients / tuning.known_clients)
    steps = max(1, experiment.evaluation.adapt_steps)
    most = int(np.max(tuning.train_counts))
    batch: int | list[int] = convert(
        int | list[int], experiment.algorithm["batch_size"], "algorithm.batch_size"
    )
    fits = min(batch, most) if isinstance(batch, int) else [min(size, most) for size in batch]
    return replace(
        experiment,
        participation=share,
        algorithm={**experiment.algorithm, "batch_size": fits},
        evaluation=replace(experiment.evaluation, adapt_steps=steps),
    )
