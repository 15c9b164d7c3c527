"""One class for every example, or for every position of a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from headstart._metric import ACCURACY, Direction, Unit
from headstart.errors import DataError
from headstart.models.objectives._objective import (
    SLACK,
    Count,
    Measure,
    Objective,
    Sums,
    Values,
    mean_where,
    per_example,
)

AUC_BINS = 200
AUC_FINE, AUC_MOST = 0.05, 16.0
"""Bins are equal steps of asinh(log-odds / 0.05), up to log-odds of ±16: fine around zero, where
the scores of a barely trained model lie, and still distinct for probabilities near 0 and 1."""
CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Accuracy(Measure):
    """Share of correct answers: (1/n) Σ 1[argmax = y]; in a sequence every position counts."""

    name: str = ACCURACY.name
    unit: Unit = "%"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """Return 1 where the answer is correct, else 0; the mean over a sequence."""
        right = (jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype)
        return per_example(jnp.mean, right)[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """Return the mean."""
        return sums[..., 0] / count

    def chance(self, classes: int) -> float | None:
        """Return 1 / classes."""
        return 1 / classes

    def check(self, sums: Sums, count: int) -> None:
        """Refuse more correct answers than there are examples."""
        if (sums < 0).any() or (sums > count * (1 + SLACK)).any():
            raise DataError(f"claims more right predictions than its {count} held-out examples")


@dataclass(frozen=True)
class _ByClass(Measure):
    """A metric from how often each class was predicted correctly, predicted, and present."""

    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Return three numbers for each class."""
        return 3 * outputs

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 3*classes"]:
        """Return whether each class is correct, predicted and present."""
        size, kind = outputs.shape[-1], outputs.dtype
        present = jax.nn.one_hot(y, size, dtype=kind)
        predicted = jax.nn.one_hot(jnp.argmax(outputs, axis=-1), size, dtype=kind)
        return average_positions(
            jnp.concatenate([present * predicted, predicted, present], axis=-1)
        )


@dataclass(frozen=True)
class BalancedAccuracy(_ByClass):
    """Mean over the classes present of the share of each that is predicted correctly."""

    name: str = "balanced-accuracy"

    def value(self, sums: Sums, count: Count) -> Values:
        """Return mean_c right_c / present_c."""
        right, _, present = np.split(sums, 3, axis=-1)
        return mean_where(right / present, present > 0)

    def chance(self, classes: int) -> float | None:
        """Return 1 / classes."""
        return 1 / classes


@dataclass(frozen=True)
class MacroF1(_ByClass):
    """Mean over classes of F1 = 2·right / (predicted + present), without classes in neither."""

    name: str = "macro-f1"

    def value(self, sums: Sums, count: Count) -> Values:
        """Return mean_c F1_c."""
        return macro_f1(*np.split(sums, 3, axis=-1))


@dataclass(frozen=True)
class AUC(Measure):
    """Area under the ROC curve, from a histogram of scores.

    The probability that an example of the class has a higher score than one of the others; a tie
    counts ½. With two classes it is that of class 1; with more, the mean over the classes that have
    examples on both sides (one against the rest). Scores in the same one of 200 bins count as ties,
    so the result differs from the exact value by at most ½ Σ_b p_b q_b, where p_b and q_b are the
    shares of the two sides in bin b: about 1 / 400 where scores are spread over all bins.
    """

    judges_answers: ClassVar[bool] = False

    name: str = "auc"
    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Return the size of two histograms for each scored class."""
        return 2 * AUC_BINS * _count_scored_classes(outputs)

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 2*classes*bins"]:
        """Return the bin of each class's score, in the histogram of its side."""
        size = _count_scored_classes(outputs.shape[-1])
        log_p = jax.nn.log_softmax(outputs)[..., -size:]
        odds = log_p - jnp.log1p(-jnp.exp(jnp.minimum(log_p, -1e-7)))
        centred = odds + math.log(outputs.shape[-1] - 1)
        score = 0.5 + 0.5 * jnp.arcsinh(centred / AUC_FINE) / math.asinh(AUC_MOST / AUC_FINE)
        bins = jax.nn.one_hot(_find_bin(score, AUC_BINS), AUC_BINS, dtype=outputs.dtype)
        present = jax.nn.one_hot(y, outputs.shape[-1], dtype=outputs.dtype)[..., -size:, None]
        both = jnp.stack([bins * present, bins * (1 - present)], axis=-3)
        return average_positions(both.reshape(*both.shape[:-3], -1))

    def value(self, sums: Sums, count: Count) -> Values:
        """Return mean_c Σ_b pos_b (Σ_{a<b} neg_a + ½ neg_b) / (pos · neg)."""
        both = sums.reshape(*sums.shape[:-1], 2, -1, AUC_BINS)
        positive, negative = both[..., 0, :, :], both[..., 1, :, :]
        below = np.cumsum(negative, axis=-1) - negative / 2
        pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
        return mean_where(np.sum(positive * below, axis=-1) / pairs, pairs > 0)

    def chance(self, classes: int) -> float | None:
        """Return ½: half of the pairs are in the right order."""
        return 0.5


@dataclass(frozen=True)
class CalibrationError(Measure):
    """Expected calibration error: Σ_b |Σ confidence − Σ right| / n over 15 bins of confidence.

    Confidence is the probability of the answer (Guo et al. 2017).
    """

    judges_answers: ClassVar[bool] = False

    name: str = "calibration-error"
    direction: Direction = "lower"
    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Return two sums for each bin."""
        return 2 * CALIBRATION_BINS

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 2*bins"]:
        """Return confidence and correctness, in the bin of the confidence."""
        confidence = jnp.max(jax.nn.softmax(outputs), axis=-1)
        right = (jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype)
        place = _find_bin(confidence, CALIBRATION_BINS)
        bins = jax.nn.one_hot(place, CALIBRATION_BINS, dtype=outputs.dtype)
        both = [bins * confidence[..., None], bins * right[..., None]]
        return average_positions(jnp.concatenate(both, axis=-1))

    def value(self, sums: Sums, count: Count) -> Values:
        """Return Σ_b |confidence_b − right_b| / n."""
        confidence, right = np.split(sums, 2, axis=-1)
        return np.sum(np.abs(confidence - right), axis=-1) / count


@dataclass(frozen=True)
class Classification(Objective):
    """Softmax cross-entropy of a model, or the model's own loss.

    With sequences y has one label per position, and an example's loss is the mean over them.
    """

    name: ClassVar[str] = "classification"
    constant_answer: ClassVar[str] = "each client's most frequent label"

    def example_loss(self, outputs: Array, y: Array) -> Float[Array, "batch ..."]:
        """Return −log p(y) of every label."""
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y)

    def outcome(self, outputs: Array, y: Array) -> Float[Array, " batch"]:
        """Return 1 where the answer is correct, else 0; the mean over a sequence."""
        return Accuracy().statistics(outputs, y)[:, 0]

    def available(self) -> Sequence[Measure]:
        """Return the metrics, accuracy first."""
        return (Accuracy(), BalancedAccuracy(), MacroF1(), AUC(), CalibrationError())

    def predictions(self, outputs: Array) -> Array:
        """Return the number of the most likely class."""
        return jnp.argmax(outputs, axis=-1)

    def constant_outputs(self, y: np.ndarray) -> np.ndarray:
        """Return 1 at the most frequent class and 0 elsewhere."""
        counts = np.bincount(np.ravel(y), minlength=self.schema.outputs)
        row = np.eye(len(counts), dtype=np.float32)[np.argmax(counts)]
        return np.broadcast_to(row, (*y.shape[1:], len(counts)))


@dataclass(frozen=True)
class Sequences(Classification):
    """Classification of every position of a sequence: which token comes next."""

    name: ClassVar[str] = "sequences"

    def available(self) -> Sequence[Measure]:
        """Return accuracy, the share of correct positions."""
        return (Accuracy(),)


def average_positions(values: Array) -> Array:
    """Average over the positions of a sequence; one label per example stays unchanged."""
    return values if values.ndim == 2 else jnp.mean(values, axis=tuple(range(1, values.ndim - 1)))


def macro_f1(right: Sums, predicted: Sums, present: Sums) -> Values:
    """Return mean_c 2·right_c / (predicted_c + present_c) over classes predicted or present."""
    either = predicted + present
    return mean_where(2 * right / either, either > 0)


def _count_scored_classes(outputs: int) -> int:
    """Return how many classes have a score; of two classes, one is enough."""
    return 1 if outputs == 2 else outputs


def _find_bin(values: Array, bins: int) -> Array:
    """Return the bin of values between 0 and 1."""
    return jnp.clip((values * bins).astype(int), 0, bins - 1)
