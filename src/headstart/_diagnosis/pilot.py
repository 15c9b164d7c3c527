"""A short training with and without meta-learning, on the clients' training data alone.

Distances show that clients differ. They do not show whether a meta-learned start is better than
FedAvg followed by a few steps on own data: that also depends on the model, the step sizes and the
amount of training. So both are trained for a fraction of the rounds, from the same initial models,
several times, and scored on a held-out part of the training data. Test data and new clients are
never used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headstart._experiments.configuration import Experiment, Table
from headstart._experiments.finished_run import Run
from headstart._experiments.training import Listener, train
from headstart._metric import ACCURACY, Metric
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.options import to_json
from headstart.records import half_width
from headstart.records._base import JsonTable
from headstart.trees import Tree

ListenerFor = Callable[[str], Listener]
WORTH = 0.01
"""The smallest gain that justifies another method: one percentage point of a share, or one percent
of what the common model reaches."""


class Gain(NamedTuple):
    """A mean improvement, positive if better, and half its 95 % interval; shares in points."""

    mean: float
    half_width: float
    metric: Metric = ACCURACY
    worth: float = 100 * WORTH
    """The smallest gain that is worth having."""

    @property
    def pays(self) -> bool:
        """Whether it is large enough, and its interval is above 0."""
        return self.mean >= self.worth and self.mean - self.half_width > 0

    def __str__(self) -> str:
        """Return the gain as ``+2.3 ± 0.8``."""
        if self.metric.is_share:
            return f"{self.mean:+.1f} ± {self.half_width:.1f}"
        return f"{self.metric.signed(self.mean)} ± {self.metric.figure(self.half_width)}"


@dataclass(frozen=True)
class Pilot:
    """The results of the pilot: the metric, shares in percent, as (repetitions, clients)."""

    rounds: int
    adapt_steps: int
    common: np.ndarray
    """FedAvg's model as it is."""
    updated: np.ndarray
    """FedAvg's model after a few steps on own data."""
    meta: np.ndarray
    """Per-FedAvg's model after the same."""
    options: Mapping[str, JsonTable]
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
        """Format the mean with the metric's unit."""
        return self.metric.text(level(values) / self.metric.scale)


def level(values: np.ndarray) -> float:
    """Return the mean over repetitions and the clients that define the metric."""
    return float(np.nanmean(values))


def gain(differences: np.ndarray) -> Gain:
    """Return the mean over repetitions and clients, with the wider of the intervals over either.

    Clients that do not define the metric in every repetition do not count.

    >>> gain(np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])).mean
    2.0
    """
    differences = differences[:, np.isfinite(differences).all(axis=0)]
    widths = [half_width(differences.mean(axis=axis)) for axis in (0, 1)]
    return Gain(float(differences.mean()), max((w for w in widths if w is not None), default=0.0))


def run_pilot(
    ours: Experiment,
    baseline: Experiment,
    data: FederatedDataset,
    *,
    rounds: int,
    repetitions: int = 3,
    tries: Sequence[Table] = ({},),
    listener: ListenerFor = lambda label: Listener(),
) -> tuple[Pilot, list[Tree]]:
    """Train both methods; return the results, and FedAvg's models for estimating constants.

    ``data`` is a data set for tuning. ``tries`` are options of the algorithm; each method uses
    those that score best in the first repetition.
    """
    chosen, runs, spent = {}, {}, 0
    for name, experiment in (("fedavg", baseline), ("per-fedavg", ours)):
        first = [
            _train_once(_with_options(experiment, t), data, rounds, 0, listener) for t in tries
        ]
        best = int(np.argmax([_rank(run) for run in first]))
        best_run = first[best]
        if best_run is None or _has_failed(best_run):
            raise ConfigError(
                f"training {name} diverged or learned nothing within {rounds} rounds; choose "
                "smaller inner_lr and local_lr, or more rounds"
            )
        chosen[name] = _with_options(experiment, tries[best])
        more = [_train_once(chosen[name], data, rounds, r, listener) for r in range(1, repetitions)]
        runs[name] = [best_run, *(run for run in more if run is not None)]
        if len(runs[name]) < repetitions:
            raise ConfigError(
                f"training {name} diverged in a repetition; choose smaller inner_lr and local_lr"
            )
        done = len(tries) + repetitions - 1
        spent += done * best_run.summary.gradient_evaluations
    plain, meta = runs["fedavg"], runs["per-fedavg"]
    pilot = Pilot(
        rounds, ours.evaluation.adapt_steps,
        common=np.stack([_column(run, "before") for run in plain]),
        updated=np.stack([_after(run) for run in plain]),
        meta=np.stack([_after(run) for run in meta]),
        options={name: to_json(experiment.algorithm) for name, experiment in chosen.items()},
        gradient_evaluations=spent,
        metric=plain[0].summary.metric,
    )  # fmt: skip
    return pilot, [run.algorithm.model(run.state) for run in plain]


def _with_options(experiment: Experiment, options: Table) -> Experiment:
    table = experiment.to_table()
    return Experiment.from_table({**table, "algorithm": {**table["algorithm"], **options}})


def _train_once(
    experiment: Experiment,
    data: FederatedDataset,
    rounds: int,
    repetition: int,
    listener: ListenerFor,
) -> Run | None:
    """Return the run, or None if it diverged."""
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


def _has_failed(run: Run) -> bool:
    return bool(run.summary.failures)


def _rank(run: Run | None) -> float:
    """Return the sort key of tries."""
    if run is None or _has_failed(run):
        return -np.inf
    return float(run.summary.metric.gain(level(_after(run)), 0.0))


def _after(run: Run) -> np.ndarray:
    return _column(run, "after")


def _column(run: Run, when: str) -> np.ndarray:
    metric = run.summary.metric
    return metric.scale * np.array(
        [getattr(client[metric.name], when) for client in run.clients], float
    )
