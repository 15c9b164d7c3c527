"""The perceptron for squared errors, against NumPy and its distribution of first weights."""

import jax
import jax.numpy as jnp
import numpy as np

from headstart import models
from headstart.data._schema import Schema
from headstart.models import Classification

SCHEMA = Schema(shape=(4, 5, 1), classes=3)


def elu(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, np.expm1(np.minimum(z, 0)))


def test_loss_and_score_are_those_of_squared_errors() -> None:
    model = models.squares_mlp([6, 4])
    params = model.init(jax.random.key(0), SCHEMA)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(7, 4, 5, 1)).astype(np.float32), draw.integers(3, size=7)
    h = x.reshape(7, -1)
    for layer in params.layers:
        h = elu(h @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    score = Classification(model, SCHEMA).score(params, (jnp.asarray(x), jnp.asarray(y)))
    expected = 0.5 * np.sum((h - np.eye(3)[y]) ** 2, axis=1)
    np.testing.assert_allclose(score.loss, expected, rtol=1e-5)
    np.testing.assert_array_equal(score.statistics[:, 0], h.argmax(axis=1) == y)
    loss = Classification(model, SCHEMA).loss(params, (jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(loss, expected.mean(), rtol=1e-5)


def test_first_weights_are_normal_with_variance_two_over_inputs_and_biases_standard() -> None:
    """Within four standard errors of the variance, √(2 / n) of itself for n normal numbers."""
    schema = Schema(shape=(400,), classes=10)
    first = models.squares_mlp([300]).init(jax.random.key(0), schema).layers[0]
    for numbers, variance in ((first.weight, 2 / 400), (first.bias, 1.0)):
        tolerance = 4 * np.sqrt(2 / numbers.size)
        assert abs(np.mean(np.square(numbers)) / variance - 1) < tolerance
