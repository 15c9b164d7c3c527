"""What a client minimises and is judged by: a loss, predictions, and named metrics.

An objective combines a model and the schema of the data. Metrics are computed from sums over
examples, so that an evaluation can run block by block, and at each client where its data are. A
measure defines what each example adds (on the device) and the value of the sums (on the host).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from headstart._first_layer import FirstLayer
from headstart._metric import Metric
from headstart.errors import ConfigError, DataError
from headstart.models._model import Examples, Model
from headstart.options import choose
from headstart.trees import Tree

Batch = tuple[Array, Array]
Sums = Float[np.ndarray, "... width"]
Count = Any
"""Number of examples in the sums, or one number for each of the leading axes."""
Values = Float[np.ndarray, "..."]
Target = Literal["class", "number", "labels"]
SLACK = 1e-6
"""Relative rounding error of sums in 32 bits."""
RESERVED = ("loss", "metric", "metrics", "new_clients", "round", "steps", "ci95")
LARGEST = float(np.finfo(np.float32).max)
"""The largest sum accepted; much larger ones overflow in statistics over all clients."""


class DataSchema(Examples, Protocol):
    """What an objective must know about the data."""

    @property
    def target(self) -> Target:
        """Kind of label: one class, a number, or several labels that are on or off."""

    def decode(self, x: Array) -> Array:
        """Convert stored inputs to the model's inputs."""

    def decode_target(self, y: Array) -> Array:
        """Convert stored labels to the numbers that the model learns to output."""

    def restore_target(self, outputs: Array) -> Array:
        """Convert the model's outputs to the units of the stored labels."""

    @property
    def target_shift(self) -> float | tuple[float, ...]:
        """Number that is subtracted from stored labels."""


class Score(NamedTuple):
    """Per example: loss, statistics for the metrics, whether outputs are finite, and outcome."""

    loss: Float[Array, " batch"]
    statistics: Float[Array, "batch width"]
    finite: Bool[Array, " batch"]
    outcome: Float[Array, " batch"]
    """How well the example was answered; higher is better."""


@dataclass(frozen=True)
class Measure(Metric, ABC):
    """A metric that is computed from sums over examples of ``width`` numbers each."""

    judges_answers: ClassVar[bool] = True
    """Whether it is meaningful for a constant answer."""

    def width(self, outputs: int) -> int:
        """Return how many numbers an example adds for a model with this many outputs."""
        return 1

    @abstractmethod
    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch width"]:
        """Return the numbers that each example adds; outputs that are not finite do not count."""

    @abstractmethod
    def value(self, sums: Sums, count: Count) -> Values:
        """Return the metric of ``count`` examples; NaN where it is undefined.

        The last axis of ``sums`` holds the statistics; axes before it (clients, steps) are kept.
        """

    def chance(self, classes: int) -> float | None:
        """Return the score of a random guess among the classes; None if it is not meaningful."""
        return None

    def check(self, sums: Sums, count: int) -> None:
        """Raise DataError for sums that ``count`` examples cannot have."""
        refuse_outside(sums, 0, count, f"{self.name} of its {count} held-out examples")


def mean_where(values: np.ndarray, counts: np.ndarray) -> Values:
    """Return the mean over the last axis where ``counts`` is true; NaN if it is nowhere true."""
    total = np.sum(np.where(counts, values, 0.0), axis=-1)
    return total / np.where(counts.any(axis=-1), counts.sum(axis=-1), np.nan)


def refuse_outside(sums: np.ndarray, low: float, high: float, what: str) -> None:
    """Raise DataError for sums outside these limits, with room for rounding."""
    if (sums < low).any() or (sums > high * (1 + SLACK)).any():
        raise DataError(f"claims sums that cannot be right for the {what}")


@dataclass(frozen=True)
class Objective(ABC):
    """A loss, predictions and metrics of one model on one kind of data.

    A batch is ``(x, y)`` as stored; the schema decodes it. To write your own, subclass it with
    ``example_loss``, ``available`` and ``predictions``; further fields are its options. Objectives
    are hashable, and equal ones share one compiled program.
    """

    model: Model
    schema: DataSchema
    metrics: tuple[str, ...] = ()
    """Names of the metrics to compute, primary first; if empty, the first available one."""

    name: ClassVar[str]
    """The name of a built-in objective in an experiment file."""
    target: ClassVar[Target] = "class"
    """The kind of labels it needs."""
    constant_answer: ClassVar[str] = ""
    """The best answer that ignores the input, in words; empty if there is none."""
    must_beat_constant: ClassVar[bool] = False
    """Whether a model that is no better than the constant answer is useless."""

    def __post_init__(self) -> None:
        """Reject data of another kind, and unknown metrics."""
        if self.schema.target != self.target:
            raise ConfigError(
                f"objective {type(self).__name__} needs {_WORDS[self.target]} as labels, but these "
                f"data have {_WORDS[self.schema.target]}; set objective.name to "
                f"{_FITTING[self.schema.target]!r}"
            )
        available = {measure.name: measure for measure in self.available()}
        object.__setattr__(self, "metrics", tuple(self.metrics) or (next(iter(available)),))
        for name in self.metrics:
            choose(available, name, "objective.metrics")
            if name in RESERVED:
                raise ConfigError(f"a metric cannot be called {name!r}; records use that name")
        if len(set(self.metrics)) < len(self.metrics):
            raise ConfigError(f"objective.metrics={list(self.metrics)} names one twice")

    @abstractmethod
    def example_loss(self, outputs: Array, y: Array) -> Float[Array, "batch ..."]:
        """Return the loss of every example, or of its every label; the mean is minimised."""

    @abstractmethod
    def available(self) -> Sequence[Measure]:
        """Return all metrics this objective can compute; the first is the default."""

    @abstractmethod
    def predictions(self, outputs: Array) -> Array:
        """Return the model's answers, from its outputs."""

    def constant_outputs(self, y: np.ndarray) -> np.ndarray | None:
        """Return the outputs of the constant answer for one example, from training labels."""
        return None

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The metrics that are computed; the first is the primary one."""
        known = {measure.name: measure for measure in self.available()}
        return tuple(known[name] for name in self.metrics)

    @property
    def primary(self) -> Measure:
        """The metric that runs are judged by."""
        return self.measures[0]

    @property
    def first_layer(self) -> FirstLayer | None:
        """The model's first layer, if the model declares it."""
        model_layer = getattr(self.model, "first_layer", None)
        if model_layer is None:
            return None
        return FirstLayer(
            model_layer.weight, lambda batch: model_layer.inputs(self.schema.decode(batch[0]))
        )

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Return the mean loss over the batch."""
        return jnp.mean(self._label_losses(self.outputs(params, batch[0]), batch[1]))

    def losses(self, params: Tree, batch: Batch) -> Float[Array, " batch"]:
        """Return the loss of every example."""
        losses = self._label_losses(self.outputs(params, batch[0]), batch[1])
        return per_example(jnp.mean, losses)

    def score(self, params: Tree, batch: Batch) -> Score:
        """Return all numbers that an evaluation adds up, in one pass through the model."""
        x, y = batch
        outputs = self.outputs(params, x)
        losses = self._label_losses(outputs, y)
        finite = per_example(jnp.all, jnp.isfinite(outputs))
        statistics = jnp.where(finite[:, None], self.statistics(outputs, y), 0.0)
        return Score(
            per_example(jnp.mean, losses),
            statistics.astype(losses.dtype),
            finite,
            self.outcome(outputs, y),
        )

    def outcome(self, outputs: Array, y: Array) -> Float[Array, " batch"]:
        """Return how well each example is answered; by default minus its loss.

        Two models are compared example by example: the one with the higher outcome is better there.
        """
        return -per_example(jnp.mean, self._label_losses(outputs, y))

    def statistics(self, outputs: Array, y: Array) -> Float[Array, "batch width"]:
        """Return the statistics of all measures, side by side."""
        return jnp.concatenate([m.statistics(outputs, y) for m in self.measures], axis=1)

    def outputs(self, params: Tree, x: Array) -> Array:
        """Return the model's outputs for stored inputs."""
        return self.model.apply(params, self.schema.decode(x))

    def predict(self, params: Tree, x: Array) -> Array:
        """Return the model's answers for stored inputs."""
        return self.predictions(self.outputs(params, x))

    @property
    def width(self) -> int:
        """How many numbers :meth:`statistics` gives for an example."""
        return sum(self._widths())

    def values(self, sums: Sums, count: Count) -> dict[str, Values]:
        """Return every metric of ``count`` examples by name, from the sums of their statistics."""
        sums, count = np.asarray(sums, float), np.asarray(count)
        with np.errstate(divide="ignore", invalid="ignore"):
            return {m.name: m.value(part, count) for m, part in self._split(sums)}

    def check_sums(self, sums: Sums, count: int) -> None:
        """Raise DataError for sums that ``count`` examples cannot have."""
        for measure, part in self._split(sums):
            measure.check(part, count)

    def _split(self, sums: Sums) -> list[tuple[Measure, Sums]]:
        parts = np.split(sums, np.cumsum(self._widths())[:-1], axis=-1)
        return list(zip(self.measures, parts, strict=True))

    def _widths(self) -> list[int]:
        return [measure.width(self.schema.outputs) for measure in self.measures]

    def _label_losses(self, outputs: Array, y: Array) -> Array:
        example_loss: Any = getattr(self.model, "example_loss", self.example_loss)
        return example_loss(outputs, y)


_WORDS: dict[Target, str] = {
    "class": "classes",
    "number": "numbers",
    "labels": "labels that are on or off",
}
_FITTING: dict[Target, str] = {
    "class": "classification",
    "number": "regression",
    "labels": "multi-label",
}


def per_example(reduce: Any, values: Array) -> Array:
    """Reduce all axes but the first."""
    return reduce(values, axis=tuple(range(1, values.ndim))) if values.ndim > 1 else values
