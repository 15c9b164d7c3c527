"""What several networks share: a dense layer, how weights begin, and checks of options and data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from headstart.errors import ConfigError
from headstart.models.contract import Examples
from headstart.options import require_at_least

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": jax.nn.elu,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


class Dense(eqx.Module):
    """x ↦ x Wᵀ + b.

    W is stored (out, in): for wide inputs the product of the weight gradient ran twice as fast
    that way.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __call__(self, x: Shaped[Array, "batch in"]) -> Float[Array, "batch out"]:
        """The layer's output for a batch."""
        return x @ self.weight.T + self.bias[None, :]


def dense(key: PRNGKeyArray, inputs: int, outputs: int) -> Dense:
    """A dense layer with Glorot-uniform weights and zero biases."""
    return Dense(glorot(key, (outputs, inputs)), jnp.zeros(outputs))


def glorot(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "out *window in"]:
    r"""Weights drawn uniformly with variance 2 / (fan in + fan out) (Glorot and Bengio 2010).

        W ~ U(−b, b),   b = √(6 / (fan in + fan out))

    The first axis counts outputs, the last inputs; axes between them are a window, whose size
    multiplies both fans.
    """
    draw = jax.nn.initializers.glorot_uniform(in_axis=-1, out_axis=0)
    return draw(key, shape, jnp.result_type(float))


def flatten(x: Shaped[Array, "batch ..."]) -> Shaped[Array, "batch features"]:
    """Each example as one row."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def widths(option: str, values: Any) -> tuple[int, ...]:
    """Layer sizes as a tuple of whole numbers of at least 1, or one clear line."""
    try:
        sizes = tuple(whole(option, value) for value in values)
    except (TypeError, ConfigError):
        raise ConfigError(f"{option}={values!r} must be a list of whole numbers") from None
    if any(size < 1 for size in sizes):
        raise ConfigError(f"{option}={list(sizes)} has a layer without units; use at least 1")
    return sizes


def whole(option: str, value: Any) -> int:
    """The value as a Python integer, or one clear line."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{option}={value!r} must be a whole number") from None


def require_sizes(**values: Any) -> None:
    """Each option of the model is a whole number of at least 1."""
    for name, value in values.items():
        require_at_least(1, **{f"model.{name}": whole(f"model.{name}", value)})


def require_numbers(model: str, examples: Examples) -> None:
    """Refuse tokens: their numbers are names, not amounts."""
    if examples.vocabulary > 0:
        raise ConfigError(
            f"model.name={model!r} takes numbers, but the inputs are tokens "
            f"(vocabulary of {examples.vocabulary}); use model.name='char-lstm'"
        )


def chain(key: PRNGKeyArray, sizes: Sequence[int]) -> tuple[Dense, ...]:
    """Dense layers from each size to the next."""
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(dense(*args) for args in zip(keys, sizes[:-1], sizes[1:], strict=True))
