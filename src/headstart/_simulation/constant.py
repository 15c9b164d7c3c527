"""Score the best answer that ignores the input: the baseline for every model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from headstart.data._federated import FederatedDataset
from headstart.models.objectives import Objective

MOST_NUMBERS = 1 << 23
"""Outputs and statistics held in memory at a time."""


class ConstantAnswer(NamedTuple):
    """The best constant answer, in words, and its primary metric averaged over clients."""

    words: str
    value: float
    must_be_beaten: bool
    """Whether a model that does not beat it is useless."""


def score_constant_answer(
    objective: Objective, data: FederatedDataset, clients: Sequence[int]
) -> ConstantAnswer | None:
    """Score the best constant answer of each client; None if the objective has none.

    The answer is the one that fits the client's training labels best: the most frequent class or
    label, or the mean of numbers. See the objectives' ``constant_outputs``.
    """
    metric = objective.primary
    if not (objective.constant_answer and metric.judges_answers):
        return None
    sums = np.zeros((len(clients), objective.width))
    for pieces in _split_examples(objective, data, clients):
        if not _add_statistics(objective, data, pieces, sums):
            return None
    counts = np.asarray(data.test_counts)[list(clients)]
    values = objective.values(sums, counts)[metric.name]
    defined = values[np.isfinite(values)]
    if not len(defined):
        return None
    words, must_be_beaten = objective.constant_answer, objective.must_beat_constant
    return ConstantAnswer(words, float(np.mean(defined)), must_be_beaten)


class _Piece(NamedTuple):
    """Some held-out examples of one client."""

    place: int
    client: int
    rows: slice


def _add_statistics(
    objective: Objective, data: FederatedDataset, pieces: Sequence[_Piece], sums: np.ndarray
) -> bool:
    """Add the statistics of the clients' constant answers to ``sums``; False if one has none."""
    outputs, labels = [], []
    for piece in pieces:
        client = data.client(piece.client)
        answer = objective.constant_outputs(client.y_train)
        if answer is None:
            return False
        labels.append(client.y_test[piece.rows])
        outputs.append(np.broadcast_to(answer, (len(labels[-1]), *answer.shape)))
    statistics = _compute_statistics(
        objective, jnp.asarray(np.concatenate(outputs)), jnp.asarray(np.concatenate(labels))
    )
    places = np.repeat([piece.place for piece in pieces], [len(y) for y in labels])
    np.add.at(sums, places, np.asarray(statistics, float))
    return True


@partial(jax.jit, static_argnames="objective")
def _compute_statistics(objective: Objective, outputs: Array, y: Array) -> Array:
    return objective.statistics(outputs, y)


def _split_examples(
    objective: Objective, data: FederatedDataset, clients: Sequence[int]
) -> Iterator[list[_Piece]]:
    """Yield all held-out examples, about as many at a time as ``MOST_NUMBERS`` allows."""
    numbers_per_example = math.prod(data.y.shape[1:]) * data.schema.outputs + objective.width
    most_rows = max(1, MOST_NUMBERS // numbers_per_example)
    pieces: list[_Piece] = []
    rows = 0
    for place, client in enumerate(clients):
        count = int(data.test_counts[client])
        for start in range(0, count, most_rows):
            piece = _Piece(place, int(client), slice(start, min(start + most_rows, count)))
            pieces.append(piece)
            rows += piece.rows.stop - start
            if rows >= most_rows:
                yield pieces
                pieces, rows = [], 0
    if pieces:
        yield pieces
