"""A multi-layer perceptron: the network of both papers' experiments (80 and 60 units, ELU)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from headstart._first_layer import FirstLayer
from headstart.models._layers import (
    ACTIVATIONS,
    Dense,
    check_widths,
    dense_shapes,
    dense_with_zero_bias,
    flatten_to_columns,
    glorot,
    require_numbers,
)
from headstart.models._model import Examples
from headstart.options import require_one_of


class MLPParams(eqx.Module):
    """The layers, from the input to the logits."""

    layers: tuple[Dense, ...]


@dataclass(frozen=True)
class MLP:
    r"""Dense layers with an activation σ between them, on flattened inputs.

        h_0 = x;   h_l = σ(W_l h_{l−1} + b_l)   l = 1 … L;   logits = W_{L+1} h_L + b_{L+1}

    L ↔ ``len(hidden)``, σ ↔ ``activation``. Weights start Glorot-uniform, biases at zero.
    Without hidden layers this is ``logistic`` with random initial weights.
    """

    name: ClassVar[str] = "mlp"

    hidden: tuple[int, ...] = (80, 60)
    """Units of each hidden layer."""
    activation: str = "elu"
    """elu, relu, tanh, gelu or silu."""

    def __post_init__(self) -> None:
        """Reject layers without units and unknown activations."""
        object.__setattr__(self, "hidden", check_widths("model.hidden", self.hidden))
        require_one_of(ACTIVATIONS, **{"model.activation": self.activation})

    @property
    def first_layer(self) -> FirstLayer:
        """The first layer, which has most of the parameters."""
        return FirstLayer(lambda params: params.layers[0].weight, flatten_to_columns)

    @property
    def head(self) -> tuple[str, ...]:
        """Name pattern of the last layer."""
        return (f"layers.{len(self.hidden)}.*",)

    def init(self, key: PRNGKeyArray, examples: Examples) -> MLPParams:
        """Draw parameters for these examples."""
        require_numbers("mlp", examples)
        shapes = dense_shapes(math.prod(examples.shape), *self.hidden, examples.outputs)
        return MLPParams(tuple(map(dense_with_zero_bias, glorot(key, shapes))))

    def apply(
        self, params: MLPParams, x: Shaped[Array, "batch ..."]
    ) -> Float[Array, "batch classes"]:
        """Return the logits of a batch."""
        h = flatten_to_columns(x)
        for layer in params.layers[:-1]:
            h = ACTIVATIONS[self.activation](layer(h))
        return params.layers[-1](h).T


def mlp(hidden: Sequence[int] = (80, 60), activation: str = "elu") -> MLP:
    """Return a multi-layer perceptron with these hidden layers.

    >>> mlp([80, 60])
    MLP(hidden=(80, 60), activation='elu')
    """
    return MLP(check_widths("model.hidden", hidden), activation)
