"""Clients that name the classes in their own way."""

from __future__ import annotations

import numpy as np

from headstart.data import _dataset_options as dataset_options
from headstart.data import class_groups, load


def test_every_client_gets_a_permutation_of_its_own() -> None:
    plain = load("digits").split(class_groups(clients=20), new_clients=4, seed=1)
    own = plain.with_own_labels(seed=1)
    maps = []
    for client in range(plain.clients):
        before, after = plain.client(client), own.client(client)
        np.testing.assert_array_equal(before.x_train, after.x_train)
        pairs = set(zip(before.y_train.tolist(), after.y_train.tolist(), strict=True))
        pairs |= set(zip(before.y_test.tolist(), after.y_test.tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        maps.append(frozenset(pairs))
    assert len(set(maps)) == len(maps)


def test_it_is_an_option_of_the_data_table_and_repeats_with_the_seed() -> None:
    table = {"source": "digits", "partition": "iid", "clients": 10, "own_labels": True}
    one, again, other = (dataset_options.build_dataset(table, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(one.y, again.y)
    assert not np.array_equal(one.y, other.y)
    assert "own labels" in one.description
    assert dataset_options.resolve_data_options(table)["own_labels"] is True
