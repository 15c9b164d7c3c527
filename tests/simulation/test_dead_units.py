"""The share of dead weights against networks whose dead units are known."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart._simulation.dead_units import _spread, compare_with_untrained, sample_rows
from headstart.data import FederatedDataset, Schema, from_clients
from headstart.models import logistic, make_objective, mlp

FEATURES, HIDDEN, CLASSES = 4, 8, 3
SCHEMA = Schema(shape=(FEATURES,), classes=CLASSES)


def federation(clients: int = 5, examples: int = 20) -> FederatedDataset:
    """Inputs between 0 and 1, except for the last, which is always 0."""
    x = np.random.default_rng(0).uniform(size=(clients, examples, FEATURES)).astype(np.float32)
    x[..., -1] = 0
    y = np.zeros(examples, np.int32)
    parts = [(each[:-2], y[:-2], each[-2:], y[-2:]) for each in x]
    return from_clients(parts, SCHEMA, new_clients=1)


def with_bias(params: Any, units: int, value: float) -> Any:
    """Shift the first hidden units so far that their activation is constant."""
    bias = params.layers[0].bias
    shifted = bias.at[:units].set(value)
    return eqx.tree_at(lambda p: p.layers[0].bias, params, shifted)


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("dead", [0, 3, HIDDEN])
def test_weights_of_dead_units_are_counted(activation: str, dead: int) -> None:
    model = mlp([HIDDEN], activation)
    start = with_bias(model.init(jax.random.key(0), SCHEMA), HIDDEN, 5.0)  # all active
    found = compare_with_untrained(
        make_objective(model, SCHEMA, None), federation(), start, with_bias(start, dead, -50.0)
    )
    assert found is not None and found.same_answer == (dead == HIDDEN)
    into = dead * (FEATURES - 1 + 1)  # the weights of the input that is always 0 never count
    out = dead * CLASSES if activation == "relu" else 0  # a saturated ELU still gives -1
    weights = HIDDEN * (FEATURES - 1 + 1) + HIDDEN * CLASSES + CLASSES
    assert found.dead_weights == pytest.approx((into + out) / weights)


def test_a_model_that_was_constant_before_training_is_not_called_dead() -> None:
    model = mlp([HIDDEN])
    zero = jax.tree.map(jnp.zeros_like, model.init(jax.random.key(0), SCHEMA))
    found = compare_with_untrained(make_objective(model, SCHEMA, None), federation(), zero, zero)
    assert found is not None and not found.same_answer


def test_examples_are_training_examples_of_known_clients() -> None:
    for data in (federation(), federation(clients=200, examples=3), federation(3, 5000)):
        rows = sample_rows(data)
        assert 2 <= len(rows) <= 256
        clients = np.searchsorted(data.offsets, rows, side="right") - 1
        assert clients.max() < data.known_clients
        assert (rows - data.offsets[clients] < data.train_counts[clients]).all()


def test_examples_are_spread_over_at_most_32_clients_and_256_rows() -> None:
    many, one = federation(clients=201, examples=3), federation(clients=2, examples=5000)
    assert len(sample_rows(many)) == 32 and len(sample_rows(one)) == 256
    assert _spread(10, 3).tolist() == [0, 4, 9]
    assert _spread(3, 10).tolist() == [0, 1, 2] and _spread(1, 5).tolist() == [0]


@pytest.mark.parametrize("examples, known", [(1, False), (2, True)])
def test_one_example_cannot_tell(examples: int, known: bool) -> None:
    model = mlp([HIDDEN])
    params = model.init(jax.random.key(0), SCHEMA)
    data = federation(clients=2, examples=examples + 2)  # two are held out, one client is new
    found = compare_with_untrained(make_objective(model, SCHEMA, None), data, params, params)
    assert (found is not None) == known


@pytest.mark.parametrize("share, dead", [(1.3e-6, False), (0.7e-6, True)])
def test_a_weight_is_dead_below_a_millionth_of_its_influence(share: float, dead: bool) -> None:
    """The weights into the hidden units act through those out of them, however small these are."""
    model = mlp([HIDDEN])
    active = with_bias(model.init(jax.random.key(0), SCHEMA), HIDDEN, 5.0)

    def scaled(factor: float) -> Any:
        return eqx.tree_at(lambda p: p.layers[1].weight, active, replace_fn=lambda w: factor * w)

    found = compare_with_untrained(
        make_objective(model, SCHEMA, None), federation(), scaled(0.01), scaled(0.01 * share)
    )
    into = HIDDEN * FEATURES  # without the input that is always 0, with the bias
    assert found is not None
    assert found.dead_weights == pytest.approx(dead * into / (into + HIDDEN * CLASSES + CLASSES))


@pytest.mark.parametrize("share, same", [(1.3e-5, False), (0.7e-5, True), (0.0, True)])
def test_answers_are_the_same_below_a_hundred_thousandth(share: float, same: bool) -> None:
    """Outputs (0.1 + s x_0, 0.1, 0.1): one of them varies, by s std(x_0) / 0.1 of their size."""
    model, data = logistic(), federation()
    spread = float(np.std(data.x[sample_rows(data)][:, 0]))
    zero = model.init(jax.random.key(0), SCHEMA)
    start = eqx.tree_at(lambda p: p.weight, zero, jnp.ones((CLASSES, FEATURES)))
    slope = jnp.zeros((CLASSES, FEATURES)).at[0, 0].set(share * 0.1 / spread)
    end = eqx.tree_at(lambda p: (p.weight, p.bias), zero, (slope, jnp.full(CLASSES, 0.1)))
    found = compare_with_untrained(make_objective(model, SCHEMA, None), data, start, end)
    assert found is not None and found.same_answer == same


def test_a_model_of_zeros_gives_the_same_answer_everywhere() -> None:
    model = mlp([HIDDEN])
    start = model.init(jax.random.key(0), SCHEMA)
    zero = jax.tree.map(jnp.zeros_like, start)
    found = compare_with_untrained(make_objective(model, SCHEMA, None), federation(), start, zero)
    assert found is not None and found.same_answer


class Deaf:
    """A model whose weights have no influence."""

    def init(self, key: Any, examples: Any) -> Any:
        return {"w": jnp.ones(3)}

    def apply(self, params: Any, x: Any) -> Any:
        return x[:, :CLASSES]


def test_weights_that_never_had_influence_are_not_dead() -> None:
    model = Deaf()
    params = model.init(jax.random.key(0), SCHEMA)
    found = compare_with_untrained(
        make_objective(model, SCHEMA, None), federation(), params, params
    )
    assert found is not None and found.dead_weights == 0.0 and not found.same_answer
