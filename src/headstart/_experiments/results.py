"""From scores to records: an evaluation's statistics, a result per client, what a run failed at."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Protocol

import numpy as np

from headstart._metric import Metric
from headstart._simulation.constant import ConstantAnswer
from headstart._simulation.scoring import Scores
from headstart.errors import DivergedError
from headstart.records import (
    KNOWN,
    NEW,
    AdaptationCurves,
    BeforeAfter,
    Change,
    ClientCounts,
    ClientResult,
    Evaluation,
    GroupCurve,
    GroupScores,
    HostFacts,
    ScoreSummary,
    describe_defined,
)

VERSIONS = ("headstart", "jax", "jaxlib", "equinox", "optax", "numpy")


class ClientFacts(Protocol):
    """The clients that were scored: a federated data set, or what a server knows of its sites."""

    @property
    def known_clients(self) -> int:
        """How many took part in training; they have the lowest numbers."""

    @property
    def new_clients(self) -> int:
        """How many did not."""

    @property
    def train_counts(self) -> np.ndarray:
        """Training examples of each client."""

    @property
    def test_counts(self) -> np.ndarray:
        """Held-out examples of each client."""

    def name(self, client: int) -> str:
        """Return a client's name."""

    def classes_of(self, client: int) -> np.ndarray:
        """Return the client's number of training examples of each class."""


def summarize_scores(scores: Scores, clients: ClientFacts, steps: int) -> ScoreSummary:
    """Return loss and metrics before and after ``steps`` adaptation steps."""
    groups = {
        group: GroupScores(
            loss=_before_after(scores.loss[rows], steps),
            metrics={
                metric: _before_after(values[rows], steps)
                for metric, values in scores.values.items()
            },
        )
        for group, rows in rows_by_group(scores, clients).items()
    }
    metrics = tuple(Metric(**measure.to_table()) for measure in scores.measures)  # type: ignore[arg-type]
    return ScoreSummary(metrics=metrics, known=groups[KNOWN], new=groups.get(NEW))


def adaptation_curves(scores: Scores, clients: ClientFacts) -> AdaptationCurves:
    """Return mean metrics after 0, 1, 2 … adaptation steps; None where some client diverged."""
    curves = {}
    for group, rows in rows_by_group(scores, clients).items():
        finite = np.isfinite(scores.loss[rows]).all(axis=0)
        columns = {
            metric: [
                describe_defined(column) if ok else None
                for column, ok in zip(values[rows].T, finite, strict=True)
            ]
            for metric, values in scores.values.items()
        }
        curves[group] = GroupCurve(
            means={
                metric: tuple(each and each.mean for each in column)
                for metric, column in columns.items()
            },
            ci95=tuple(each and each.ci95 for each in columns[scores.metric.name]),
        )
    steps = tuple(range(scores.loss.shape[1]))
    return AdaptationCurves(steps=steps, known=curves[KNOWN], new=curves.get(NEW))


def client_results(scores: Scores, clients: ClientFacts, steps: int) -> tuple[ClientResult, ...]:
    """Return the result of every evaluated client."""
    return tuple(
        ClientResult(
            client=client,
            name=clients.name(client),
            kind="trained" if client < clients.known_clients else "new",
            train_examples=int(clients.train_counts[client]),
            test_examples=int(clients.test_counts[client]),
            classes=int(np.count_nonzero(clients.classes_of(client))),
            loss=_change(scores.loss[row], steps),
            metrics={name: _change(values[row], steps) for name, values in scores.values.items()},
        )
        for row, client in enumerate(scores.clients.tolist())
    )


def count_evaluated(scores: Scores, clients: ClientFacts) -> ClientCounts:
    """Return how many known and new clients have scores."""
    known = int(np.sum(scores.clients < clients.known_clients))
    return ClientCounts(known=known, new=len(scores.clients) - known)


def refuse_diverged(scores: Scores, clients: ClientFacts, steps: int, round: int) -> None:
    """Raise DivergedError if a model's outputs are not finite: such scores are never reported."""
    for step in sorted({0, steps}):
        diverged = np.flatnonzero(scores.diverged[:, step])
        if len(diverged):
            name = clients.name(int(scores.clients[diverged[0]]))
            when = f"after {step} adaptation steps" if step else "before adaptation"
            raise DivergedError(
                f"the model of client {name} is not finite {when} at round {round} "
                f"({len(diverged)} of {len(scores.clients)} clients); "
                f"the step is too large: lower algorithm.{'inner_lr' if step else 'local_lr'}",
                round=round,
                client=name,
            )


def find_failures(
    scores: Scores,
    clients: ClientFacts,
    steps: int,
    first: Evaluation | None,
    constant: ConstantAnswer | None = None,
) -> tuple[str, ...]:
    """Return the reasons why a model with finite numbers is useless; empty if it is not.

    Steps that are slightly too large do not diverge: they kill units, and the rest of the network
    gives the same answer for every input. Known clients are judged after adaptation, by the primary
    metric, against three references: the untrained model, if the ``first`` evaluation scored it; a
    random guess among a client's own classes (two standard errors above it still count as chance);
    and the best constant answer, where the objective requires that it is beaten.
    """
    metric, after = scores.metric, known_mean(scores, clients, steps)
    if after is None:
        return ()
    failures = []
    if first is not None and first.round == 0:
        untrained = first.known[metric.name].after.mean
        if untrained is not None and metric.is_worse(after, untrained):
            failures.append(
                f"training made the model worse: {_value_text(metric, after)} after adaptation, "
                f"{metric.text(untrained)} before the first round"
            )
    chance, margin = _chance(scores, clients)
    if chance is not None and after <= chance + margin and chance < 1:
        failures.append(
            f"the model is at chance: {_value_text(metric, after)} after adaptation, "
            f"{metric.text(chance)} by a random guess among each client's classes"
        )
    if constant is not None and constant.must_be_beaten and metric.gain(after, constant.value) <= 0:
        failures.append(
            f"the model is no better than a constant: {_value_text(metric, after)} after "
            f"adaptation, {metric.text(constant.value)} by always giving {constant.words}"
        )
    return tuple(failures)


def constant_note(
    scores: Scores, clients: ClientFacts, steps: int, constant: ConstantAnswer | None
) -> str | None:
    """Return a note if known clients would do as well by always giving the same answer."""
    after = known_mean(scores, clients, steps)
    if after is None or constant is None or constant.must_be_beaten:
        return None
    metric = scores.metric
    if metric.is_worse(constant.value, after):
        return None
    return f"always giving {constant.words} would reach {metric.text(constant.value)}"


def known_mean(scores: Scores, clients: ClientFacts, steps: int) -> float | None:
    """Return the mean of the primary metric over the known clients that define it."""
    values = scores.primary[rows_by_group(scores, clients)[KNOWN], steps]
    defined = values[np.isfinite(values)]
    return float(np.mean(defined)) if len(defined) else None


def host_facts() -> HostFacts:
    """Return where the numbers are computed, without the machine's name."""
    import jax

    return HostFacts(
        python=platform.python_version(),
        system=platform.system(),
        machine=platform.machine(),
        cores=os.cpu_count(),
        devices=tuple(device.device_kind for device in jax.devices()),
        versions={name: version(name) for name in VERSIONS},
    )


def rows_by_group(scores: Scores, clients: ClientFacts) -> dict[str, np.ndarray]:
    """Return the rows of known and of new clients; new ones only if there are any."""
    known = scores.clients < clients.known_clients
    rows = {KNOWN: np.flatnonzero(known)}
    return rows | {NEW: np.flatnonzero(~known)} if clients.new_clients else rows


def _chance(scores: Scores, clients: ClientFacts) -> tuple[float | None, float]:
    """Return the mean score of a random guess over known clients, and two standard errors."""
    known = scores.clients[rows_by_group(scores, clients)[KNOWN]].tolist()
    classes = [np.count_nonzero(clients.classes_of(client)) for client in known]
    if not all(classes) or scores.metric.chance(2) is None:
        return None, 0.0
    chance = float(np.mean([scores.metric.chance(int(count)) for count in classes]))
    examples = sum(int(clients.test_counts[client]) for client in known)
    return chance, 2 * float(np.sqrt(chance * (1 - chance) / examples))


def _value_text(metric: Metric, value: float) -> str:
    """Return the value with the metric's name; a share of right answers needs no name."""
    return metric.text(value) if metric.is_share else f"{metric.word} {metric.text(value)}"


def _before_after(values: np.ndarray, steps: int) -> BeforeAfter:
    return BeforeAfter(
        before=describe_defined(values[:, 0]), after=describe_defined(values[:, steps])
    )


def _change(values: np.ndarray, steps: int) -> Change:
    return Change(before=float(values[0]), after=float(values[steps]))
