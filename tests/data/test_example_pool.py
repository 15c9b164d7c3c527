"""A pool's split keeps examples apart, and its three random streams too."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import FederatedDataset, Pool, Schema, class_groups, dirichlet, iid, natural
from headstart.errors import ConfigError, DataError


def pool(examples: int = 200, owners: int = 0, **changes: Any) -> Pool:
    """A pool whose x is the row number, so that every example can be followed."""
    rows = np.arange(examples)
    made = Pool(
        name="rows",
        x=rows[:, None].astype(np.float32),
        y=(rows % 10).astype(np.int32),
        schema=Schema(shape=(1,), classes=10),
        owner=rows % owners if owners else None,
        owner_names=[f"owner-{i}" for i in range(owners)],
    )
    return replace(made, **changes)


def parts(data: FederatedDataset) -> list[tuple[list[int], list[int]]]:
    clients = [data.client(c) for c in range(data.clients)]
    return [
        (c.x_train[:, 0].astype(int).tolist(), c.x_test[:, 0].astype(int).tolist()) for c in clients
    ]


@given(
    clients=st.integers(2, 40),
    new=st.integers(0, 39),
    fraction=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_example_is_in_two_splits(clients: int, new: int, fraction: float, seed: int) -> None:
    if new >= clients:
        with pytest.raises(ConfigError, match=f"new_clients={new}"):
            pool().split(iid(clients=clients), new_clients=new, seed=seed)
        return
    data = pool().split(iid(clients=clients), new_clients=new, test_fraction=fraction, seed=seed)
    every = [row for train, test in parts(data) for row in train + test]
    assert sorted(every) == list(range(200))
    assert data.new_clients == new and data.clients == clients
    for train, test in parts(data):
        size = len(train) + len(test)
        assert len(test) == max(1, min(size - 1, round(fraction * size)))
    assert (data.y == data.x[:, 0] % 10).all()


@given(seed=st.integers(0, 50))
def test_copies_of_an_example_stay_in_one_split(seed: int) -> None:
    data = pool(200).split(dirichlet(clients=3, alpha=0.01, examples=50), seed=seed)
    for train, test in parts(data):
        assert not set(train) & set(test)
        assert len(train) + len(test) == 50


def test_a_seed_says_all() -> None:
    first, again, other = (pool().split(iid(clients=5), new_clients=2, seed=s) for s in (3, 3, 4))
    assert parts(first) == parts(again)
    assert parts(first) != parts(other)


def test_streams_are_independent() -> None:
    few, more = (pool().split(iid(clients=9), new_clients=n, seed=1) for n in (0, 4))
    members = [sorted(train + test) for train, test in parts(few)]
    assert sorted(sorted(train + test) for train, test in parts(more)) == sorted(members)


def test_official_test_examples_are_held_out() -> None:
    official = pool(
        400,
        test_x=np.arange(1000, 1200)[:, None].astype(np.float32),
        test_y=(np.arange(200) % 10).astype(np.int32),
    )
    data = official.split(class_groups(clients=4))
    for train, test in parts(data):
        assert max(train) < 400 and min(test) >= 1000
    # 40 of each class: 2a + a/2 of class c ≤ 40 gives a = 16; 5a, and a/2 + 2a, for each client.
    assert data.train_counts.tolist() == [80, 80, 40, 40]
    untouched = official.split(iid(clients=4))
    assert max(row for train, test in parts(untouched) for row in train + test) < 400


def test_labels_follow_their_examples() -> None:
    official = pool(
        400,
        test_x=np.arange(1000, 1200)[:, None].astype(np.float32),
        test_y=(np.arange(200) % 10).astype(np.int32),
    )
    for data in (official.split(class_groups(clients=4)), official.split(iid(clients=4))):
        assert (data.y == data.x[:, 0] % 10).all()


def test_natural_clients_are_the_default_and_keep_their_names() -> None:
    data = pool(owners=7).split(new_clients=2, seed=1)
    assert data.clients == 7 and data.new_clients == 2
    for client, (train, test) in enumerate(parts(data)):
        assert {f"owner-{row % 7}" for row in train + test} == {data.name(client)}
    assert list(data.names or [])[:5] == sorted(list(data.names or [])[:5])


def test_a_source_names_its_own_new_clients() -> None:
    named = pool(owners=8, new_owners=frozenset({1, 5, 6}))
    every = named.split()
    assert [every.name(c) for c in range(5, 8)] == ["owner-1", "owner-5", "owner-6"]
    assert every.new_clients == 3
    one = named.split(new_clients=1, seed=2)
    assert one.clients == 6 and one.new_clients == 1
    assert one.name(5) in {"owner-1", "owner-5", "owner-6"}
    none = named.split(new_clients=0)
    assert none.clients == 5 and none.new_clients == 0
    with pytest.raises(ConfigError, match="new_clients=4 of 8 clients: use 0 to 3"):
        named.split(new_clients=4)
    assert named.split(iid(clients=4)).new_clients == 0


def test_text_is_held_out_at_its_end() -> None:
    data = pool(owners=4, ordered=True).split(test_fraction=0.3)
    for train, test in parts(data):
        assert train == sorted(train) and test == sorted(test) and max(train) < min(test)


def test_small_clients_are_an_error_or_left_out() -> None:
    owner = np.array([0] * 10 + [1] + [2] * 3 + [3] * 6)
    small = pool(20, owner=owner, owner_names=["a", "b", "c", "d"])
    with pytest.raises(DataError, match=r"client b has 1 example .* data.min_examples=2"):
        small.split()
    assert small.split(min_examples=2).names == ["a", "c", "d"]
    assert small.split(min_examples=4).names == ["a", "d"]
    with pytest.raises(ConfigError, match="min_examples=11 leaves no client: the largest has 10"):
        small.split(min_examples=11)


def test_leaving_out_every_known_client_is_refused() -> None:
    owner = np.array([0] * 15 + [1] * 5)
    lopsided = pool(20, owner=owner, owner_names=["a", "b"], new_owners=frozenset({0}))
    with pytest.raises(ConfigError, match="no client to train on"):
        lopsided.split(min_examples=6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_fraction": 0.0}, "test_fraction=0.0"),
        ({"test_fraction": 1.0}, "test_fraction=1.0"),
        ({"test_fraction": float("nan")}, "test_fraction=nan"),
        ({"min_examples": 1}, "min_examples=1"),
        ({"seed": -1}, "seed=-1"),
        ({"new_clients": -1}, "new_clients=-1"),
        ({"new_clients": 20}, "new_clients=20"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pool().split(iid(clients=20), **options)


def test_natural_needs_owners() -> None:
    with pytest.raises(ConfigError, match="does not name the client of each"):
        pool().split(natural())


@settings(max_examples=30)
@given(seed=st.integers(0, 999), new=st.integers(0, 3))
def test_standardised_features_have_mean_0_and_variance_1(seed: int, new: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal([3, -70, 0.1], [2, 100, 0], (60, 3)).astype(np.float32)
    made = pool(60, owners=5, x=x, schema=Schema(shape=(3,), classes=10), standardize=True)
    data = made.split(new_clients=new, seed=seed)
    seen = jnp.concatenate([jnp.asarray(data.client(c).x_train) for c in range(5 - new)])
    decoded = np.asarray(data.schema.decode(seen))
    assert np.allclose(decoded.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(decoded.std(axis=0), [1, 1, 0], atol=1e-3)
