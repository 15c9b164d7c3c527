"""Several labels for every example, each on or off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from headstart._metric import Unit
from headstart.models.objectives._classification import macro_f1
from headstart.models.objectives._objective import (
    Count,
    Measure,
    Objective,
    Sums,
    Target,
    Values,
)


@dataclass(frozen=True)
class LabelAccuracy(Measure):
    """Share of all labels of all examples that are predicted correctly."""

    name: str = "label-accuracy"
    unit: Unit = "%"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """Return the share of the example's labels that are correct."""
        right = ((outputs > 0) == (y > 0)).astype(outputs.dtype)
        return jnp.mean(right, axis=1, keepdims=True)

    def value(self, sums: Sums, count: Count) -> Values:
        """Return the mean."""
        return sums[..., 0] / count


@dataclass(frozen=True)
class ExactMatch(Measure):
    """Share of examples with every label correct."""

    name: str = "exact-match"
    unit: Unit = "%"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """Return 1 if all labels are correct, else 0."""
        right = jnp.all((outputs > 0) == (y > 0), axis=1, keepdims=True)
        return right.astype(outputs.dtype)

    def value(self, sums: Sums, count: Count) -> Values:
        """Return the mean."""
        return sums[..., 0] / count


@dataclass(frozen=True)
class MultiLabelF1(Measure):
    """Mean over labels of F1 = 2·right / (predicted + present), without labels in neither."""

    name: str = "macro-f1"
    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Return three numbers for each label."""
        return 3 * outputs

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 3*labels"]:
        """Return whether each label is correct, predicted and present."""
        predicted, present = ((v > 0).astype(outputs.dtype) for v in (outputs, y))
        return jnp.concatenate([predicted * present, predicted, present], axis=1)

    def value(self, sums: Sums, count: Count) -> Values:
        """Return mean_c F1_c."""
        return macro_f1(*np.split(sums, 3, axis=-1))


@dataclass(frozen=True)
class MultiLabel(Objective):
    """Binary cross-entropy of every label, from one logit each.

    The default metric is the share of correct labels. Macro-F1 is more informative where labels are
    rare, but a client with few held-out examples lacks most of them, and its F1 is then noise:
    request it with ``objective.metrics``. Results also show the score of the constant answer.
    """

    name: ClassVar[str] = "multi-label"
    target: ClassVar[Target] = "labels"
    constant_answer: ClassVar[str] = "what is most frequent for each label"

    def example_loss(self, outputs: Array, y: Array) -> Float[Array, "batch labels"]:
        """Return −log p of every label's value."""
        return optax.sigmoid_binary_cross_entropy(outputs, y.astype(outputs.dtype))

    def available(self) -> Sequence[Measure]:
        """Return the metrics, the share of correct labels first."""
        return (LabelAccuracy(), MultiLabelF1(), ExactMatch())

    def predictions(self, outputs: Array) -> Array:
        """Return 0 or 1 for every label."""
        return (outputs > 0).astype(jnp.int32)

    def constant_outputs(self, y: np.ndarray) -> np.ndarray:
        """Return 1 where most training examples have the label and −1 elsewhere."""
        return np.where(np.mean(y, axis=0) > 0.5, 1.0, -1.0).astype(np.float32)
