"""From scores to records: an evaluation's statistics, a result per client, what a run failed at."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Protocol

import jax
import numpy as np

from headstart._metric import Metric
from headstart._simulation.constant import ConstantAnswer
from headstart._simulation.dead_units import Liveness
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
from headstart.trees import Tree, leaf_names

VERSIONS = ("headstart", "jax", "jaxlib", "equinox", "optax", "numpy")
COLLAPSE_POINTS = 0.05
"""A share that lost less than this has not collapsed."""
COLLAPSE_SHARE = 0.1
"""Any other metric collapsed only if it lost this share of its best value."""
DEAD_WEIGHTS = 0.5
"""A model in which more of the weights are dead has failed; healthy networks have under a tenth."""


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
    evaluations: Sequence[Evaluation],
    constant: ConstantAnswer | None = None,
    liveness: Liveness | None = None,
) -> tuple[str, ...]:
    """Return the reasons why a model with finite numbers is useless; empty if it is not.

    Steps that are slightly too large do not diverge: they kill units, and the rest of the network
    gives the same answer for every input. Known clients are judged after adaptation, by the primary
    metric, against four references: the untrained model, if the first evaluation scored it; the
    best evaluation; a random guess among a client's own classes (two standard errors above it still
    count as chance); and the best constant answer, where the objective requires that it is beaten.
    ``liveness`` compares the shared model itself with the untrained one.
    """
    after = known_mean(scores, clients, steps)
    reasons: list[str | None] = []
    if after is not None:
        reasons += [
            _worse_than_untrained(scores, clients, after, evaluations),
            _collapsed(scores.metric, after, evaluations),
            _at_chance(scores, clients, after),
            _no_better_than_constant(scores.metric, after, constant),
        ]
    if liveness is not None:
        reasons.append(_dead(liveness))
    return tuple(reason for reason in reasons if reason is not None)


def _worse_than_untrained(
    scores: Scores, clients: ClientFacts, after: float, evaluations: Sequence[Evaluation]
) -> str | None:
    """Compare with round 0; one standard error of a share may be chance."""
    metric = scores.metric
    if not evaluations or evaluations[0].round != 0:
        return None
    untrained = evaluations[0].known[metric.name].after.mean
    if untrained is None or not metric.is_worse(after, untrained):
        return None
    if metric.is_share:
        known = scores.clients[rows_by_group(scores, clients)[KNOWN]]
        error = _share_error(untrained, int(np.asarray(clients.test_counts)[known].sum()))
        if metric.gain(after, untrained) >= -error:
            return None
    return (
        f"training made the model worse: {_value_text(metric, after)} after adaptation, "
        f"{metric.text(untrained)} before the first round"
    )


def _collapsed(metric: Metric, after: float, evaluations: Sequence[Evaluation]) -> str | None:
    """Compare with the best evaluation between the first round and the last.

    A collapse loses at least half of what training had gained, a material amount, and more than
    the 95 % intervals of both means explain.
    """
    scored = [
        (each.round, each.known[metric.name].after)
        for each in evaluations
        if each.known[metric.name].after.mean is not None
    ]
    if len(scored) < 2:
        return None
    round, best = max(scored[1:], key=lambda pair: metric.gain(pair[1].mean, 0.0))
    assert best.mean is not None
    lost = metric.gain(best.mean, after)
    gained = metric.gain(best.mean, scored[0][1].mean)
    noise = float(np.hypot(best.ci95 or 0.0, scored[-1][1].ci95 or 0.0))
    material = COLLAPSE_POINTS if metric.is_share else COLLAPSE_SHARE * abs(best.mean)
    if gained <= 0 or lost <= max(gained / 2, material, noise):
        return None
    return (
        f"the model collapsed during training: {_value_text(metric, best.mean)} after adaptation "
        f"at round {round}, {metric.text(after)} at the end"
    )


def _at_chance(scores: Scores, clients: ClientFacts, after: float) -> str | None:
    metric = scores.metric
    chance, margin = _chance(scores, clients)
    if chance is None or after > chance + margin or chance >= 1:
        return None
    return (
        f"the model is at chance: {_value_text(metric, after)} after adaptation, "
        f"{metric.text(chance)} by a random guess among each client's classes"
    )


def _no_better_than_constant(
    metric: Metric, after: float, constant: ConstantAnswer | None
) -> str | None:
    if constant is None or not constant.must_be_beaten or metric.gain(after, constant.value) > 0:
        return None
    return (
        f"the model is no better than a constant: {_value_text(metric, after)} after "
        f"adaptation, {metric.text(constant.value)} by always giving {constant.words}"
    )


def _dead(liveness: Liveness) -> str | None:
    if liveness.same_answer:
        return "the shared model gives the same answer to every input: its units are dead"
    if liveness.dead_weights < DEAD_WEIGHTS:
        return None
    return (
        f"units of the shared model are dead: {100 * liveness.dead_weights:.0f} % of the weights "
        "no longer influence any answer"
    )


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


def mean_rates(rates: Sequence[Tree]) -> dict[str, tuple[float, ...]] | None:
    """Return the geometric mean of every array of rates, by name, for each adaptation step."""
    if not rates:
        return None
    by_step = [jax.tree.leaves(step) for step in rates]
    return {
        name: tuple(float(np.exp(np.mean(np.log(np.asarray(leaf))))) for leaf in leaves)
        for name, *leaves in zip(leaf_names(rates[0]), *by_step, strict=True)
    }


def host_facts() -> HostFacts:
    """Return where the numbers are computed, without the machine's name."""
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
    return chance, 2 * _share_error(chance, examples)


def _share_error(share: float, examples: int) -> float:
    """Return the standard error of a share of this many independent examples."""
    return float(np.sqrt(share * (1 - share) / examples))


def _value_text(metric: Metric, value: float) -> str:
    """Return the value with the metric's name; a share of right answers needs no name."""
    return metric.text(value) if metric.is_share else f"{metric.word} {metric.text(value)}"


def _before_after(values: np.ndarray, steps: int) -> BeforeAfter:
    return BeforeAfter(
        before=describe_defined(values[:, 0]), after=describe_defined(values[:, steps])
    )


def _change(values: np.ndarray, steps: int) -> Change:
    return Change(before=float(values[0]), after=float(values[steps]))
