"""Partitions deal every example as they promise, and equal generators deal alike."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data._partition import (
    PARTITIONS,
    Rows,
    class_groups,
    dirichlet,
    dirichlet_labels,
    iid,
    natural,
    option_names,
    partition_name,
    shards,
)
from headstart.errors import ConfigError

TEN = np.repeat(np.arange(10), 60)
"""Sixty examples of each of ten classes."""


def deal(partition: Any, labels: np.ndarray = TEN, test: Any = None, seed: int = 0) -> Rows:
    return partition.assign(labels, test, np.random.default_rng(seed))[0]


def counts(rows: Rows, labels: np.ndarray = TEN) -> np.ndarray:
    return np.array([np.bincount(labels[r], minlength=10) for r in rows])


def assert_disjoint(rows: Rows) -> None:
    every = np.concatenate(rows)
    assert len(np.unique(every)) == len(every)


labels_of_any_kind = st.integers(0, 2**32 - 1).flatmap(
    lambda seed: st.builds(
        lambda n, k: np.random.default_rng(seed).integers(0, k, n),
        st.integers(40, 300),
        st.integers(1, 12),
    )
)
alphas = st.sampled_from([1e-300, 1e-8, 0.01, 0.5, 1.0, 100.0, 1e12, 1e308])


def test_class_groups_follow_table_2_of_the_paper() -> None:
    found = counts(deal(class_groups(clients=20, a=4)))
    assert (found[:10] == [4] * 5 + [0] * 5).all()
    for client, c in enumerate([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], start=10):
        expected = np.zeros(10)
        expected[c], expected[c + 5] = 2, 8
        assert (found[client] == expected).all()


def test_different_heterogeneity_leaves_no_class_in_common() -> None:
    found = counts(deal(class_groups(clients=20, a=4, different=True)))
    assert found[:10, 5:].sum() == 0 and found[10:, :5].sum() == 0
    assert (found[10:].sum(axis=1) == 8).all()


def test_official_test_examples_are_dealt_by_the_same_design() -> None:
    part = class_groups(clients=10, a=4, a_test=2)
    _, held = part.assign(TEN, TEN[::2], np.random.default_rng(0))
    assert held is not None
    assert_disjoint(held)
    assert (counts(held, TEN[::2])[0] == [2] * 5 + [0] * 5).all()


@given(clients=st.integers(2, 40), different=st.booleans(), seed=st.integers(0, 99))
def test_without_a_class_groups_take_the_largest_even_one(
    clients: int, different: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(10), rng.integers(60, 90, 10)))
    rows = deal(class_groups(clients=clients, different=different), labels, seed=seed)
    assert_disjoint(rows)
    assert len(rows) == clients
    found = counts(rows, labels)
    a = int(found[0, 0])
    assert a % 2 == 0 and a >= 2
    assert (found[: clients // 2, :5] == a).all()
    with pytest.raises(ConfigError, match=f"use at most {a}$"):
        deal(class_groups(clients=clients, a=a + 2, different=different), labels)


@pytest.mark.parametrize("clients", [2, 3, 7, 11, 13, 50])
def test_groups_of_the_second_half_are_as_even_as_can_be(clients: int) -> None:
    found = counts(deal(class_groups(clients=clients, a=2)))
    groups = np.count_nonzero(found[clients // 2 :, 5:], axis=0)
    assert groups.max() - groups.min() <= 1 and groups.sum() == clients - clients // 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [(TEN % 7, "10 classes"), (TEN + 1, "10 classes"), (TEN[:, None], "10 classes")],
)
def test_class_groups_need_ten_classes(labels: np.ndarray, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        deal(class_groups(clients=4), labels)


def test_a_for_test_examples_needs_such() -> None:
    with pytest.raises(ConfigError, match="a_test=2 needs a source that has its own test examples"):
        deal(class_groups(clients=4, a_test=2))


def test_more_class_group_clients_than_a_class_serves() -> None:
    with pytest.raises(ConfigError, match="use fewer clients"):
        deal(class_groups(clients=299))


@given(
    labels=labels_of_any_kind,
    clients=st.integers(2, 20),
    alpha=alphas,
    examples=st.integers(2, 40),
    seed=st.integers(0, 99),
)
def test_dirichlet_gives_every_client_as_many(
    labels: np.ndarray, clients: int, alpha: float, examples: int, seed: int
) -> None:
    rows = deal(dirichlet(clients=clients, alpha=alpha, examples=examples), labels, seed=seed)
    assert [len(r) for r in rows] == [examples] * clients
    for own in rows:
        repeated = np.unique(own, return_counts=True)
        for row in repeated[0][repeated[1] > 1]:
            same = labels == labels[row]
            assert np.count_nonzero(labels[own] == labels[row]) > np.count_nonzero(same)


def test_dirichlet_uses_every_example_of_a_class_before_any_twice() -> None:
    labels = np.repeat([0, 1], 50)
    rows = deal(dirichlet(clients=10, alpha=1e12, examples=10), labels)
    assert len(np.unique(np.concatenate(rows))) >= 90
    rows = deal(dirichlet(clients=20, alpha=1e12, examples=10), labels)
    assert len(np.unique(np.concatenate(rows))) == 100
    assert all(len(np.unique(own)) == 10 for own in rows)


def test_small_alpha_gives_few_classes_and_large_alpha_all() -> None:
    few = counts(deal(dirichlet(clients=50, alpha=0.01, examples=50)))
    many = counts(deal(dirichlet(clients=50, alpha=1000.0, examples=50)))
    assert np.median(np.count_nonzero(few, axis=1)) == 1
    assert np.median(np.count_nonzero(many, axis=1)) == 10


def test_dirichlet_shares_have_the_right_mean_and_variance() -> None:
    # Var p_c = (1/k)(1 − 1/k)/(kα + 1) for Dir(α, …, α) over k classes.
    k, alpha, examples = 4, 0.5, 400
    labels = np.repeat(np.arange(k), 400)
    rows = deal(dirichlet(clients=800, alpha=alpha, examples=examples), labels)
    shares = np.array([np.bincount(labels[r], minlength=k) for r in rows]) / examples
    expected = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    assert np.allclose(shares.mean(axis=0), 1 / k, atol=0.04)
    assert np.allclose(shares.var(axis=0), expected, rtol=0.2)


@given(
    labels=labels_of_any_kind,
    clients=st.integers(2, 20),
    alpha=alphas,
    least=st.integers(2, 6),
    seed=st.integers(0, 99),
)
def test_dirichlet_labels_deal_all_and_leave_no_client_small(
    labels: np.ndarray, clients: int, alpha: float, least: int, seed: int
) -> None:
    part = dirichlet_labels(clients=clients, alpha=alpha, min_size=least)
    if clients * least > len(labels):
        with pytest.raises(ConfigError, match="too many"):
            deal(part, labels)
        return
    rows = deal(part, labels, seed=seed)
    assert_disjoint(rows)
    assert sum(map(len, rows)) == len(labels)
    assert len(rows) == clients and min(map(len, rows)) >= least


@given(
    labels=labels_of_any_kind,
    clients=st.integers(2, 12),
    each=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_shards_deal_all_in_equal_parts(
    labels: np.ndarray, clients: int, each: int, seed: int
) -> None:
    if clients * max(2, each) > len(labels):
        with pytest.raises(ConfigError, match="too many"):
            deal(shards(clients=clients, shards_per_client=each), labels)
        return
    rows = deal(shards(clients=clients, shards_per_client=each), labels, seed=seed)
    assert_disjoint(rows)
    assert sum(map(len, rows)) == len(labels)
    assert max(map(len, rows)) - min(map(len, rows)) <= each


def test_two_shards_hold_two_classes_at_most_when_they_fit() -> None:
    found = counts(deal(shards(clients=10, shards_per_client=2)))
    assert np.count_nonzero(found, axis=1).max() == 2


@given(labels=labels_of_any_kind, clients=st.integers(2, 20), seed=st.integers(0, 99))
def test_iid_deals_all_in_equal_parts(labels: np.ndarray, clients: int, seed: int) -> None:
    rows = deal(iid(clients=clients), labels, seed=seed)
    assert_disjoint(rows)
    assert sum(map(len, rows)) == len(labels)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@given(owner=st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_natural_clients_keep_what_is_theirs_in_order(owner: list[int]) -> None:
    owners = np.array(owner)
    rows = deal(natural(), owners)
    assert_disjoint(rows)
    assert [set(owners[r]) for r in rows] == [{o} for o in sorted(set(owner))]
    assert all((np.diff(r) > 0).all() for r in rows)


@pytest.mark.parametrize("name", PARTITIONS)
def test_equal_generators_deal_alike_and_others_differently(name: str) -> None:
    part = PARTITIONS[name](**({"examples": 50} if name == "dirichlet" else {}))
    first, again, other = (deal(part, seed=seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    if name != "natural":
        assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_are_values(name: str) -> None:
    cls = PARTITIONS[name]
    assert cls() == cls() and hash(cls()) == hash(cls())
    assert partition_name(cls()) == name
    assert option_names(cls) == [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (class_groups, {"clients": 1}, "clients=1"),
        (class_groups, {"a": 3}, "a=3 must be an even number"),
        (class_groups, {"a": 0}, "a=0"),
        (class_groups, {"a_test": -2}, "a_test=-2"),
        (dirichlet, {"alpha": 0.0}, "alpha=0.0"),
        (dirichlet, {"alpha": float("nan")}, "alpha=nan"),
        (dirichlet, {"alpha": float("inf")}, "alpha=inf"),
        (dirichlet, {"examples": 1}, "examples=1"),
        (dirichlet_labels, {"alpha": -1.0}, "alpha=-1.0"),
        (dirichlet_labels, {"min_size": 1}, "min_size=1"),
        (shards, {"shards_per_client": 0}, "shards_per_client=0"),
        (iid, {"clients": 0}, "clients=0"),
    ],
)
def test_options_out_of_range(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**options)


@pytest.mark.parametrize("make", [class_groups, dirichlet, dirichlet_labels, shards, iid])
def test_too_many_clients_are_refused_before_memory_is_asked_for(make: Any) -> None:
    with pytest.raises(ConfigError, match="clients=1000000000 is too many for 600 examples"):
        deal(make(clients=10**9))


def test_more_examples_per_client_than_there_are() -> None:
    with pytest.raises(ConfigError, match="examples=601 per client is more than the 600"):
        deal(dirichlet(clients=2, examples=601))


@pytest.mark.parametrize("make", [dirichlet_labels, shards])
def test_text_has_no_class_to_be_dealt_by(make: Any) -> None:
    with pytest.raises(ConfigError, match="one label per example"):
        deal(make(clients=4), np.zeros((600, 5), int))
