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

from headstart.data.federated import FederatedDataset
from headstart.errors import DivergedError
from headstart.simulation.evaluation import Scores
from headstart.simulation.statistics import describe

ADAPTED_ON_TEST = "adapted on the data that is scored (adapt_on = test), as paper P did"
ROUNDING = 0.0005
"""Accuracies that look alike in a table are not told apart."""
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
    scores: Scores, data: Clients, steps: int, records: Sequence[dict[str, Any]]
) -> list[str]:
    """Why a run that ended with finite numbers is of no use, in words; empty if it is of use.

    Steps that are a little too large do not diverge: they kill units, and what is left answers the
    same for every input. Known clients are judged after adaptation, by two levels: the untrained
    model, which the first evaluation scored, and a random guess among a client's own classes. Two
    standard errors above that guess count as chance.
    """
    known = groups(scores, data)["known_clients"]
    after = float(np.mean(scores.accuracy[known, steps]))
    found = []
    if records and records[0]["round"] == 0:
        began = records[0]["accuracy"]["after"]["mean"]
        if after < began - ROUNDING:
            found.append(
                f"training made the model worse: {_percent(after)} after adaptation, "
                f"{_percent(began)} before the first round"
            )
    clients = scores.clients[known].tolist()
    chance = float(np.mean([1 / np.count_nonzero(data.classes_of(c)) for c in clients]))
    error = np.sqrt(chance * (1 - chance) / sum(int(data.test_counts[c]) for c in clients))
    if after <= chance + 2 * error and chance < 1:
        found.append(
            f"the model is at chance: {_percent(after)} after adaptation, {_percent(chance)} by a "
            "random guess among each client's classes"
        )
    return found


def constant_answer(scores: Scores, data: FederatedDataset, steps: int) -> str | None:
    """A note if known clients would do as well by always giving their most frequent label."""
    known = groups(scores, data)["known_clients"]
    after = float(np.mean(scores.accuracy[known, steps]))
    constant = float(np.mean([data.guess_accuracy(c) for c in scores.clients[known].tolist()]))
    if after > constant + ROUNDING:
        return None
    return f"always giving each client's most frequent label would reach {_percent(constant)}"


def evaluation_record(scores: Scores, data: Clients, steps: int) -> dict[str, Any]:
    """Losses and accuracies before and after adaptation; known clients at the top level."""
    tables = {}
    for name, rows in groups(scores, data).items():
        tables[name] = {
            "loss": _before_after(scores.loss[rows], steps),
            "accuracy": _before_after(scores.accuracy[rows], steps),
        }
    return {**tables["known_clients"], "new_clients": tables.get("new_clients")}


def adaptation_curve(scores: Scores, data: Clients) -> dict[str, Any]:
    """Mean accuracy after 0, 1, 2 … adaptation steps; None where some client diverged."""
    curve: dict[str, Any] = {"steps": list(range(scores.accuracy.shape[1])), "new_clients": None}
    for name, rows in groups(scores, data).items():
        columns = [describe(c) if np.isfinite(c).all() else None for c in scores.accuracy[rows].T]
        means = [c and c["mean"] for c in columns]
        widths = [c and c["ci95"] for c in columns]
        curve[name] = {"accuracy": means, "ci95": widths}
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
            "accuracy_before": float(scores.accuracy[row, 0]),
            "accuracy_after": float(scores.accuracy[row, steps]),
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


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _before_after(values: np.ndarray, steps: int) -> dict[str, Any]:
    return {"before": describe(values[:, 0]), "after": describe(values[:, steps])}
