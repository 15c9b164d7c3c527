"""The loss and the score, against closed forms."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart import models
from headstart.data._schema import Schema
from headstart.models import Classification, Score

TABLE = Schema(shape=(3,), classes=3)
TEXT = Schema(shape=(4,), classes=3, vocabulary=3)


def given(params: Any, x: jax.Array) -> jax.Array:
    """The parameters are the logits."""
    return params


LOGITS = models.from_functions(lambda key: jnp.zeros(()), given)


@partial(jax.jit, static_argnums=0)
def score_of(schema: Schema, logits: jax.Array, y: jax.Array) -> Score:
    """The score of these logits, whatever the inputs are."""
    x = jnp.zeros((len(y), *schema.shape), jnp.uint8)
    return Classification(LOGITS, schema).score(logits, (x, y))


def batch_of(schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(0).integers(3, size=(5, *schema.shape))
    if schema.vocabulary:
        return tokens.astype(np.uint8), (tokens + 1) % 3
    return tokens.astype(np.float32), tokens[:, 0]


@pytest.mark.parametrize(
    ("model", "schema"),
    [(models.mlp([4]), TABLE), (models.char_lstm(embedding=2, hidden=3), TEXT)],
)
def test_loss_is_the_mean_of_the_scores_losses(model: Any, schema: Schema) -> None:
    objective = Classification(model, schema)
    params, batch = model.init(jax.random.key(0), schema), batch_of(schema)
    score = jax.jit(objective.score)(params, batch)
    assert score.loss.shape == score.finite.shape == (5,)
    assert score.statistics.shape == (5, 1)
    np.testing.assert_allclose(
        jax.jit(objective.loss)(params, batch), np.mean(score.loss), rtol=1e-6
    )


def test_loss_is_the_negative_log_probability_of_the_label() -> None:
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    score = score_of(TABLE, logits, jnp.array([0, 1]))
    np.testing.assert_allclose(score.loss, [math.log(2), math.log(5)], rtol=1e-6)
    assert score.statistics[:, 0].tolist() == [1.0, 0.0]
    assert score.finite.tolist() == [True, True]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_logits_that_are_not_numbers_are_never_correct(bad: float, label: int) -> None:
    for logits in ([bad] * 3, [bad, 0.0, 1.0], [0.0, 1.0, bad]):
        score = score_of(TABLE, jnp.array([logits]), jnp.array([label]))
        assert score.statistics[:, 0].tolist() == [0.0]
        assert score.finite.tolist() == [False]


def test_a_sequence_scores_its_share_of_right_positions() -> None:
    y = jnp.array([[0, 1, 2, 0], [0, 0, 0, 0]])
    logits = 5.0 * jax.nn.one_hot(jnp.array([[0, 1, 2, 2], [1, 1, 1, 1]]), 3)
    score = score_of(TEXT, logits, y)
    assert score.statistics[:, 0].tolist() == [0.75, 0.0]
    right, wrong = (math.log(math.exp(5) + 2) - z for z in (5, 0))
    np.testing.assert_allclose(score.loss, [(3 * right + wrong) / 4, wrong], rtol=1e-5)


def test_one_bad_position_spoils_its_sequence_only() -> None:
    logits = 5.0 * jax.nn.one_hot(jnp.zeros((2, 4), int), 3)
    score = score_of(TEXT, logits.at[0, 1, 2].set(jnp.nan), jnp.zeros((2, 4), int))
    assert score.statistics[:, 0].tolist() == [0.0, 1.0]
    assert score.finite.tolist() == [False, True]


def test_the_schema_decodes_what_is_stored() -> None:
    seen = []

    def look(params: Any, x: jax.Array) -> jax.Array:
        seen.append(x)
        return jnp.zeros((len(x), 3))

    schema = Schema(shape=(3,), classes=3, scale=1 / 255)
    objective = Classification(models.from_functions(lambda key: jnp.zeros(()), look), schema)
    objective.loss(jnp.zeros(()), (jnp.full((2, 3), 255, jnp.uint8), jnp.array([0, 1])))
    assert seen[0].dtype == jnp.float32
    np.testing.assert_allclose(seen[0], 1.0, rtol=1e-6)


def test_equal_objectives_share_one_compiled_program() -> None:
    one = Classification(models.mlp([4]), TABLE)
    other = Classification(models.mlp([4]), Schema(shape=(3,), classes=3))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Classification(models.mlp([4]), Schema(shape=(3,), classes=3, scale=0.5))
