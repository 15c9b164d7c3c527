"""Softmax regression: one dense layer, for tables and as the plainest baseline."""

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

    Weights begin at zero. A single layer has no hidden units that must be told apart and its loss
    is convex, so chance in the first weights would add nothing but variance between seeds; at
    zero every class is equally likely and the first loss is log(classes).
    """

    name: ClassVar[str] = "logistic"

    @property
    def head(self) -> tuple[str, ...]:
        """The last layer."""
        return ("*",)

    def init(self, key: PRNGKeyArray, examples: Examples) -> Dense:
        """Zeros; the key is not used."""
        require_numbers("logistic", examples)
        features = math.prod(examples.shape)
        return Dense(jnp.zeros((examples.outputs, features)), jnp.zeros(examples.outputs))

    def apply(self, params: Dense, x: Shaped[Array, "batch ..."]) -> Float[Array, "batch classes"]:
        """Logits of a batch."""
        return params(flatten_to_columns(x)).T


def logistic() -> Logistic:
    """Softmax regression.

    >>> logistic()
    Logistic()
    """
    return Logistic()
