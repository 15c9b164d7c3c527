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
    """From a sum of errors, which no number of examples bounds."""

    direction: Direction = "lower"

    def check(self, sums: Sums, count: int) -> None:
        """Not negative, and not so large that statistics over clients overflow."""
        refuse_outside(sums, 0, LARGEST, self.name)


@dataclass(frozen=True)
class RMSE(_Error):
    """Root of the mean squared error, √((1/n) Σ (ŷ − y)²), in the label's units."""

    name: str = "rmse"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """The squared error."""
        return per_example(jnp.mean, (outputs - y) ** 2)[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """√(sum / n)."""
        return np.sqrt(sums[..., 0] / count)


@dataclass(frozen=True)
class MAE(_Error):
    """Mean absolute error, (1/n) Σ |ŷ − y|, in the label's units."""

    name: str = "mae"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """The absolute error."""
        return per_example(jnp.mean, jnp.abs(outputs - y))[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """sum / n."""
        return sums[..., 0] / count


@dataclass(frozen=True)
class R2(Measure):
    """Share of the variance explained: 1 − Σ (ŷ − y)² / Σ (y − ȳ)², the mean over targets.

    Σ (y − ȳ)² = Σ (y − c)² − (Σ (y − c))² / n. With c far from the labels the difference loses
    digits, so c is what the schema subtracts from labels (``data.standardize``: their mean).
    Undefined (NaN) where a client's held-out labels are all equal.
    """

    name: str = "r2"
    centre: float | tuple[float, ...] = 0.0

    def width(self, outputs: int) -> int:
        """Three sums for each target."""
        return 3 * outputs

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 3*targets"]:
        """Squared error, label and squared label."""
        shifted = y - jnp.broadcast_to(jnp.asarray(self.centre, y.dtype), y.shape)
        return jnp.concatenate([(outputs - y) ** 2, shifted, shifted**2], axis=1)

    def value(self, sums: Sums, count: Count) -> Values:
        """1 − residual / total."""
        residual, label, square = np.split(sums, 3, axis=-1)
        total = square - label**2 / np.asarray(count)[..., None]
        varied = total > 1e-6 * np.maximum(square, np.finfo(np.float32).tiny)
        return np.where(varied.all(axis=-1), np.mean(1 - residual / total, axis=-1), np.nan)

    def check(self, sums: Sums, count: int) -> None:
        """Squares are not negative; sums of labels may be."""
        residual, label, square = np.split(sums, 3, axis=-1)
        refuse_outside(np.stack([residual, square]), 0, LARGEST, self.name)
        refuse_outside(label, -LARGEST, LARGEST, self.name)


@dataclass(frozen=True)
class Regression(Objective):
    r"""Squared error: f(w) = (1/n) Σ_j mean_t (ŷ_jt − ỹ_jt)², with ỹ the label as standardised.

    There is no factor ½, so a linear model has ∇f = (2/n) Xᵀ(Xw − y). Metrics and predictions are
    in the units of the stored labels.
    """

    name: ClassVar[str] = "regression"
    target: ClassVar[Target] = "number"
    constant_answer: ClassVar[str] = "the mean of each client's training labels"
    must_beat_constant: ClassVar[bool] = True

    def example_loss(self, outputs: Array, y: Array) -> Float[Array, "batch targets"]:
        """The squared error of every target."""
        return (outputs - self.schema.decode_target(add_target_axis(y, outputs.dtype))) ** 2

    def available(self) -> Sequence[Measure]:
        """Root mean squared error first."""
        return (RMSE(), MAE(), R2(centre=self.schema.target_shift))

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch width"]:
        """In the units of the stored labels."""
        answers = self.schema.restore_target(outputs)
        return super().statistics(answers, add_target_axis(y, outputs.dtype))

    def predictions(self, outputs: Array) -> Array:
        """Numbers in the label's units; a single target has no axis of its own."""
        answers = self.schema.restore_target(outputs)
        return answers[:, 0] if answers.shape[1] == 1 else answers

    def constant_outputs(self, y: np.ndarray) -> np.ndarray:
        """The mean, as the model would give it."""
        mean = np.mean(np.asarray(y, np.float64).reshape(len(y), -1), axis=0)
        return np.asarray(self.schema.decode_target(jnp.asarray(mean, jnp.float32)[None]))[0]


def add_target_axis(y: Array, dtype: np.dtype) -> Float[Array, "batch targets"]:
    """One label per example as one column."""
    return (y[:, None] if y.ndim == 1 else y).astype(dtype)
