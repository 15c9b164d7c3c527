"""What a model is: a way to make parameters, and a function of parameters and inputs.

A model is a small immutable description (hashable, so that equal descriptions share one compiled
program); its parameters are any tree of arrays and live elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Array, PRNGKeyArray, Shaped

from headstart.trees import Tree


class Examples(Protocol):
    """What a model must know of the data before it has seen any."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example: (features,), (height, width, channels) or (length,) of tokens."""

    @property
    def outputs(self) -> int:
        """Length of the output's last axis: the number of classes, of labels or of targets."""

    @property
    def classes(self) -> int:
        """How many classes or labels there are; 0 where labels are numbers."""

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are; 0 when inputs are numbers."""


class ModelWithHead(Protocol):
    """A model that says which of its parameters are its head."""

    @property
    def head(self) -> tuple[str, ...]:
        """Patterns of the names of the head's parameters."""


def find_head(model: Model) -> tuple[str, ...] | None:
    """The model's head; None if the model does not say."""
    return model.head if hasattr(model, "head") else None


class Model(Protocol):
    """Anything with ``init`` and ``apply``.

    A model may also have ``example_loss(outputs, y)``, the loss of every label in place of the
    objective's, and ``first_layer``, see :mod:`headstart._first_layer`.
    """

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Parameters drawn with the key, fit for these examples; a clear ConfigError if not."""

    def apply(self, params: Tree, x: Shaped[Array, "batch ..."]) -> Shaped[Array, "batch ..."]:
        """Outputs for a batch: (batch, outputs), or (batch, length, outputs) for sequences."""
