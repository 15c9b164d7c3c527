"""The part of γ_G that labels explain, its bound, and the test of the premise."""

from __future__ import annotations

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import FederatedDataset, Schema, from_clients
from headstart.heterogeneity import label_bound
from headstart.models import Classification, logistic, mlp
from headstart.theory import _label_part as module
from headstart.theory._estimation import estimate_constants, example_losses
from headstart.theory._label_part import (
    LabelPart,
    compute_label_part,
    gradient_products,
    measure_label_part,
)


def part_of(gradients: Any, whose: Any, labels: Any) -> LabelPart:
    g = np.asarray(gradients, float)
    return compute_label_part(g @ g.T, np.asarray(whose), np.asarray(labels))


def test_two_classes_with_opposite_gradients_reach_the_bound() -> None:
    """Gradients ±g at shares ½ ± 0.1: γ_G = 0.2‖g‖ = 2‖g‖ · 0.1, by hand.

    The clients' mean gradients have length 0.2‖g‖; with them in place of B it would be 0.04‖g‖.
    """
    g = np.array([3.0, 4.0])
    labels = np.array([0] * 6 + [1] * 4 + [0] * 4 + [1] * 6)
    found = part_of(np.where(labels[:, None] == 0, g, -g), np.repeat([0, 1], 10), labels)
    assert pytest.approx(5.0) == found.B
    assert [found.gamma_G, found.explained_G, found.bound_G] == pytest.approx([1.0] * 3)
    assert found.unexplained_G == pytest.approx(0.0, abs=1e-6)
    assert found.share_explained == pytest.approx(1.0) and found.bound_applies
    of_means = label_bound(np.array([0.1, 0.1]), B=0.2 * 5)
    assert of_means == pytest.approx(0.04 * 5) and of_means < found.gamma_G


def labels_alone(seed: int, clients: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Whose an example is, and which of a few examples: of a class, all as often at a client.

    Examples 2c and 2c + 1 are of class c.
    """
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 4, size=(clients, classes))
    times[np.arange(clients), rng.integers(classes, size=clients)] += 1
    whose = np.repeat(np.arange(clients), 2 * times.sum(axis=1))
    which = [np.repeat(np.arange(2 * classes), np.repeat(row, 2)) for row in times]
    return whose, np.concatenate(which)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 5), st.integers(1, 4))
def test_clients_that_differ_in_labels_alone_stay_below_the_bound(
    seed: int, clients: int, classes: int, dimensions: int
) -> None:
    whose, which = labels_alone(seed, clients, classes)
    distinct = np.random.default_rng(seed).standard_cauchy((2 * classes, dimensions))
    found = part_of(distinct[which], whose, which // 2)
    assert found.gamma_G <= found.bound_G * (1 + 1e-9)
    assert found.gamma_G == pytest.approx(found.explained_G, rel=1e-6, abs=1e-6 * found.B)
    assert found.bound_applies


def federation(whose: np.ndarray, x: np.ndarray, y: np.ndarray) -> FederatedDataset:
    """Known clients with these training examples."""
    parts = []
    for client in range(int(whose.max()) + 1):
        own = whose == client
        parts.append((x[own], y[own], x[own][:1], y[own][:1]))
    return from_clients(parts, Schema(shape=x.shape[1:], classes=int(y.max()) + 1))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_a_network_on_clients_that_differ_in_labels_alone(seed: int) -> None:
    """At γ_G as ``estimate_constants`` measures it, which forms no products of gradients."""
    whose, which = labels_alone(seed, clients=5, classes=3)
    x = np.random.default_rng(seed).normal(size=(6, 4)).astype(np.float32)[which]
    data, model = federation(whose, x, which // 2), mlp([6])
    w = jax.tree.map(lambda a: 3.0 * a, model.init(jax.random.key(seed), data.schema))
    found = measure_label_part(data, model, w, clients=5, examples=100)
    measured = estimate_constants(data, model, [w], inner_lr=0.1, clients=5, examples=100)
    assert found is not None and found.bound_applies
    assert measured.constants.gamma_G == pytest.approx(found.gamma_G, rel=1e-4)
    assert measured.constants.gamma_G <= found.bound_G
    assert found.share_explained == pytest.approx(1.0, abs=1e-4)


def test_what_each_part_is_written_out() -> None:
    """γ_G, its parts and B from class means, client by client."""
    rng = np.random.default_rng(0)
    whose, labels = np.repeat([0, 1, 2], [5, 8, 11]), rng.integers(3, size=24)
    g = rng.normal(size=(24, 4)) + whose[:, None]
    found = part_of(g, whose, labels)
    shares = np.array([np.bincount(labels[whose == i], minlength=3) for i in range(3)], float)
    shares /= shares.sum(axis=1, keepdims=True)
    weight = 1 / np.bincount(whose)[whose]
    means = [np.average(g[labels == c], axis=0, weights=weight[labels == c]) for c in range(3)]
    clients = np.array([g[whose == i].mean(axis=0) for i in range(3)])
    gap, by_labels = clients - clients.mean(axis=0), (shares - shares.mean(axis=0)) @ means
    size = lambda rows: np.sqrt(np.mean(np.sum(rows**2, axis=1)))  # noqa: E731
    assert found.gamma_G == pytest.approx(size(gap))
    assert found.explained_G == pytest.approx(size(by_labels))
    assert found.unexplained_G == pytest.approx(size(gap - by_labels))
    assert found.share_explained == pytest.approx(
        max(0, 1 - (size(gap - by_labels) / size(gap)) ** 2)
    )
    assert pytest.approx(np.max(np.linalg.norm(g, axis=1))) == found.B
    assert (found.clients, found.examples) == (3, 24)


def test_a_broken_premise_takes_gamma_above_the_bound() -> None:
    """Same label shares, opposite gradients: TV is 0, so that labels allow nothing."""
    whose, labels = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    g = np.array([2.0, 0.0]) * np.where(whose == 0, 1, -1)[:, None]
    found = part_of(g, whose, labels)
    assert found.gamma_G == pytest.approx(2.0) and found.bound_G == 0
    assert found.exceeds_bound and found.beyond_chance and not found.bound_applies
    assert found.share_explained == 0


def test_a_broken_premise_shows_below_the_bound_too() -> None:
    """One client's examples of a class are other ones; label shares differ a lot."""
    rng = np.random.default_rng(0)
    whose, labels = np.repeat(np.arange(6), 20), rng.integers(2, size=120)
    labels[whose % 2 == 0] &= rng.integers(2, size=60)
    g = np.where(labels[:, None] == 0, 1, -1) * np.array([1.0, 0.0]) + rng.normal(size=(120, 2))
    assert part_of(g, whose, labels).bound_applies
    found = part_of(g + 2 * (whose == 5)[:, None], whose, labels)
    assert found.beyond_chance and not found.exceeds_bound and not found.bound_applies


def test_one_example_each_tells_nothing_but_may_exceed_the_bound() -> None:
    found = part_of([[1.0], [-1.0]], [0, 1], [0, 0])
    assert found.exceeds_bound and not found.beyond_chance


def test_the_premise_is_rarely_refuted_when_it_holds() -> None:
    """Examples of a class dealt at random, label shares far apart: at 99 %, about 1 in 100."""
    refuted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet([0.5] * 3, size=5)
        whose = np.repeat(np.arange(5), 16)
        labels = np.array([rng.choice(3, p=shares[client]) for client in whose])
        g = rng.normal(size=(3, 6))[labels] + rng.normal(size=(80, 6)) * (1 + labels[:, None])
        refuted += part_of(g, whose, labels).beyond_chance
    assert refuted <= 4  # more than 4 of Binomial(100, 0.01): 0.3 %


def test_products_of_gradients_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = tiny.federation(), logistic()
    w = model.init(jax.random.key(1), data.schema)
    objective = Classification(model, data.schema)
    batch = (np.asarray(data.x[:11]), np.asarray(data.y[:11]))

    def gradient(row: int) -> Any:
        one = (jnp.asarray(batch[0][row : row + 1]), jnp.asarray(batch[1][row : row + 1]))
        return jax.flatten_util.ravel_pytree(jax.grad(objective.loss)(w, one))[0]

    each = np.array([gradient(row) for row in range(11)])
    for block in (4, 11, 32):
        monkeypatch.setattr(module, "BLOCK", block)
        found = gradient_products(example_losses(objective), w, batch)
        np.testing.assert_allclose(found, each @ each.T, rtol=1e-4, atol=1e-5)


def test_examples_with_several_labels_have_no_class() -> None:
    x = np.array([[0, 1], [1, 1], [2, 2], [2, 0]])
    parts = [(x[:2], x[:2], x[:1], x[:1]), (x[2:], x[2:], x[2:3], x[2:3])]
    data = from_clients(parts, Schema(shape=(2,), classes=3, vocabulary=3))
    assert measure_label_part(data, logistic(), {}, clients=2, examples=2) is None
