"""Where clients share examples, nobody trains on what another is scored on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headstart.data import Schema, dirichlet, from_clients, load
from headstart.errors import DataError


@pytest.mark.parametrize("clients, examples", [(50, 1000), (20, 200)])
def test_no_held_out_example_of_anyone_is_in_anyones_training_split(
    clients: int, examples: int
) -> None:
    pool = load("digits")
    data = pool.split(dirichlet(clients, alpha=0.1, examples=examples), new_clients=4, seed=1)
    train, held = set(), set()
    for c in range(data.clients):
        client = data.client(c)
        train |= {x.tobytes() for x in client.x_train}
        held |= {x.tobytes() for x in client.x_test}
    doubles = len(pool.x) - len({x.tobytes() for x in pool.x})
    assert len(train & held) <= doubles
    shares = data.test_counts / np.diff(data.offsets)
    assert abs(shares.mean() - 0.2) < 0.05


GOOD = (np.zeros((3, 2)), np.zeros(3, int), np.zeros((1, 2)), np.zeros(1, int))


@pytest.mark.parametrize(
    "place, value, message",
    [
        (1, np.zeros(2, int), "3 training inputs and 2 labels"),
        (3, np.zeros(4, int), "1 held-out inputs and 4 labels"),
        (0, np.zeros((3, 5)), "the schema says"),
        (1, np.array([0.7, 0, 1]), "not whole numbers"),
        (1, np.array(["a", "b", "c"]), "not whole numbers"),
        (1, np.eye(3, dtype=int), "give class numbers"),
    ],
)
def test_clients_whose_parts_do_not_fit_are_named(place: int, value: Any, message: str) -> None:
    bad = tuple(value if i == place else part for i, part in enumerate(GOOD))
    with pytest.raises(DataError, match=f"client b.*{message}"):
        from_clients([GOOD, bad], Schema(shape=(2,), classes=3), names=["a", "b"])  # type: ignore[list-item]


def test_names_and_numbers_of_clients_are_checked() -> None:
    schema = Schema(shape=(2,), classes=3)
    with pytest.raises(DataError, match="1 names for 2 clients"):
        from_clients([GOOD, GOOD], schema, names=["a"])
    with pytest.raises(DataError, match="client -1 does not exist"):
        from_clients([GOOD, GOOD], schema).client(-1)
