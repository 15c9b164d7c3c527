"""One number for every example, or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from headstart._metric import Direction
from headstart.models.objectives._objective import (
    LARGEST,
    Count,
    Measure,
    Objective,
    Sums,
    Target,
    Values,
    per_example,
    refuse_outside,
)


@dataclass(frozen=True)
class _Error(Measure):
    """A metric from a sum of errors, which the number of examples does not bound."""

    direction: Direction = "lower"

    def check(self, sums: Sums, count: int) -> None:
        """Refuse negative sums, and sums that overflow in statistics over clients."""
        refuse_outside(sums, 0, LARGEST, self.name)


@dataclass(frozen=True)
class RMSE(_Error):
    """Root of the mean squared error, √((1/n) Σ (ŷ − y)²), in the label's units."""

    name: str = "rmse"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """Return the squared error."""
        return per_example(jnp.mean, (outputs - y) ** 2)[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """Return √(sum / n)."""
        return np.sqrt(sums[..., 0] / count)


@dataclass(frozen=True)
class MAE(_Error):
    """Mean absolute error, (1/n) Σ |ŷ − y|, in the label's units."""

    name: str = "mae"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """Return the absolute error."""
        return per_example(jnp.mean, jnp.abs(outputs - y))[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """Return sum / n."""
        return sums[..., 0] / count


@dataclass(frozen=True)
class R2(Measure):
    """Share of the variance explained: 1 − Σ (ŷ − y)² / Σ (y − ȳ)², averaged over targets.

    Σ (y − ȳ)² = Σ (y − c)² − (Σ (y − c))² / n. If c is far from the labels, the difference loses
    digits, so c is the schema's shift of labels (their mean, with ``data.standardize``).
    Undefined (NaN) where a client's held-out labels are all equal.
    """

    name: str = "r2"
    centre: float | tuple[float, ...] = 0.0

    def width(self, outputs: int) -> int:
        """Return three sums for each target."""
        return 3 * outputs

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 3*targets"]:
        """Return squared error, label and squared label."""
        shifted = y - jnp.broadcast_to(jnp.asarray(self.centre, y.dtype), y.shape)
        return jnp.concatenate([(outputs - y) ** 2, shifted, shifted**2], axis=1)

    def value(self, sums: Sums, count: Count) -> Values:
        """Return 1 − residual / total."""
        residual, label, square = np.split(sums, 3, axis=-1)
        total = square - label**2 / np.asarray(count)[..., None]
        varied = total > 1e-6 * np.maximum(square, np.finfo(np.float32).tiny)
        return np.where(varied.all(axis=-1), np.mean(1 - residual / total, axis=-1), np.nan)

    def check(self, sums: Sums, count: int) -> None:
        """Refuse negative sums of squares, and sums that are too large."""
        residual, label, square = np.split(sums, 3, axis=-1)
        refuse_outside(np.stack([residual, square]), 0, LARGEST, self.name)
        refuse_outside(label, -LARGEST, LARGEST, self.name)


@dataclass(frozen=True)
class Regression(Objective):
    r"""Squared error: f(w) = (1/n) Σ_j mean_t (ŷ_jt − ỹ_jt)², where ỹ is the standardised label.

    There is no factor ½, so a linear model has ∇f = (2/n) Xᵀ(Xw − y). Metrics and predictions are
    in the units of the stored labels.
    """

    name: ClassVar[str] = "regression"
    target: ClassVar[Target] = "number"
    constant_answer: ClassVar[str] = "the mean of each client's training labels"
    must_beat_constant: ClassVar[bool] = True

    def example_loss(self, outputs: Array, y: Array) -> Float[Array, "batch targets"]:
        """Return the squared error of every target."""
        return (outputs - self.schema.decode_target(add_target_axis(y, outputs.dtype))) ** 2

    def available(self) -> Sequence[Measure]:
        """Return the metrics, root mean squared error first."""
        return (RMSE(), MAE(), R2(centre=self.schema.target_shift))

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch width"]:
        """Return the statistics in the units of the stored labels."""
        answers = self.schema.restore_target(outputs)
        return super().statistics(answers, add_target_axis(y, outputs.dtype))

    def predictions(self, outputs: Array) -> Array:
        """Return numbers in the label's units; a single target has no axis."""
        answers = self.schema.restore_target(outputs)
        return answers[:, 0] if answers.shape[1] == 1 else answers

    def constant_outputs(self, y: np.ndarray) -> np.ndarray:
        """Return the mean label, in the units of the model's outputs."""
        mean = np.mean(np.asarray(y, np.float64).reshape(len(y), -1), axis=0)
        return np.asarray(self.schema.decode_target(jnp.asarray(mean, jnp.float32)[None]))[0]


def add_target_axis(y: Array, dtype: np.dtype) -> Float[Array, "batch targets"]:
    """Return labels with an axis for targets."""
    return (y[:, None] if y.ndim == 1 else y).astype(dtype)
