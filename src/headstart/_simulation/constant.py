"""How good an answer is that looks at no input: what a model must be held against."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from headstart.data._federated import FederatedDataset
from headstart.models.objectives import Objective

NUMBERS = 1 << 23
"""Outputs and statistics held at a time."""


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
    sums = np.zeros((len(clients), objective.width))
    for pieces in _pieces(objective, data, clients):
        if not _add(objective, data, pieces, sums):
            return None
    counts = np.asarray(data.test_counts)[list(clients)]
    values = objective.values(sums, counts)[metric.name]
    defined = values[np.isfinite(values)]
    if not len(defined):
        return None
    words, must = objective.constant_answer, objective.must_beat_constant
    return ConstantAnswer(words, float(np.mean(defined)), must)


class _Piece(NamedTuple):
    """Some held-out examples of one client."""

    place: int
    client: int
    rows: slice


def _add(
    objective: Objective, data: FederatedDataset, pieces: Sequence[_Piece], sums: np.ndarray
) -> bool:
    """Add the statistics of the clients' constant answers; False if there is no such answer."""
    outputs, labels = [], []
    for piece in pieces:
        own = data.client(piece.client)
        answer = objective.constant_outputs(own.y_train)
        if answer is None:
            return False
        labels.append(own.y_test[piece.rows])
        outputs.append(np.broadcast_to(answer, (len(labels[-1]), *answer.shape)))
    found = objective.statistics(
        jnp.asarray(np.concatenate(outputs)), jnp.asarray(np.concatenate(labels))
    )
    places = np.repeat([piece.place for piece in pieces], [len(y) for y in labels])
    np.add.at(sums, places, np.asarray(found, float))
    return True


def _pieces(
    objective: Objective, data: FederatedDataset, clients: Sequence[int]
) -> Iterator[list[_Piece]]:
    """All held-out examples, as many at a time as ``NUMBERS`` allows."""
    each = math.prod(data.y.shape[1:]) * data.schema.outputs + objective.width
    most = max(1, NUMBERS // each)
    some: list[_Piece] = []
    rows = 0
    for place, client in enumerate(clients):
        count = int(data.test_counts[client])
        for start in range(0, count, most):
            piece = _Piece(place, int(client), slice(start, min(start + most, count)))
            some.append(piece)
            rows += piece.rows.stop - start
            if rows >= most:
                yield some
                some, rows = [], 0
    if some:
        yield some
