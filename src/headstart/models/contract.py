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
    def classes(self) -> int:
        """How many classes the last axis of the output has."""

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are; 0 when inputs are numbers."""


class Model(Protocol):
    """Anything with ``init`` and ``apply``.

    A model may also have ``example_loss(logits, y)``, the loss of every label in place of softmax
    cross-entropy, and ``first_layer``, see :mod:`headstart.first_layer`.
    """

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Parameters drawn with the key, fit for these examples; a clear ConfigError if not."""

    def apply(self, params: Tree, x: Shaped[Array, "batch ..."]) -> Shaped[Array, "batch ..."]:
        """Logits for a batch: (batch, classes), or (batch, length, classes) for sequences."""
