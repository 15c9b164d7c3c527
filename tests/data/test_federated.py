"""Flat arrays and offsets say what every client holds, and refuse what nobody could use."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data import FederatedDataset, Schema, from_clients
from headstart.errors import ConfigError, DataError

sizes = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=8)


def made(counts: list[tuple[int, int]], **options: Any) -> FederatedDataset:
    """Clients whose x is a running number and whose y is it mod 3."""
    start, clients = 0, []
    for train, test in counts:
        rows = np.arange(start, start + train + test)
        x, y = rows[:, None].astype(np.float32), rows % 3
        clients.append((x[:train], y[:train], x[train:], y[train:]))
        start += train + test
    return from_clients(clients, Schema(shape=(1,), classes=3), **options)


@given(counts=sizes)
def test_every_client_gets_back_what_was_given(counts: list[tuple[int, int]]) -> None:
    data = made(counts)
    assert data.clients == data.known_clients == len(counts)
    row = 0
    for number, (train, test) in enumerate(counts):
        client = data.client(number)
        found = [*client.x_train[:, 0], *client.x_test[:, 0]]
        assert found == list(range(row, row + train + test))
        assert len(client.x_train) == len(client.y_train) == train
        assert len(client.x_test) == len(client.y_test) == test == data.test_counts[number]
        assert data.classes_of(number).sum() == train + test
        row += train + test
    assert data.y.dtype == np.int32


def test_new_clients_come_last_and_names_are_kept() -> None:
    data = made([(2, 1)] * 3, new_clients=1, names=["a", "b", "c"])
    assert [data.client(c).is_new for c in range(3)] == [False, False, True]
    assert data.name(2) == "c" and made([(2, 1)]).name(0) == "0"


@given(counts=st.lists(st.tuples(st.integers(2, 9), st.integers(1, 4)), min_size=2, max_size=6))
def test_tuning_sees_training_splits_only(counts: list[tuple[int, int]]) -> None:
    data = made(counts, new_clients=1)
    tuned = data.for_tuning()
    assert tuned.clients == data.known_clients and tuned.new_clients == 0
    for number in range(tuned.clients):
        seen = tuned.client(number)
        both = [*seen.x_train[:, 0], *seen.x_test[:, 0]]
        assert both == data.client(number).x_train[:, 0].tolist()
        assert len(seen.x_test) >= 1


@given(
    counts=st.lists(st.tuples(st.integers(2, 9), st.integers(1, 4)), min_size=3, max_size=8),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_validation_clients_stay_out_of_training(
    counts: list[tuple[int, int]], seed: int, data: st.DataObject
) -> None:
    """Every row of the tuning data is a training row of its own known client, and only once."""
    whole = made(counts, new_clients=1)
    count = data.draw(st.integers(0, whole.known_clients - 1))
    tuned = whole.for_tuning(validation_clients=count, seed=seed)
    assert (tuned.known_clients, tuned.new_clients) == (whole.known_clients - count, count)
    names = [int(tuned.name(number)) for number in range(tuned.clients)]
    assert sorted(names) == list(range(whole.known_clients))
    for number, original in enumerate(names):
        part = tuned.client(number)
        both = [*part.x_train[:, 0], *part.x_test[:, 0]]
        assert both == whole.client(original).x_train[:, 0].tolist()
        assert part.is_new == (number >= tuned.known_clients)
    listed = whole.for_tuning(validation_clients=names[tuned.known_clients :])
    assert listed.digest() == tuned.digest()
    if count == 0:
        assert tuned.digest() == whole.for_tuning().digest()


def test_impossible_validation_clients_are_refused() -> None:
    data = made([(2, 1)] * 4, new_clients=1)
    with pytest.raises(ConfigError, match="validation_clients=3 of 3 known clients leaves none"):
        data.for_tuning(validation_clients=3)
    with pytest.raises(ConfigError, match="validation_clients=-1"):
        data.for_tuning(validation_clients=-1)
    with pytest.raises(ConfigError, match=r"\[3\] must be known clients: 0 … 2"):
        data.for_tuning(validation_clients=[3])


def test_stored_numbers_become_inputs() -> None:
    one = Schema(shape=(2, 2, 1), classes=2, scale=1 / 255)
    assert one.decode(jnp.full((1, 2, 2, 1), 255, jnp.uint8)).tolist() == [[[[1], [1]]] * 2]
    each = Schema(shape=(2,), classes=2, shift=(1.0, 2.0), scale=(2.0, 0.5))
    assert each.decode(jnp.array([[2, 4]])).tolist() == [[2.0, 1.0]]
    text = Schema(shape=(2,), classes=9, vocabulary=9)
    assert text.decode(jnp.array([[1, 8]], jnp.uint8)).dtype == jnp.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_counts": np.array([0, 2])}, "client 0 has 3 examples and so no training example"),
        ({"train_counts": np.array([3, 2])}, "no held-out example; .* data.min_examples=2"),
        ({"new_clients": 2}, "new_clients=2 of 2 clients leaves none"),
        ({"y": np.zeros(5, np.int32)}, "6 inputs, 5 labels and 6 examples do not agree"),
        ({"x": np.zeros((6, 2))}, r"examples have shape \(2,\), the schema says \(1,\)"),
        ({"y": np.array([0, 1, 2, 0, 7, 1])}, "client 1 has label 7, outside 0 … 2"),
        ({"y": np.array([0, -1, 2, 0, 0, 1])}, "client 0 has label -1"),
        ({"x": np.array([[0], [1], [2], [3], [4], [np.nan]])}, r"client 1 .* \(its example 2\)"),
        (
            {"schema": Schema(shape=(1,), classes=3, vocabulary=4)},
            "client 1 has a token outside 0 … 3",
        ),
    ],
)
def test_what_nobody_could_use_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(made([(2, 1)] * 2), **change)


def test_no_client_at_all() -> None:
    with pytest.raises(DataError, match="there are no clients"):
        from_clients([], Schema(shape=(1,), classes=2))
