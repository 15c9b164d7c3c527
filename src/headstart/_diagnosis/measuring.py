"""All that a diagnosis consists of, measured: sizes, distances, γ's, and a pilot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

from headstart._diagnosis.pilot import ListenerFor, Pilot, level, pilot
from headstart._experiments.configuration import Experiment
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
"""With so many times less work there are more repetitions, which make intervals narrower."""
MOST_CLIENTS = 200
"""Of more known clients, so many are looked at."""
FEW_CLIENTS, FEW_EXAMPLES = 20, 32
"""Looked at for constants: Hessians of so many clients and examples take seconds, not minutes."""


@dataclass(frozen=True)
class Diagnosis:
    """The numbers; :func:`headstart._diagnosis.reading_of` puts them into words."""

    about: Mapping[str, Any]
    """What ``headstart data describe`` says."""
    class_names: Sequence[str]
    names: Sequence[str]
    """Of the clients looked at."""
    label_shares: np.ndarray
    """(clients looked at, classes)."""
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
        """γ_G and γ_H as measured, what explains them, the labels' bound, and an estimate."""
        c, sensitive = self.estimate.constants, self.sensitivity
        suggested = estimate_similarity(self.examples, L_z=sensitive.L_z, rho_z=sensitive.rho_z)
        found = {
            "measured": {"gamma_G": c.gamma_G, "gamma_H": c.gamma_H},
            "by chance": {"gamma_G": self.estimate.chance_G},
            "examples suggest": asdict(suggested),
        }
        if self.label_part is not None:
            found["labels explain"] = {"gamma_G": self.label_part.explained_G}
            found["label bound"] = {"gamma_G": self.label_part.bound_G}
        return found

    def to_table(self) -> dict[str, Any]:
        """For machines: all numbers but the matrices of distances."""
        made = self.pilot
        return {
            "data": dict(self.about),
            "labels": distance_facts(self.labels),
            "examples": distance_facts(self.examples),
            "constants": asdict(self.estimate.constants),
            "gammas": self.gammas(),
            "label_premise": None if self.label_part is None else premise_facts(self.label_part),
            "pilot": {
                "rounds": made.rounds,
                "repetitions": len(made.meta),
                "adapt_steps": made.adapt_steps,
                "options": {name: dict(options) for name, options in made.options.items()},
                "common": level(made.common),
                "updated": level(made.updated),
                "meta": level(made.meta),
                "metric": made.metric.to_table(),
                "gain_of_updating": [made.of_updating.mean, made.of_updating.half_width],
                "gain_of_meta_learning": [
                    made.of_meta_learning.mean,
                    made.of_meta_learning.half_width,
                ],
                "gradient_evaluations": made.gradient_evaluations,
            },
            "seconds": round(self.seconds, 1),
        }


def distance_facts(distances: Distances) -> dict[str, Any]:
    """A distance in a few numbers."""
    return {
        "how": distances.how,
        "mean": float(distances.to_mean.mean()),
        "by_chance": float(distances.chance.mean()),
        "share_beyond_chance": float(distances.beyond_chance.mean()),
    }


def premise_facts(part: LabelPart) -> dict[str, Any]:
    """Whether clients differ in labels alone, which the label bound takes for granted."""
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
    tries: Sequence[Mapping[str, Any]] = ({},),
    rounds: int | None = None,
    repetitions: int | None = None,
    say: Callable[[str], None] = lambda line: None,
    listener: ListenerFor = lambda label: Listener(),
) -> Diagnosis:
    """Look at the known clients' training data, and train a little.

    Per-FedAvg as the experiment says, against FedAvg with the same options, or as ``baseline``
    says. ``data`` is what ``experiment.build_data()`` would give, if the caller has it already.
    """
    begin = time.monotonic()
    data = experiment.build_data() if data is None else data
    if data.known_clients < 2:
        raise DataError("a diagnosis compares clients: at least two known ones are needed")
    work = work_of(_per_fedavg(experiment), data)
    if rounds is None:
        rounds = pilot_rounds(experiment.rounds, work)
    if repetitions is None:
        repetitions = 5 if CHEAP * work <= PILOT_WORK else 3
    require_at_least(1, rounds=rounds, repetitions=repetitions)
    some = some_clients(data, MOST_CLIENTS, experiment.seed)
    say("distances between clients")
    labels = total_variation(some, clients=MOST_CLIENTS)
    examples = wasserstein(some, clients=50)
    tuning = some.for_tuning()
    ours, plain = (
        _prepared(one, data, tuning)
        for one in (_per_fedavg(experiment), baseline or experiment.with_algorithm("fedavg"))
    )
    made, models = pilot(
        ours, plain, tuning, rounds=rounds, repetitions=repetitions, tries=tries,
        listener=listener,
    )  # fmt: skip
    say("constants of the theory")
    model, inner_lr = ours.build_model(), float(made.options["per-fedavg"]["inner_lr"])
    objective = ours.build_objective(model, data.schema)
    few: Any = {"clients": FEW_CLIENTS, "examples": FEW_EXAMPLES, "objective": objective}
    found = estimate_constants(some, model, models[:1], inner_lr=inner_lr, **few)
    part = measure_label_part(some, model, models[0], **few)
    names = [some.name(client) for client in range(some.known_clients)]
    return Diagnosis(
        describe(data), label_names(some), names,
        label_distributions(some), np.asarray(some.train_counts), labels, examples, found,
        estimate_sensitivity(some, model, models[:1], objective=objective), part, made,
        time.monotonic() - begin,
    )  # fmt: skip


def work_of(experiment: Experiment, data: FederatedDataset) -> float:
    """Floating-point operations of all rounds, as for a dense network: 6 per weight and example."""
    model, algorithm = experiment.build_model(), experiment.build_algorithm()
    weights = size(jax.eval_shape(lambda: model.init(jax.random.key(0), data.schema)))
    active = count_active_clients(experiment.participation, data.known_clients)
    examples = round(float(np.mean(data.train_counts[: data.known_clients])))
    gradients = experiment.rounds * active * algorithm.gradients_per_update(examples)
    return 6.0 * gradients * algorithm.largest_batch * weights


def pilot_rounds(rounds: int, work: float) -> int:
    """As many as the pilot's work allows, at least a fifth.

    >>> [pilot_rounds(1000, PILOT_WORK * times) for times in (0.5, 2, 50)]
    [1000, 500, 200]
    """
    least = max(20, rounds // PILOT_SHARE)
    return max(least, min(rounds, int(rounds * PILOT_WORK / work)))


def some_clients(data: FederatedDataset, most: int, seed: int) -> FederatedDataset:
    """The known clients, or of more than ``most`` a random choice."""
    if data.known_clients <= most:
        return data.part(0, data.known_clients)
    chosen = np.sort(np.random.default_rng(seed).permutation(data.known_clients)[:most])
    return data.of(chosen)


def _per_fedavg(experiment: Experiment) -> Experiment:
    if experiment.algorithm["name"] == "per-fedavg":
        return experiment
    return experiment.with_algorithm("per-fedavg")


def _prepared(
    experiment: Experiment, data: FederatedDataset, tuning: FederatedDataset
) -> Experiment:
    """With as many active clients as the experiment has, at least one step at test time, and
    batches that fit clients of whose training data a part is kept aside.
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
