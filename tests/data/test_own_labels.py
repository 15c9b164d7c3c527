"""Clients that name the classes in their own way."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.data import FederatedDataset, class_groups, iid, load
from headstart.data import _dataset_options as dataset_options
from headstart.errors import ConfigError


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


def renamed(plain: FederatedDataset, own: FederatedDataset, client: int) -> dict[int, int]:
    """Return the client's new names."""
    rows = slice(int(plain.offsets[client]), int(plain.offsets[client + 1]))
    return dict(zip(plain.y[rows].tolist(), own.y[rows].tolist(), strict=True))


@pytest.mark.parametrize(("share", "most"), [(0.0, 0), (0.2, 2), (0.5, 5), (1.0, 10)])
def test_a_share_of_the_classes_is_renamed_among_themselves(share: float, most: int) -> None:
    """k classes in random order leave k − 1 of them renamed on average; others keep theirs."""
    plain = load("digits").split(iid(clients=20), seed=1)
    own = plain.with_own_labels(seed=1, share=share)
    moved = []
    for client in range(plain.clients):
        names = renamed(plain, own, client)
        changed = {a for a, b in names.items() if a != b}
        assert {names[a] for a in changed} == changed and len(changed) <= most
        moved.append(len(changed))
    assert np.mean(moved) == pytest.approx(max(0, most - 1), abs=0.8)


def test_true_and_one_are_the_same_clients_and_the_permutations_are_those_of_before() -> None:
    """The expected permutation is what every version drew: all classes, from seed and client."""
    table = {"source": "digits", "partition": "iid", "clients": 10}
    build = dataset_options.build_dataset
    plain, own = build(table, seed=3), build({**table, "own_labels": True}, seed=3)
    assert own.digest() == build({**table, "own_labels": 1.0}, seed=3).digest()
    assert plain.digest() == build({**table, "own_labels": 0.0}, seed=3).digest()
    names = np.random.default_rng([3, 4]).permutation(10)
    assert renamed(plain, own, 4) == {a: int(names[a]) for a in renamed(plain, own, 4)}
    half = {**table, "own_labels": 0.5}
    assert dataset_options.resolve_data_options(half)["own_labels"] == 0.5
    assert "own labels for 50 % of the classes" in build(half, seed=3).description


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_a_share_outside_0_and_1_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="must be true, false or a share between 0 and 1"):
        dataset_options.resolve_data_options({"source": "digits", "own_labels": wrong})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        load("digits").split(iid(clients=5), seed=1).with_own_labels(share=wrong)
