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
the scores of a model that has hardly learned lie, and apart for probabilities near 0 and 1."""
CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Accuracy(Measure):
    """Share of right answers: (1/n) Σ 1[argmax = y]; in a sequence every position counts."""

    name: str = ACCURACY.name
    unit: Unit = "%"

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 1"]:
        """1 where the answer is right."""
        right = (jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype)
        return per_example(jnp.mean, right)[:, None]

    def value(self, sums: Sums, count: Count) -> Values:
        """The mean."""
        return sums[..., 0] / count

    def chance(self, classes: int) -> float | None:
        """Return 1 / classes."""
        return 1 / classes

    def check(self, sums: Sums, count: int) -> None:
        """Refuse more right answers than there are examples."""
        if (sums < 0).any() or (sums > count * (1 + SLACK)).any():
            raise DataError(f"claims more right predictions than its {count} held-out examples")


@dataclass(frozen=True)
class _ByClass(Measure):
    """From how often each class was right, answered and there."""

    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Three numbers for each class."""
        return 3 * outputs

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 3*classes"]:
        """Right, answered, there."""
        size, kind = outputs.shape[-1], outputs.dtype
        there = jax.nn.one_hot(y, size, dtype=kind)
        answered = jax.nn.one_hot(jnp.argmax(outputs, axis=-1), size, dtype=kind)
        return over_positions(jnp.concatenate([there * answered, answered, there], axis=-1))


@dataclass(frozen=True)
class BalancedAccuracy(_ByClass):
    """Mean over the classes that are there of the share of each that is answered right."""

    name: str = "balanced-accuracy"

    def value(self, sums: Sums, count: Count) -> Values:
        """mean_c right_c / there_c."""
        right, _, there = np.split(sums, 3, axis=-1)
        return mean_where(right / there, there > 0)

    def chance(self, classes: int) -> float | None:
        """Return 1 / classes."""
        return 1 / classes


@dataclass(frozen=True)
class MacroF1(_ByClass):
    """Mean over classes of F1 = 2·right / (answered + there); classes in neither do not count."""

    name: str = "macro-f1"

    def value(self, sums: Sums, count: Count) -> Values:
        """mean_c F1_c."""
        return macro_f1(*np.split(sums, 3, axis=-1))


@dataclass(frozen=True)
class AUC(Measure):
    """Area under the ROC curve, from a histogram of scores.

    The probability that an example of the class has a higher score than one of the others, a tie
    counting ½. With two classes it is class 1's, with more the mean over the classes that have
    examples on both sides (one against the rest). Scores in the same of 200 bins count as ties, so
    the result differs from the exact value by at most ½ Σ_b p_b q_b, with p_b and q_b the shares of
    the two sides in bin b: about 1 / 400 where scores are spread over all bins.
    """

    judges_answers: ClassVar[bool] = False

    name: str = "auc"
    unit: Unit = "%"

    def width(self, outputs: int) -> int:
        """Two histograms for each class that is scored."""
        return 2 * AUC_BINS * _scored(outputs)

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 2*classes*bins"]:
        """In which bin each class's score is, on its own side."""
        size = _scored(outputs.shape[-1])
        log_p = jax.nn.log_softmax(outputs)[..., -size:]
        odds = log_p - jnp.log1p(-jnp.exp(jnp.minimum(log_p, -1e-7)))
        centred = odds + math.log(outputs.shape[-1] - 1)
        score = 0.5 + 0.5 * jnp.arcsinh(centred / AUC_FINE) / math.asinh(AUC_MOST / AUC_FINE)
        bins = jax.nn.one_hot(_bin_of(score, AUC_BINS), AUC_BINS, dtype=outputs.dtype)
        there = jax.nn.one_hot(y, outputs.shape[-1], dtype=outputs.dtype)[..., -size:, None]
        both = jnp.stack([bins * there, bins * (1 - there)], axis=-3)
        return over_positions(both.reshape(*both.shape[:-3], -1))

    def value(self, sums: Sums, count: Count) -> Values:
        """mean_c Σ_b pos_b (Σ_{a<b} neg_a + ½ neg_b) / (pos · neg)."""
        both = sums.reshape(*sums.shape[:-1], 2, -1, AUC_BINS)
        positive, negative = both[..., 0, :, :], both[..., 1, :, :]
        below = np.cumsum(negative, axis=-1) - negative / 2
        pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
        return mean_where(np.sum(positive * below, axis=-1) / pairs, pairs > 0)

    def chance(self, classes: int) -> float | None:
        """Half of the pairs."""
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
        """Two sums for each bin."""
        return 2 * CALIBRATION_BINS

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch 2*bins"]:
        """Confidence and rightness, in the bin of the confidence."""
        confidence = jnp.max(jax.nn.softmax(outputs), axis=-1)
        right = (jnp.argmax(outputs, axis=-1) == y).astype(outputs.dtype)
        place = _bin_of(confidence, CALIBRATION_BINS)
        bins = jax.nn.one_hot(place, CALIBRATION_BINS, dtype=outputs.dtype)
        both = [bins * confidence[..., None], bins * right[..., None]]
        return over_positions(jnp.concatenate(both, axis=-1))

    def value(self, sums: Sums, count: Count) -> Values:
        """Σ_b |confidence_b − right_b| / n."""
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
        """−log p(y) of every label."""
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y)

    def available(self) -> Sequence[Measure]:
        """Accuracy first."""
        return (Accuracy(), BalancedAccuracy(), MacroF1(), AUC(), CalibrationError())

    def predictions(self, outputs: Array) -> Array:
        """The number of the likeliest class."""
        return jnp.argmax(outputs, axis=-1)

    def constant_outputs(self, y: np.ndarray) -> np.ndarray:
        """1 at the most frequent class."""
        counts = np.bincount(np.ravel(y), minlength=self.schema.outputs)
        row = np.eye(len(counts), dtype=np.float32)[np.argmax(counts)]
        return np.broadcast_to(row, (*y.shape[1:], len(counts)))


@dataclass(frozen=True)
class Sequences(Classification):
    """Classification of every position of a sequence: which token comes next."""

    name: ClassVar[str] = "sequences"

    def available(self) -> Sequence[Measure]:
        """The share of right positions."""
        return (Accuracy(),)


def over_positions(values: Array) -> Array:
    """The mean over the positions of a sequence; one label per example stays as it is."""
    return values if values.ndim == 2 else jnp.mean(values, axis=tuple(range(1, values.ndim - 1)))


def macro_f1(right: Sums, answered: Sums, there: Sums) -> Values:
    """mean_c 2·right_c / (answered_c + there_c) over classes answered or there."""
    either = answered + there
    return mean_where(2 * right / either, either > 0)


def _scored(outputs: int) -> int:
    """Of two classes one score says it all."""
    return 1 if outputs == 2 else outputs


def _bin_of(values: Array, bins: int) -> Array:
    """The bin of values between 0 and 1."""
    return jnp.clip((values * bins).astype(int), 0, bins - 1)
