"""A perceptron trained on squared errors: possibly the model in paper P's own program.

P says that part of its code comes from a public MATLAB program (Langelaar 2019). That program has
P's hidden layers and activation. It also has what P does not specify: activated outputs, squared
errors instead of cross-entropy, and the initial weights below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from headstart._first_layer import FirstLayer
from headstart.errors import ConfigError
from headstart.models._layers import (
    Dense,
    check_widths,
    dense_shapes,
    elu,
    flatten_to_columns,
    require_numbers,
)
from headstart.models._mlp import MLPParams
from headstart.models._model import Examples


@dataclass(frozen=True)
class SquaresMLP:
    r"""Dense layers, each followed by ELU, the last one too; the largest output is the class.

        h_0 = x;   h_l = elu(W_l h_{l−1} + b_l)   l = 1 … L + 1;   loss = ½ ‖h_{L+1} − e_y‖²

    e_y is 1 at the label and 0 elsewhere. Initial weights are W ~ N(0, 2 / fan in), b ~ N(0, 1).
    """

    name: ClassVar[str] = "mlp-squares"

    hidden: tuple[int, ...] = (80, 60)
    """Units of each hidden layer."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        object.__setattr__(self, "hidden", check_widths("model.hidden", self.hidden))

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
        require_numbers("mlp-squares", examples)
        if getattr(examples, "target", "class") != "class":
            raise ConfigError("model.name='mlp-squares' is for classes; use model.name='mlp'")
        shapes = dense_shapes(math.prod(examples.shape), *self.hidden, examples.outputs)
        keys = jax.random.split(key, 2 * len(shapes)).reshape(len(shapes), 2)
        return MLPParams(
            tuple(
                Dense(
                    math.sqrt(2 / shape[1]) * jax.random.normal(keys[i, 0], shape),
                    jax.random.normal(keys[i, 1], shape[:1]),
                )
                for i, shape in enumerate(shapes)
            )
        )

    def apply(
        self, params: MLPParams, x: Shaped[Array, "batch ..."]
    ) -> Float[Array, "batch classes"]:
        """Return the outputs of a batch."""
        h = flatten_to_columns(x)
        for layer in params.layers:
            h = elu(layer(h))
        return h.T

    def example_loss(
        self, outputs: Float[Array, "batch classes"], y: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """Return half the squared distance to the label's unit vector."""
        unit_vector = jax.nn.one_hot(y, outputs.shape[-1], dtype=outputs.dtype)
        return 0.5 * jnp.sum((outputs - unit_vector) ** 2, axis=-1)


def squares_mlp(hidden: Sequence[int] = (80, 60)) -> SquaresMLP:
    """Return a multi-layer perceptron for squared errors.

    >>> squares_mlp([80, 60])
    SquaresMLP(hidden=(80, 60))
    """
    return SquaresMLP(check_widths("model.hidden", hidden))
