"""The best constant answer, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from headstart._simulation import constant
from headstart._simulation.constant import score_constant_answer
from headstart.models.objectives import Classification


@pytest.mark.parametrize("numbers_at_a_time", [constant.MOST_NUMBERS, 40])
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
