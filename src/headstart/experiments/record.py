"""What a run writes down: one record per evaluation, a row per client, a summary."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from headstart.errors import DivergedError
from headstart.metric import Metric
from headstart.simulation.constant import ConstantAnswer
from headstart.simulation.evaluation import Scores
from headstart.simulation.statistics import describe

ADAPTED_ON_TEST = "adapted on the data that is scored (adapt_on = test), as paper P did"
SMALLER_STEPS = "the steps may be too large: lower algorithm.local_lr or algorithm.inner_lr"
VERSIONS = ("headstart", "jax", "jaxlib", "equinox", "optax", "numpy")


class Clients(Protocol):
    """Whose scores these are: a federated data set, or what a server knows of its sites."""

    @property
    def known_clients(self) -> int:
        """How many took part in training; they have the lowest numbers."""

    @property
    def new_clients(self) -> int:
        """How many did not."""

    @property
    def train_counts(self) -> np.ndarray:
        """Training examples of each."""

    @property
    def test_counts(self) -> np.ndarray:
        """Held-out examples of each."""

    def name(self, client: int) -> str:
        """What a client is called."""

    def classes_of(self, client: int) -> np.ndarray:
        """How many training examples it has of each class."""


def groups(scores: Scores, data: Clients) -> dict[str, np.ndarray]:
    """The rows of known and of new clients; new ones only if there are any."""
    known = scores.clients < data.known_clients
    both = {"known_clients": np.flatnonzero(known), "new_clients": np.flatnonzero(~known)}
    return both if data.new_clients else {"known_clients": both["known_clients"]}


def refuse_diverged(scores: Scores, data: Clients, steps: int, round: int) -> None:
    """Never report a score of a model whose outputs are not numbers."""
    for step in sorted({0, steps}):
        bad = np.flatnonzero(scores.diverged[:, step])
        if len(bad):
            name = data.name(int(scores.clients[bad[0]]))
            when = f"after {step} adaptation steps" if step else "before adaptation"
            raise DivergedError(
                f"the model of client {name} is not finite {when} at round {round} "
                f"({len(bad)} of {len(scores.clients)} clients); "
                f"the step is too large: lower algorithm.{'inner_lr' if step else 'local_lr'}",
                round=round,
                client=name,
            )


def failures(
    scores: Scores,
    data: Clients,
    steps: int,
    records: Sequence[dict[str, Any]],
    constant: ConstantAnswer | None = None,
) -> list[str]:
    """Why a run that ended with finite numbers is of no use, in words; empty if it is of use.

    Steps that are a little too large do not diverge: they kill units, and what is left answers the
    same for every input. Known clients are judged after adaptation, by the primary metric: against
    the untrained model, which the first evaluation scored; against a random guess among a client's
    own classes (two standard errors above it count as chance); where the objective says so, against
    the best constant answer.
    """
    metric, after = scores.metric, known_mean(scores, data, steps)
    if after is None:
        return []
    found = []
    if records and records[0]["round"] == 0:
        began = records[0][metric.name]["after"]["mean"]
        if began is not None and metric.is_worse(after, began):
            found.append(
                f"training made the model worse: {_named(metric, after)} after adaptation, "
                f"{metric.text(began)} before the first round"
            )
    chance, margin = _chance(scores, data)
    if chance is not None and after <= chance + margin and chance < 1:
        found.append(
            f"the model is at chance: {_named(metric, after)} after adaptation, "
            f"{metric.text(chance)} by a random guess among each client's classes"
        )
    if constant is not None and constant.must_be_beaten and metric.gain(after, constant.value) <= 0:
        found.append(
            f"the model is no better than a constant: {_named(metric, after)} after adaptation, "
            f"{metric.text(constant.value)} by always giving {constant.words}"
        )
    return found


def _chance(scores: Scores, data: Clients) -> tuple[float | None, float]:
    """What a random guess reaches on average over known clients, and two standard errors."""
    clients = scores.clients[groups(scores, data)["known_clients"]].tolist()
    sizes = [np.count_nonzero(data.classes_of(c)) for c in clients]
    if not all(sizes) or scores.metric.chance(2) is None:
        return None, 0.0
    chance = float(np.mean([scores.metric.chance(int(size)) for size in sizes]))
    error = np.sqrt(chance * (1 - chance) / sum(int(data.test_counts[c]) for c in clients))
    return chance, 2 * float(error)


def constant_note(
    scores: Scores, data: Clients, steps: int, constant: ConstantAnswer | None
) -> str | None:
    """A note if known clients would do as well by always giving the same answer."""
    after = known_mean(scores, data, steps)
    if after is None or constant is None or constant.must_be_beaten:
        return None
    metric = scores.metric
    if metric.is_worse(constant.value, after):
        return None
    return f"always giving {constant.words} would reach {metric.text(constant.value)}"


def known_mean(scores: Scores, data: Clients, steps: int) -> float | None:
    """The primary metric after adaptation, over the known clients that define it."""
    values = scores.primary[groups(scores, data)["known_clients"], steps]
    defined = values[np.isfinite(values)]
    return float(np.mean(defined)) if len(defined) else None


def evaluation_record(scores: Scores, data: Clients, steps: int) -> dict[str, Any]:
    """Loss and metrics before and after adaptation; known clients at the top level."""
    tables = {}
    for name, rows in groups(scores, data).items():
        tables[name] = {"loss": _before_after(scores.loss[rows], steps)} | {
            metric: _before_after(values[rows], steps) for metric, values in scores.values.items()
        }
    known = {**_metrics(scores), **tables["known_clients"]}
    return {**known, "new_clients": tables.get("new_clients")}


def _metrics(scores: Scores) -> dict[str, Any]:
    """The primary metric, and all of them if there are several."""
    every = [measure.to_table() for measure in scores.measures]
    return {"metric": every[0]} | ({"metrics": every} if len(every) > 1 else {})


def adaptation_curve(scores: Scores, data: Clients) -> dict[str, Any]:
    """Mean metrics after 0, 1, 2 … adaptation steps; None where some client diverged.

    ``ci95`` belongs to the primary metric.
    """
    curve: dict[str, Any] = {"steps": list(range(scores.loss.shape[1])), "new_clients": None}
    for name, rows in groups(scores, data).items():
        whole = np.isfinite(scores.loss[rows]).all(axis=0)
        columns = {
            metric: [
                _described(c) if ok else None for c, ok in zip(values[rows].T, whole, strict=True)
            ]
            for metric, values in scores.values.items()
        }
        widths = [c and c["ci95"] for c in columns[scores.metric.name]]
        means = {metric: [c and c["mean"] for c in each] for metric, each in columns.items()}
        curve[name] = {**means, "ci95": widths}
    return curve


def client_rows(scores: Scores, data: Clients, steps: int) -> list[dict[str, Any]]:
    """One row per evaluated client."""
    sizes, tests = data.train_counts, data.test_counts
    return [
        {
            "client": c,
            "name": data.name(c),
            "kind": "trained" if c < data.known_clients else "new",
            "train_examples": int(sizes[c]),
            "test_examples": int(tests[c]),
            "classes": int(np.count_nonzero(data.classes_of(c))),
            "loss_before": float(scores.loss[row, 0]),
            "loss_after": float(scores.loss[row, steps]),
        }
        | {
            f"{metric}_{when}": float(values[row, step])
            for metric, values in scores.values.items()
            for when, step in (("before", 0), ("after", steps))
        }
        for row, c in enumerate(scores.clients.tolist())
    ]


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def host_facts() -> dict[str, Any]:
    """Where the numbers were made, without naming the machine."""
    import jax

    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "versions": {name: version(name) for name in VERSIONS},
    }


def _named(metric: Metric, value: float) -> str:
    """A value that says what it is; a share of right answers needs no name."""
    return metric.text(value) if metric.is_share else f"{metric.word} {metric.text(value)}"


def _before_after(values: np.ndarray, steps: int) -> dict[str, Any]:
    return {"before": _described(values[:, 0]), "after": _described(values[:, steps])}


def _described(values: np.ndarray) -> dict[str, Any]:
    """Over the clients whose examples define the metric; without any there are no numbers."""
    defined = values[np.isfinite(values)]
    if len(defined):
        return describe(defined)
    return dict.fromkeys(describe([0.0])) | {"count": 0}
