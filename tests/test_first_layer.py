"""`headstart._first_layer` against the meta-gradient that writes everything out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from headstart.data._schema import Schema
from headstart.meta import METHODS, MetaBatches, meta_value_and_gradient
from headstart.models._cnn import cnn
from headstart.models._mlp import mlp
from headstart.models.objectives import Classification

SHAPE, CLASSES, UNITS = (4, 6, 1), 3, 20
SIZES = {"inner": 5, "outer": 7, "hessian": 6}
SCHEMA = Schema(shape=SHAPE, classes=CLASSES, shift=0.1, scale=0.5)
OBJECTIVE = Classification(mlp([UNITS, 4]), SCHEMA)
pytestmark = pytest.mark.usefixtures("x64")


def problem(ν, sizes=SIZES):
    """Parameters with biases that are not zero, and 2ν + 1 batches of three sizes."""
    rng = np.random.default_rng(ν)

    def batch(use):
        x = rng.normal(size=(sizes[use], *SHAPE))
        return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, sizes[use]))

    params = OBJECTIVE.model.init(jax.random.key(0), SCHEMA)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), params)
    inner, hessian = ([batch(use) for _ in range(ν)] for use in ("inner", "hessian"))
    return params, MetaBatches(inner, batch("outer"), hessian)


def first_layer(objective):
    assert objective.first_layer is not None
    return objective.first_layer


def flat(value, gradient):
    return np.append(ravel_pytree(gradient)[0], value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ν", [1, 2, 3, 4])
def test_equals_the_meta_gradient_written_out(ν, method):
    params, batches = problem(ν)
    options = {"inner_lr": 0.3, "method": method, "delta": 1e-2}
    slow = meta_value_and_gradient(OBJECTIVE.loss, params, batches, **options)
    fast = meta_value_and_gradient(
        OBJECTIVE.loss, params, batches, **options, first_layer=OBJECTIVE.first_layer
    )
    assert jax.tree.map(jnp.shape, fast) == jax.tree.map(jnp.shape, slow)
    np.testing.assert_allclose(flat(*fast), flat(*slow), rtol=1e-10, atol=1e-12)


def outputs_of(ν, method, size):
    """Sizes of all intermediates of the program, with batches of one size."""
    params, batches = problem(ν, dict.fromkeys(SIZES, size))
    program = jax.make_jaxpr(
        lambda w: meta_value_and_gradient(
            OBJECTIVE.loss, w, batches, inner_lr=0.3, method=method,
            first_layer=OBJECTIVE.first_layer,
        )
    )(params)  # fmt: skip
    return [out.aval.shape for equation in program.eqns for out in equation.outvars]


@pytest.mark.parametrize(("method", "written"), [("first-order", 1), ("hessian-free", 3)])
def test_large_matrices_appear_only_in_the_result(method, written):
    """One product for each part of the direction, and their sum."""
    whole = (UNITS, np.prod(SHAPE))
    assert outputs_of(1, method, 5).count(whole) == written


@pytest.mark.parametrize(("ν", "size", "pays"), [(1, 19, True), (1, 21, False), (3, 10, False)])
def test_large_batches_and_long_adaptation_are_written_out(ν, size, pays):
    params, batches = problem(ν, dict.fromkeys(SIZES, size))
    assert first_layer(OBJECTIVE).pays(params, batches) is pays
    gram = (size, size)
    assert (gram in outputs_of(ν, "first-order", size)) is pays


def test_few_inputs_are_written_out():
    narrow = Classification(mlp([24, 4]), SCHEMA)
    params = narrow.model.init(jax.random.key(0), SCHEMA)
    assert not first_layer(narrow).pays(params, problem(1)[1])


def test_without_adaptation_there_is_nothing_to_save():
    params, batches = problem(0)
    assert not first_layer(OBJECTIVE).pays(params, batches)


def test_a_model_that_names_no_first_layer_has_none():
    assert Classification(cnn(), SCHEMA).first_layer is None
