"""Distances between clients, against values by hand and against each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headstart import heterogeneity
from headstart.data import FederatedDataset, Schema, from_clients
from headstart.errors import ConfigError
from headstart.heterogeneity import (
    estimate_similarity,
    label_bound,
    label_distributions,
    total_variation,
    wasserstein,
)


def federation(
    shifts: list[float], labels: list[list[int]], dimensions: int = 3
) -> FederatedDataset:
    """Clients with the same cloud of points, shifted along the first axis."""
    dimensions = 3
    cloud = np.random.default_rng(0).normal(size=(40, dimensions)).astype(np.float32)
    parts = []
    for shift, own in zip(shifts, labels, strict=True):
        x = cloud.copy()
        x[:, 0] += shift
        y = np.resize(own, len(x))
        parts.append((x, y, x[:1], y[:1]))
    return from_clients(parts, Schema(shape=(dimensions,), classes=4))


def test_total_variation_by_hand() -> None:
    data = federation([0, 0, 0], [[0], [1], [0, 1]])
    np.testing.assert_allclose(label_distributions(data)[2], [0.5, 0.5, 0, 0])
    found = total_variation(data)
    np.testing.assert_allclose(found.pairwise, [[0, 1, 0.5], [1, 0, 0.5], [0.5, 0.5, 0]])
    np.testing.assert_allclose(found.to_mean, [0.5, 0.5, 0])
    assert found.mean_square == pytest.approx(1 / 6)


@pytest.mark.parametrize("how", ["exact", "sliced"])
def test_a_shift_is_as_far_as_it_moves(how: heterogeneity.How) -> None:
    found = wasserstein(federation([0, 2, 5], [[0]] * 3), how=how)
    expected = np.array([[0, 2, 5], [2, 0, 3], [5, 3, 0]])
    np.testing.assert_allclose(found.pairwise, expected, rtol=1e-6 if how == "exact" else 0.1)
    assert how in found.how and "3 clients" in found.how


def test_exact_transport_of_two_points_by_hand() -> None:
    """{0, 4} to {1, 7} on a line: 1 and 3, mean 2; features alone, one class."""
    a, b = np.array([[0.0], [4.0]]), np.array([[7.0], [1.0]])
    assert heterogeneity._exact(a, b) == pytest.approx(2.0)


def test_sliced_transport_is_a_lower_estimate() -> None:
    """Clouds around the same point, one wider: in a projection more points find a near partner."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(200, 6))
    b = 3 * rng.normal(size=(200, 6))
    assert heterogeneity._Sliced(6, 0)(a, b) < 0.9 * heterogeneity._exact(a, b)


def test_other_labels_on_the_same_pictures_count_as_much_as_other_pictures() -> None:
    data = federation([0, 0], [[0], [1]])
    found = wasserstein(data, how="exact")
    points = np.asarray(data.x[:40], float)
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    assert found.pairwise[0, 1] == pytest.approx(np.median(apart[apart > 0]), rel=0.1)


def test_the_choice_between_exact_and_sliced_is_made_by_size_and_stated() -> None:
    few = federation([0.0] * 3, [[0]] * 3)
    many = federation([0.0] * 30, [[0]] * 30)
    assert wasserstein(few).how.startswith("exact")
    assert wasserstein(many, examples=8).how.startswith("sliced, 30 clients, at most 8")
    assert wasserstein(many, clients=5, examples=8).how.startswith("exact, 5 clients")


def test_what_distances_say() -> None:
    apart = total_variation(federation([0, 0], [[0], [1]])).to_mean  # 1/2 each
    assert label_bound(apart, B=3) == pytest.approx(3)
    moved = wasserstein(federation([0, 2], [[0]] * 2), how="exact")
    found = estimate_similarity(moved, L_z=2, rho_z=3)
    assert found.gamma_G / found.gamma_H == pytest.approx(2 / 3)
    assert found.gamma_G == pytest.approx(2 * np.sqrt(moved.mean_square))


def test_sequences_of_tokens_have_distances_too() -> None:
    x = np.array([[0, 1], [1, 1], [2, 2], [2, 0]])
    parts = [(x[:2], x[:2], x[:1], x[:1]), (x[2:], x[2:], x[2:3], x[2:3])]
    data = from_clients(parts, Schema(shape=(2,), classes=3, vocabulary=3))
    assert wasserstein(data).pairwise[0, 1] > 0
    assert total_variation(data).pairwise[0, 1] == pytest.approx(0.75)


def test_impossible_numbers_are_refused() -> None:
    data = federation([0, 0], [[0], [1]])
    impossible: list[dict[str, Any]] = [{"clients": 1}, {"examples": 1}]
    for wrong in impossible:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            wasserstein(data, **wrong)
    with pytest.raises(ConfigError, match="how='fast'"):
        wasserstein(data, how="fast")  # type: ignore[arg-type]


def test_what_chance_explains_shrinks_with_the_root_of_the_size() -> None:
    """Two classes at one half: TV is |share − ½|, below 1.96·½/√m for 95 %."""
    rng = np.random.default_rng(0)
    parts = []
    for size in (16, 16, 64, 256):
        y = rng.permutation(np.arange(size) % 2)
        x = rng.normal(size=(size, 3)).astype(np.float32)
        parts.append((x, y, x[:1], y[:1]))
    data = from_clients(parts, Schema(shape=(3,), classes=2))
    found = total_variation(data)
    expected = 1.96 * 0.5 / np.sqrt([16, 16, 64, 256])
    np.testing.assert_allclose(found.chance, expected, rtol=0.3)
    assert not found.beyond_chance.any()
    apart = wasserstein(data)
    assert apart.chance[0] > apart.chance[2] > apart.chance[3] > 0


def test_a_shifted_client_is_beyond_chance() -> None:
    found = wasserstein(federation([0, 0, 0, 9], [[0]] * 4))
    assert found.beyond_chance[3] and np.argmax(found.to_mean) == 3
    assert not wasserstein(federation([0, 0, 0, 0], [[0]] * 4)).beyond_chance.any()


@pytest.mark.parametrize("sizes", [(6, 9), (5, 10), (7, 7)])
def test_transport_of_unequal_clouds_is_an_assignment_of_copies(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    cost = rng.uniform(size=sizes)
    assigned = heterogeneity._assignment_cost(cost, math.lcm(*sizes))
    assert heterogeneity._transport_cost(cost) == pytest.approx(assigned, abs=1e-9)
