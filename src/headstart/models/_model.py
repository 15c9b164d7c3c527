"""The interface of a model: it draws parameters, and maps parameters and inputs to outputs.

A model is a small immutable description, hashable so that equal descriptions share one compiled
program. Its parameters are any tree of arrays and are stored elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Array, PRNGKeyArray, Shaped

from headstart.trees import Tree


class Examples(Protocol):
    """What a model must know about the data before it sees any."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example: (features,), (height, width, channels) or (length,) of tokens."""

    @property
    def outputs(self) -> int:
        """Length of the output's last axis: the number of classes, of labels or of targets."""

    @property
    def classes(self) -> int:
        """Number of classes or labels; 0 where labels are numbers."""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens; 0 when inputs are numbers."""


class ModelWithHead(Protocol):
    """A model that declares which of its parameters are its head."""

    @property
    def head(self) -> tuple[str, ...]:
        """Name patterns of the head's parameters."""


def find_head(model: Model) -> tuple[str, ...] | None:
    """Return the name patterns of the model's head; None if the model declares none."""
    return model.head if hasattr(model, "head") else None


class Model(Protocol):
    """Any object with ``init`` and ``apply``.

    A model may also have ``example_loss(outputs, y)``, which replaces the objective's loss of every
    label, and ``first_layer`` (see :mod:`headstart._first_layer`).
    """

    def init(self, key: PRNGKeyArray, examples: Examples) -> Tree:
        """Draw parameters for these examples; raise a ConfigError if the model cannot use them."""

    def apply(self, params: Tree, x: Shaped[Array, "batch ..."]) -> Shaped[Array, "batch ..."]:
        """Return outputs (batch, outputs), or (batch, length, outputs) for sequences."""
