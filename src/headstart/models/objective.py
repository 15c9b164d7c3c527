"""The loss a client minimises and the score it is judged by, for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from headstart.first_layer import FirstLayer
from headstart.models.contract import Model
from headstart.trees import Tree


class Decoder(Protocol):
    """Turns stored inputs (bytes, say) into what a model computes with."""

    def decode(self, x: Array) -> Array:
        """Stored inputs as the model sees them."""


class Score(NamedTuple):
    """Per example: loss, share of its labels predicted right, and whether its logits are finite."""

    loss: Float[Array, " batch"]
    correct: Float[Array, " batch"]
    finite: Bool[Array, " batch"]


@dataclass(frozen=True)
class Classification:
    """Softmax cross-entropy of a model, or its own loss; equal objectives share one program.

    A batch is ``(x, y)`` as stored; the schema decodes x.
    With sequences y has one label per position, and an example's loss is the mean over them.
    """

    model: Model
    schema: Decoder

    @property
    def first_layer(self) -> FirstLayer | None:
        """The model's first layer, if it says which that is."""
        of_model = getattr(self.model, "first_layer", None)
        if of_model is None:
            return None
        return FirstLayer(
            of_model.weight, lambda batch: of_model.inputs(self.schema.decode(batch[0]))
        )

    def loss(self, params: Tree, batch: tuple[Array, Array]) -> Float[Array, ""]:
        """Mean over the batch."""
        return jnp.mean(self._losses(params, batch)[0])

    def score(self, params: Tree, batch: tuple[Array, Array]) -> Score:
        """Loss and correctness of every example; logits that are not numbers are never correct."""
        losses, logits = self._losses(params, batch)
        finite = _per_example(jnp.all, jnp.isfinite(logits))
        right = (jnp.argmax(logits, axis=-1) == batch[1]).astype(losses.dtype)
        correct = jnp.where(finite, _per_example(jnp.mean, right), 0.0)
        return Score(_per_example(jnp.mean, losses), correct, finite)

    def _losses(self, params: Tree, batch: tuple[Array, Array]) -> tuple[Array, Array]:
        """Per label, and the logits."""
        x, y = batch
        logits = self.model.apply(params, self.schema.decode(x))
        of_label = getattr(
            self.model, "example_loss", optax.softmax_cross_entropy_with_integer_labels
        )
        return of_label(logits, y), logits


def _per_example(reduce: Any, values: Array) -> Array:
    return reduce(values, axis=tuple(range(1, values.ndim))) if values.ndim > 1 else values
