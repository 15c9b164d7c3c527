"""The best constant answer, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from headstart._simulation import constant
from headstart._simulation.constant import _split_examples, score_constant_answer
from headstart.models.objectives import Classification


@pytest.mark.parametrize("numbers_at_a_time", [constant.MOST_NUMBERS, 40, 1])
def test_it_is_each_clients_most_frequent_training_class(
    numbers_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when only a few examples are scored at a time."""
    monkeypatch.setattr(constant, "MOST_NUMBERS", numbers_at_a_time)
    data, clients = tiny.federation(), (0, 2, 5)
    accuracies = []
    for client in map(data.client, clients):
        most_frequent = np.argmax(np.bincount(client.y_train, minlength=tiny.CLASSES))
        accuracies.append(np.mean(client.y_test == most_frequent))
    answer = score_constant_answer(Classification(tiny.MODEL, data.schema), data, clients)
    assert answer is not None
    assert answer.value == pytest.approx(np.mean(accuracies))


@pytest.mark.parametrize("at_a_time", [1, 2, 4, 64, 1000])
def test_examples_are_scored_about_as_many_at_a_time_as_allowed(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All, once, in order; at least that many, and fewer than twice as many."""
    data, clients = tiny.federation(), (0, 2, 5)
    objective = Classification(tiny.MODEL, data.schema)
    numbers = at_a_time * (tiny.CLASSES + objective.width)  # outputs and statistics
    monkeypatch.setattr(constant, "MOST_NUMBERS", numbers)
    groups = list(_split_examples(objective, data, clients))
    rows = [
        (piece.client, row)
        for pieces in groups
        for piece in pieces
        for row in range(piece.rows.start, piece.rows.stop)
    ]
    assert rows == [(client, row) for client in clients for row in range(data.test_counts[client])]
    sizes = [sum(piece.rows.stop - piece.rows.start for piece in pieces) for pieces in groups]
    assert all(at_a_time <= size < 2 * at_a_time for size in sizes[:-1])
    assert 0 < sizes[-1] < 2 * at_a_time
