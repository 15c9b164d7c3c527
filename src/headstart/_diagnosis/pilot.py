"""A short training with and without meta-learning, on the clients' training data alone.

Distances say that clients differ; whether a meta-learned start makes more of it than FedAvg
followed by a few steps on own data, they do not: that also depends on the model, the step sizes and
how much training there is. So both are trained for a fraction of the rounds, from the same initial
models, several times, and scored on a part of the training data kept aside for it. Held-out data
and new clients are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from headstart._experiments.configuration import Experiment
from headstart._experiments.run import Run
from headstart._experiments.training import Listener, train
from headstart._metric import ACCURACY, Metric
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.records import half_width
from headstart.trees import Tree

ListenerFor = Callable[[str], Listener]
WORTH = 0.01
"""Below this nobody should change how they train: one percentage point of a share, or one percent
of what the common model reaches."""


class Gain(NamedTuple):
    """A mean improvement, positive if better, and half its 95 % interval; shares in points."""

    mean: float
    half_width: float
    metric: Metric = ACCURACY
    worth: float = 100 * WORTH
    """What is the least worth having."""

    @property
    def pays(self) -> bool:
        """Whether it is worth having, and no accident."""
        return self.mean >= self.worth and self.mean - self.half_width > 0

    def __str__(self) -> str:
        """As ``+2.3 ± 0.8``."""
        if self.metric.is_share:
            return f"{self.mean:+.1f} ± {self.half_width:.1f}"
        return f"{self.metric.signed(self.mean)} ± {self.metric.figure(self.half_width)}"


@dataclass(frozen=True)
class Pilot:
    """What the short training showed; the metric, shares in percent, (repetitions, clients)."""

    rounds: int
    adapt_steps: int
    common: np.ndarray
    """FedAvg's model as it is."""
    updated: np.ndarray
    """FedAvg's model after a few steps on own data."""
    meta: np.ndarray
    """Per-FedAvg's model after the same."""
    options: Mapping[str, Mapping[str, Any]]
    """The algorithm table of each method."""
    gradient_evaluations: int
    metric: Metric = ACCURACY

    @property
    def of_updating(self) -> Gain:
        """FedAvg after a few steps on own data, against FedAvg as it is."""
        return self._gain(self.metric.gain(self.updated, self.common))

    @property
    def of_meta_learning(self) -> Gain:
        """Per-FedAvg against FedAvg, both after the same steps."""
        return self._gain(self.metric.gain(self.meta, self.updated))

    def _gain(self, differences: np.ndarray) -> Gain:
        worth = 100 * WORTH if self.metric.is_share else WORTH * abs(level(self.common))
        return gain(differences)._replace(metric=self.metric, worth=worth)

    def text(self, values: np.ndarray) -> str:
        """The mean as the metric is written."""
        return self.metric.text(level(values) / self.metric.scale)


def level(values: np.ndarray) -> float:
    """The mean over repetitions and the clients that define the metric."""
    return float(np.nanmean(values))


def gain(differences: np.ndarray) -> Gain:
    """Mean over repetitions and clients; the interval is the wider of those over either.

    Clients that do not define the metric in every repetition do not count.

    >>> gain(np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])).mean
    2.0
    """
    differences = differences[:, np.isfinite(differences).all(axis=0)]
    widths = [half_width(differences.mean(axis=axis)) for axis in (0, 1)]
    return Gain(float(differences.mean()), max((w for w in widths if w is not None), default=0.0))


def pilot(
    ours: Experiment,
    baseline: Experiment,
    data: FederatedDataset,
    *,
    rounds: int,
    repetitions: int = 3,
    tries: Sequence[Mapping[str, Any]] = ({},),
    listener: ListenerFor = lambda label: Listener(),
) -> tuple[Pilot, list[Tree]]:
    """Train both for so many rounds; also FedAvg's models, where constants can be looked for.

    ``data`` is a data set for tuning. ``tries`` are options of the algorithm; each method takes
    those with which it is best in the first repetition.
    """
    chosen, runs, spent = {}, {}, 0
    for name, experiment in (("fedavg", baseline), ("per-fedavg", ours)):
        first = [_trained(_with(experiment, t), data, rounds, 0, listener) for t in tries]
        best = int(np.argmax([_worth(run) for run in first]))
        found = first[best]
        if found is None or _failed(found):
            raise ConfigError(
                f"training {name} diverged or learned nothing within {rounds} rounds; choose "
                "smaller inner_lr and local_lr, or more rounds"
            )
        chosen[name] = _with(experiment, tries[best])
        more = [_trained(chosen[name], data, rounds, r, listener) for r in range(1, repetitions)]
        runs[name] = [found, *(run for run in more if run is not None)]
        if len(runs[name]) < repetitions:
            raise ConfigError(
                f"training {name} diverged in a repetition; choose smaller inner_lr and local_lr"
            )
        done = len(tries) + repetitions - 1
        spent += done * found.summary.gradient_evaluations
    plain, meta = runs["fedavg"], runs["per-fedavg"]
    made = Pilot(
        rounds, ours.evaluation.adapt_steps,
        common=np.stack([_column(run, "before") for run in plain]),
        updated=np.stack([_after(run) for run in plain]),
        meta=np.stack([_after(run) for run in meta]),
        options={name: experiment.algorithm for name, experiment in chosen.items()},
        gradient_evaluations=spent,
        metric=plain[0].summary.metric,
    )  # fmt: skip
    return made, [run.algorithm.model(run.state) for run in plain]


def _with(experiment: Experiment, options: Mapping[str, Any]) -> Experiment:
    table = experiment.to_table()
    return Experiment.from_table({**table, "algorithm": {**table["algorithm"], **options}})


def _trained(
    experiment: Experiment,
    data: FederatedDataset,
    rounds: int,
    repetition: int,
    listener: ListenerFor,
) -> Run | None:
    """None if it diverged."""
    evaluation = replace(experiment.evaluation, every=rounds, curve_steps=0, adapt_on="train")
    try:
        return train(
            data, experiment.build_model(), experiment.build_algorithm(), rounds=rounds,
            participation=experiment.participation, seed=experiment.seed + repetition,
            evaluation=evaluation, objective=experiment.objective,
            callbacks=[listener(f"pilot {experiment.algorithm['name']}, {repetition + 1}")],
            parts=experiment.parts, progress=False,
        )  # fmt: skip
    except DivergedError:
        return None


def _failed(run: Run) -> bool:
    return bool(run.summary.failures)


def _worth(run: Run | None) -> float:
    """What tries are ordered by."""
    if run is None or _failed(run):
        return -np.inf
    return float(run.summary.metric.gain(level(_after(run)), 0.0))


def _after(run: Run) -> np.ndarray:
    return _column(run, "after")


def _column(run: Run, when: str) -> np.ndarray:
    metric = run.summary.metric
    return metric.scale * np.array(
        [getattr(client[metric.name], when) for client in run.clients], float
    )
