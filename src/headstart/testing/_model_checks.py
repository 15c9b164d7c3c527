"""Check that a model keeps the contract of :mod:`headstart.models._model`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from headstart.data._schema import Schema
from headstart.errors import ConfigError
from headstart.testing._problems import (
    CheckStopped,
    ContractError,
    Problem,
    are_identical,
    describe_difference,
    find_largest_gap,
    find_not_finite,
    report_errors_as_problems,
)
from headstart.trees import Tree

BATCH = 4
ROUNDING = 1e-4
DEFAULT = Schema(shape=(6,), classes=3)


def check_model(model: Any, schema: Schema | None = None) -> None:
    """Raise a :class:`ContractError` that lists every problem of the model.

    ``model`` is an object with ``init`` and ``apply``, or a class that needs no arguments.
    ``schema`` describes the data it is for; by default six numbers and three classes.

    >>> from headstart.data import Schema
    >>> from headstart.models import cnn
    >>> check_model(cnn(), Schema(shape=(8, 8, 1), classes=10))
    """
    problems = model_problems(model, schema)
    if problems:
        cls = model if inspect.isclass(model) else type(model)
        raise ContractError(cls.__name__, problems)


def model_problems(model: Any, schema: Schema | None = None) -> list[Problem]:
    """Return every problem of a model; empty if it keeps the contract."""
    schema = DEFAULT if schema is None else schema
    problems: list[Problem] = []
    try:
        with report_errors_as_problems("class"):
            model = model() if inspect.isclass(model) else model
        for name in ("init", "apply"):
            if not callable(getattr(model, name, None)):
                raise CheckStopped(Problem(name, "is missing", f"write the method {name}"))
        problems += _static_problems(model)
        params = _check_parameters(model, schema)
        problems += _output_problems(model, params, schema)
        if not problems:
            problems += _transform_problems(model, params, schema)
    except CheckStopped as stopped:
        problems.append(stopped.problem)
    return problems


def _static_problems(model: Any) -> Iterator[Problem]:
    """Check that equal models are equal and hashable, so that they share a compiled program."""
    remedy = "make the model a frozen dataclass with tuples, not lists or arrays, in its fields"
    try:
        hash(model)
    except TypeError as error:
        raise CheckStopped(
            Problem("class", f"the model is not hashable ({error})", remedy)
        ) from None
    if not dataclasses.is_dataclass(model):
        yield Problem("class", "the model is not a dataclass", remedy)
        return
    twin = dataclasses.replace(model)  # type: ignore[type-var]
    if model != twin or hash(model) != hash(twin):
        yield Problem("class", "two models with equal options are not equal", remedy)


def _check_parameters(model: Any, schema: Schema) -> Tree:
    key = jax.random.key(0)
    try:
        params, repeated = (model.init(key, schema) for _ in range(2))
    except ConfigError as error:
        data = f"shape {schema.shape}, outputs {schema.outputs}, vocabulary {schema.vocabulary}"
        raise CheckStopped(
            Problem(
                "init",
                f"it refuses data of {data}: {error}",
                "call check_model(model, schema) with the schema of data it is for",
            )
        ) from None
    except Exception as error:
        with report_errors_as_problems("init"):
            raise error
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise CheckStopped(Problem("init", "it gives no parameters", "return a tree of arrays"))
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
        is_array = isinstance(leaf, jax.Array | np.ndarray)
        if not is_array or not jnp.issubdtype(leaf.dtype, jnp.floating):
            kind = f"an array of {leaf.dtype}" if is_array else f"a {type(leaf).__name__}"
            raise CheckStopped(
                Problem(
                    "init",
                    f"parameter {name} is {kind}",
                    "parameters are arrays of floating-point numbers; keep the rest in the model",
                )
            )
    if find_not_finite(params):
        raise CheckStopped(
            Problem(
                "init", f"parameter {find_not_finite(params)} is not finite", "draw finite numbers"
            )
        )
    if describe_difference(params, repeated) or not are_identical(params, repeated):
        raise CheckStopped(
            Problem(
                "init", "equal keys give different parameters", "take all randomness from the key"
            )
        )
    return params


def _output_problems(model: Any, params: Tree, schema: Schema) -> Iterator[Problem]:
    x = _draw_inputs(schema)
    with report_errors_as_problems("apply"):
        outputs = model.apply(params, x)
    shapes: list[tuple[int, ...]] = [(BATCH, schema.outputs)]
    if schema.vocabulary:
        shapes.append((BATCH, *schema.shape, schema.outputs))
    if not hasattr(outputs, "shape") or tuple(outputs.shape) not in shapes:
        shape = getattr(outputs, "shape", type(outputs).__name__)
        expected = " or ".join(map(str, shapes))
        raise CheckStopped(
            Problem(
                "apply",
                f"{BATCH} examples of shape {schema.shape} give {shape}",
                f"return an array of shape {expected}: a row of outputs for every example",
            )
        )
    if find_not_finite(outputs):
        yield Problem(
            "apply", "outputs of the initial parameters are not finite", "scale the initial weights"
        )
        return
    with report_errors_as_problems("apply"):
        single = model.apply(params, x[:1])
    if find_largest_gap(outputs[:1], single)[1] > ROUNDING:
        yield Problem(
            "apply",
            "the output for an example depends on the others in its batch",
            "use layer or group normalisation instead of batch normalisation",
        )


def _transform_problems(model: Any, params: Tree, schema: Schema) -> Iterator[Problem]:
    x = _draw_inputs(schema)

    def loss(params: Tree) -> Array:
        return jnp.mean((model.apply(params, x) - 1.0) ** 2)

    plain = model.apply(params, x)
    with report_errors_as_problems("apply under jax.jit"):
        compiled = jax.jit(model.apply)(params, x)
    if describe_difference(plain, compiled) or find_largest_gap(plain, compiled)[1] > ROUNDING:
        yield Problem(
            "apply under jax.jit",
            "the compiled function gives different outputs",
            "compute with its arguments only: no random numbers, no state",
        )
    with report_errors_as_problems("apply under jax.vmap"):
        two_models = jax.tree.map(lambda leaf: np.stack([leaf] * 2), params)
        mapped = jax.jit(jax.vmap(model.apply, in_axes=(0, None)))(two_models, x)
    if describe_difference(plain, mapped[1]) or find_largest_gap(plain, mapped[1])[1] > ROUNDING:
        yield Problem(
            "apply under jax.vmap",
            "several clients' models at once give different outputs than one by one",
            "use functions of jax.numpy, and do not assume a number of axes of the parameters",
        )
    with report_errors_as_problems("gradient"):
        gradient = jax.jit(jax.grad(loss))(params)
    if find_not_finite(gradient):
        yield Problem(
            "gradient",
            f"the gradient in {find_not_finite(gradient)} is not finite",
            "look for square roots, logarithms and divisions at zero",
        )
        return
    if not any(np.any(leaf) for leaf in jax.tree.leaves(gradient)):
        yield Problem(
            "gradient",
            "it is zero in every parameter",
            "make the outputs depend on the parameters through differentiable functions",
        )
    with report_errors_as_problems("second derivative"):
        product = jax.jit(lambda w, v: jax.jvp(jax.grad(loss), (w,), (v,))[1])(params, gradient)
    if find_not_finite(product):
        yield Problem(
            "second derivative",
            f"the Hessian-vector product in {find_not_finite(product)} is not finite",
            "exact meta-gradients need it: use smooth functions such as elu or tanh",
        )


def _draw_inputs(schema: Schema) -> Array:
    """Draw a small random batch as the model sees it: tokens as whole numbers."""
    rng = np.random.default_rng(0)
    shape = (BATCH, *schema.shape)
    if schema.vocabulary:
        kind = np.uint8 if schema.vocabulary <= 256 else np.int32
        return jnp.asarray(rng.integers(0, schema.vocabulary, shape).astype(kind))
    return jnp.asarray(rng.normal(size=shape), jnp.result_type(float))
