"""How good an answer is that looks at no input: what a model must be held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from headstart.data.federated import FederatedDataset
from headstart.models.objectives import Objective

ROWS = 1 << 16
"""Held-out examples scored at a time."""


class ConstantAnswer(NamedTuple):
    """The best constant answer, in words, and its primary metric: the mean over clients."""

    words: str
    value: float
    must_be_beaten: bool
    """Whether a model that is no better is of no use."""


def constant_answer(
    objective: Objective, data: FederatedDataset, clients: Sequence[int]
) -> ConstantAnswer | None:
    """Each client gives what is best for its training labels; None if that means nothing.

    Most frequent class or label, or the mean of numbers: see the objectives' ``constant_outputs``.
    """
    metric = objective.primary
    if not (objective.constant_answer and metric.judges_answers):
        return None
    sums, counts = [], []
    for some in _pieces(data, clients):
        found = _sums(objective, data, some)
        if found is None:
            return None
        sums.append(found)
        counts.append(np.asarray(data.test_counts)[some])
    values = objective.values(np.concatenate(sums), np.concatenate(counts))[metric.name]
    defined = values[np.isfinite(values)]
    if not len(defined):
        return None
    words, must = objective.constant_answer, objective.must_beat_constant
    return ConstantAnswer(words, float(np.mean(defined)), must)


def _sums(
    objective: Objective, data: FederatedDataset, clients: Sequence[int]
) -> np.ndarray | None:
    """The statistics of each client's constant answer, added up over its held-out examples."""
    parts = [data.client(client) for client in clients]
    answers = [objective.constant_outputs(part.y_train) for part in parts]
    sizes = [len(part.y_test) for part in parts]
    known = [answer for answer in answers if answer is not None]
    if len(known) < len(parts):
        return None
    outputs = np.repeat(np.stack(known), sizes, axis=0)
    labels = np.concatenate([part.y_test for part in parts])
    statistics = objective.statistics(jnp.asarray(outputs), jnp.asarray(labels))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(np.asarray(statistics, float), starts, axis=0)


def _pieces(data: FederatedDataset, clients: Sequence[int]) -> Iterator[list[int]]:
    """Clients whose held-out examples are about so many."""
    some: list[int] = []
    rows = 0
    for client in clients:
        some.append(int(client))
        rows += int(data.test_counts[client])
        if rows >= ROWS:
            yield some
            some, rows = [], 0
    if some:
        yield some
