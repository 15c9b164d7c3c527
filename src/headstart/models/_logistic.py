"""Softmax regression: one dense layer, for tables and as the simplest baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from headstart.models._layers import Dense, flatten_to_columns, require_numbers
from headstart.models._model import Examples


@dataclass(frozen=True)
class Logistic:
    r"""logits = W x + b on flattened inputs.

    Weights start at zero. A single layer has no hidden units whose symmetry must be broken, and
    its loss is convex, so random initial weights would only add variance between seeds. At zero
    every class is equally likely, and the first loss is log(classes).
    """

    name: ClassVar[str] = "logistic"

    @property
    def head(self) -> tuple[str, ...]:
        """Name pattern of the last layer: all parameters."""
        return ("*",)

    def init(self, key: PRNGKeyArray, examples: Examples) -> Dense:
        """Return zero parameters; the key is not used."""
        require_numbers("logistic", examples)
        features = math.prod(examples.shape)
        return Dense(jnp.zeros((examples.outputs, features)), jnp.zeros(examples.outputs))

    def apply(self, params: Dense, x: Shaped[Array, "batch ..."]) -> Float[Array, "batch classes"]:
        """Return the logits of a batch."""
        return params(flatten_to_columns(x)).T


def logistic() -> Logistic:
    """Return softmax regression.

    >>> logistic()
    Logistic()
    """
    return Logistic()
