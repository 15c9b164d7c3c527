"""Is it worth it? Each hospital in turn joins later; many splits, three methods, paired by split.

Three hospitals train by Per-FedAvg or by FedAvg and all four adapt, or each trains alone. The late
hospital is scored with all its training patients and with only the first twenty, like a hospital
that has just begun; after the few adaptation steps that training prepares for, and after many.
Every method gets sixteen tries for its options in every split, on the training patients of that
split only: within a split no patient is used both to choose and to score.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hospitals
import numpy as np

from headstart._experiments.configuration import Experiment, build_algorithm
from headstart._simulation.simulation import Simulation
from headstart.data._example_pool import Pool
from headstart.data._federated import ClientData, FederatedDataset
from headstart.data._schema import Schema
from headstart.errors import DivergedError
from headstart.records import half_width

FEW = 20
"""Training patients of a hospital that has just begun."""
MANY_STEPS = 50
"""Adaptation steps of a hospital that has enough time."""
FOLDS = 4
TEST_FRACTION = 0.2
FEDERATED = ("per-fedavg", "fedavg")
SHARED = ("local_steps", "batch_size", "inner_lr", "max_gradient_norm")
"""Options of the plan that every method uses."""

Options = dict[str, float]
RATES, RATES_ALONE, ROUNDS_ALONE = (0.01, 0.03, 0.1, 0.3), (0.003, 0.01, 0.03, 0.1), (2, 8, 32, 128)
TRIES: list[Options] = [
    {"inner_lr": inner, "local_lr": local} for inner, local in itertools.product(RATES, RATES)
]
TRIES_ALONE: list[Options] = [
    {"local_lr": local, "rounds": rounds}
    for local, rounds in itertools.product(RATES_ALONE, ROUNDS_ALONE)
]
"""128 rounds with one gradient per step cost as much as 8 of Per-FedAvg, whose steps cost 16."""

Numbers = tuple[float, float, float]


@dataclass(frozen=True)
class Trial:
    """One hospital, one split, one method: accuracy and loss on its held-out patients."""

    seed: int
    way: str
    """per-fedavg, fedavg, local (trained alone) or guess (nothing learned)."""
    hospital: str
    role: str
    """known: trained with the others; new: joined later; few: joined later, with few patients.
    A hospital that trains alone is "own" with all its patients, or "few"."""
    accuracy: Numbers
    """Before adaptation, after it, and after many adaptation steps."""
    loss: Numbers
    options: Options


def measure(
    pool: Pool, plan: Experiment, seeds: Sequence[int], advanced: Callable[[int], None]
) -> list[Trial]:
    """Run all methods on all splits; ``advanced`` is called with the number of splits done."""
    trials: list[Trial] = []
    for count, seed in enumerate(seeds, 1):
        split = pool.split(seed=seed, test_fraction=TEST_FRACTION)
        parts = [split.client(n) for n in range(split.clients)]
        trials += measure_alone(parts, pool.schema, plan, seed)
        for late in parts:
            trials += measure_with_late(parts, late, pool.schema, plan, seed)
        advanced(count)
    return trials


def measure_with_late(
    parts: Sequence[ClientData], late: ClientData, schema: Schema, plan: Experiment, seed: int
) -> list[Trial]:
    """Train the others with the best options for each method, and score all hospitals.

    The data end with the first few patients of every hospital, though only those of the late one
    are scored. So the arrays have the same size whichever hospital is late, and nothing is
    compiled again.
    """
    known = [part for part in parts if part is not late]
    data = hospitals.together([*known, late, *map(first_few, parts)], schema, known=len(known))
    roles = {n: "known" for n in range(len(known))}
    roles |= {len(known): "new", len(known) + 1 + parts.index(late): "few"}
    steps = [0, plan.evaluation.adapt_steps, MANY_STEPS]
    found = []
    for way in FEDERATED:
        options = choose_options(data, plan, way, seed)
        accuracy, loss = scores(data, plan, way, options, seed, steps)
        found += [
            Trial(seed, way, data.name(n), role, three(accuracy[n]), three(loss[n]), options)
            for n, role in roles.items()
        ]
    return found


def first_few(part: ClientData) -> ClientData:
    """Return the hospital with its first training patients only, and all its test patients."""
    return replace(part, x_train=part.x_train[:FEW], y_train=part.y_train[:FEW])


def choose_options(data: FederatedDataset, plan: Experiment, way: str, seed: int) -> Options:
    """Return the try with the least loss after adaptation, at the hospitals that train.

    Loss and not accuracy: with so few patients, many tries are equally accurate.
    """
    tuning, steps = data.for_tuning(), [plan.evaluation.adapt_steps]

    def mean_loss(options: Options) -> float:
        try:
            loss = float(np.mean(scores(tuning, plan, way, options, seed, steps)[1]))
        except DivergedError:
            return np.inf
        return loss if np.isfinite(loss) else np.inf

    return min(TRIES, key=mean_loss)


def scores(
    data: FederatedDataset, plan: Experiment, way: str, options: Options, seed: int,
    steps: list[int],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return accuracy and loss of every hospital after training and these adaptation steps."""
    simulation = build_simulation(data, plan, way, options, seed)
    done = simulation.advance(simulation.start(), plan.rounds)
    scored = simulation.evaluate(done, steps, most=max(steps))
    return scored.values["accuracy"][:, steps], scored.loss[:, steps]


def measure_alone(
    parts: Sequence[ClientData], schema: Schema, plan: Experiment, seed: int
) -> list[Trial]:
    """Train each hospital alone with its own best options; also score a guess without learning.

    The tries are compared by cross-validation: a quarter of twenty patients is too few.
    """
    everyone = [*parts, *map(first_few, parts)]
    folds = [
        hospitals.together([rotate(part, n) for part in everyone], schema) for n in range(FOLDS)
    ]
    losses = np.mean([alone(fold.for_tuning(), plan, seed)[1] for fold in folds], axis=0)
    scored = alone(folds[0], plan, seed)
    found = []
    for n, part in enumerate(everyone):
        role = "own" if n < len(parts) else "few"
        best = int(np.nanargmin(losses[:, n]))
        own = [three(table[best, n]) for table in scored]
        found.append(Trial(seed, "local", part.name, role, own[0], own[1], TRIES_ALONE[best]))
        found.append(guess(part, role, seed))
    return found


def guess(part: ClientData, role: str, seed: int) -> Trial:
    """Score a guess: everyone gets the more common diagnosis of the hospital."""
    counts = np.bincount(part.y_train, minlength=2)
    right = float(np.mean(part.y_test == counts.argmax()))
    # One more of each: a hospital without a healthy patient so far does not rule them out.
    loss = float(-np.mean(np.log((counts + 1) / (counts.sum() + 2))[part.y_test]))
    return Trial(seed, "guess", part.name, role, three(right), three(loss), {})


def rotate(part: ClientData, fold: int) -> ClientData:
    """Move another quarter of the training patients to the end, which ``for_tuning`` holds out."""
    shift = round(len(part.y_train) * fold / FOLDS)
    return replace(
        part, x_train=np.roll(part.x_train, shift, axis=0), y_train=np.roll(part.y_train, shift)
    )


def alone(data: FederatedDataset, plan: Experiment, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return accuracy and loss for each try and hospital; longer training resumes shorter."""
    found = []
    for number, options in enumerate(TRIES_ALONE):
        if number == 0 or options["local_lr"] != TRIES_ALONE[number - 1]["local_lr"]:
            rate = {"local_lr": options["local_lr"]}
            simulation = build_simulation(data, plan, "local", rate, seed)
            progress = simulation.start()
        progress = simulation.advance(progress, int(options["rounds"]) - progress.round)
        scored = simulation.evaluate(progress, [0], most=1)
        found.append((scored.values["accuracy"][:, 0], scored.loss[:, 0]))
    accuracy, loss = zip(*found, strict=True)
    return np.array(accuracy), np.array(loss)


def build_simulation(
    data: FederatedDataset, plan: Experiment, way: str, options: Options, seed: int
) -> Simulation:
    """Build the plan with another method and options; all hospitals take part in every round."""
    shared = {key: plan.algorithm[key] for key in SHARED}
    own = dict(plan.algorithm) if way == "per-fedavg" else shared
    algorithm = build_algorithm({**own, **options, "name": way})
    return Simulation(data, plan.build_model(), algorithm, seed=seed)


def three(values: np.ndarray | float) -> Numbers:
    """Return three plain numbers; repeat a single one, for hospitals that do not adapt."""
    before, after, long_after = np.broadcast_to(values, 3)
    return float(before), float(after), float(long_after)


Get = Callable[[Trial], float]
BEFORE, AFTER, LONG_AFTER = range(3)


def accuracy(when: int) -> Get:
    """Return a function that reads a trial's accuracy, in percent."""
    return lambda one: 100 * one.accuracy[when]


def loss(when: int) -> Get:
    """Return a function that reads a trial's cross-entropy, in nats."""
    return lambda one: one.loss[when]


def by_split(
    found: Sequence[Trial], way: str, role: str, get: Get, hospital: str | None = None
) -> np.ndarray:
    """Return one number per split: the mean over hospitals, and over which of them is late."""
    if way not in FEDERATED and role != "few":
        role = "own"
    values: dict[int, list[float]] = {}
    for one in found:
        if (one.way, one.role) == (way, role) and hospital in (None, one.hospital):
            values.setdefault(one.seed, []).append(get(one))
    return np.array([np.mean(values[seed]) for seed in sorted(values)])


@dataclass(frozen=True)
class Mean:
    """A mean over splits, with half the width of its 95 % interval."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean over splits."""
        return float(np.mean(self.values))

    @property
    def over_splits(self) -> float:
        """Student's t, as if the splits were independent."""
        width = half_width(self.values)
        return np.inf if width is None else width

    def __str__(self) -> str:
        """Format as ``81.3 ± 0.4``."""
        return f"{self.mean:.1f} ± {self.over_splits:.1f}"


@dataclass(frozen=True)
class Difference(Mean):
    """A difference paired by split, with two 95 % intervals of its mean."""

    @property
    def corrected(self) -> float:
        """For splits that share patients, σ²/n becomes σ²(1/n + test/train).

        Nadeau & Bengio, Inference for the generalization error, Machine Learning 52 (2003).
        """
        ratio = TEST_FRACTION / (1 - TEST_FRACTION)
        return self.over_splits * float(np.sqrt(1 + len(self.values) * ratio))

    @property
    def shown(self) -> bool:
        """Whether the wider interval excludes 0."""
        return abs(self.mean) > self.corrected


def difference(
    found: Sequence[Trial], other: str, role: str, get: Get, hospital: str | None = None
) -> Difference:
    """Return Per-FedAvg minus another method, paired by split."""
    ours = by_split(found, "per-fedavg", role, get, hospital)
    return Difference((ours - by_split(found, other, role, get, hospital)).tolist())


def gain(found: Sequence[Trial], way: str, role: str, when: int) -> Difference:
    """Return what adaptation adds to a method's accuracy, in points."""
    after, before = (by_split(found, way, role, accuracy(w)) for w in (when, BEFORE))
    return Difference((after - before).tolist())


def as_table(found: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the trials as tables for a JSON file."""
    return [vars(one) for one in found]
