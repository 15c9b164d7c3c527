"""The shape and meaning of an example and its label: all a model must know of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from headstart.errors import DataError
from headstart.options import require_one_of

Target = Literal["class", "number", "labels"]


@dataclass(frozen=True, repr=False)
class Schema:
    """The form of an example, and how stored numbers become a model's input."""

    shape: tuple[int, ...]
    classes: int = 0
    """Number of classes, or of labels that are on or off; 0 where labels are numbers."""
    vocabulary: int = 0
    """Number of different tokens; 0 when inputs are numbers."""
    shift: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0
    """Stored x becomes (x − shift) · scale; one number, or one per feature (last axis)."""
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    target: Target = "class"
    """A label is one class, a number (or several), or several labels that are on or off."""
    targets: int = 1
    """How many numbers a label has if ``target="number"``."""
    target_shift: float | tuple[float, ...] = 0.0
    target_scale: float | tuple[float, ...] = 1.0
    """The model learns to output (y − shift) · scale for a stored number y."""

    def __post_init__(self) -> None:
        """Refuse an unknown target and a schema without outputs."""
        require_one_of(("class", "number", "labels"), target=self.target)
        if self.outputs < 1:
            raise DataError(f"classes={self.classes}: a model needs at least one output")

    def __repr__(self) -> str:
        """Show all fields; fields added later appear only if they differ from their default.

        Fingerprints of federated runs depend on this text.
        """
        shown = (f"{key}={value!r}" for key, value in self.to_table().items())
        return f"Schema({', '.join(shown)})"

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Schema:
        """Build a schema from a table in a file, where tuples have become lists."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        return cls(**fields)

    def to_table(self) -> dict[str, Any]:
        """Return all fields; fields added later appear only if they differ from their default.

        Older data sets therefore keep their fingerprints.
        """
        later = {"target": "class", "targets": 1, "target_shift": 0.0, "target_scale": 1.0}
        table = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in table.items() if k not in later or v != later[k]}

    @property
    def outputs(self) -> int:
        """Width of a model's output: one number per class, label or target."""
        return self.targets if self.target == "number" else self.classes

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of one example's label; one class per position of a text."""
        if self.target == "class":
            return self.shape if self.vocabulary else ()
        return () if self.outputs == 1 and self.target == "number" else (self.outputs,)

    @property
    def label_type(self) -> np.dtype:
        """Type in which labels are stored."""
        return np.dtype({"class": "int32", "number": "float32", "labels": "uint8"}[self.target])

    def decode_target(self, y: Shaped[Array, "batch targets"]) -> Shaped[Array, "batch targets"]:
        """Convert stored labels to the numbers that the model learns to output."""
        shift, scale = (_along_last_axis(v, y) for v in (self.target_shift, self.target_scale))
        return (y - shift) * scale

    def restore_target(
        self, outputs: Shaped[Array, "batch targets"]
    ) -> Shaped[Array, "batch targets"]:
        """Convert the model's outputs to the units of the stored labels."""
        pair = (self.target_shift, self.target_scale)
        shift, scale = (_along_last_axis(v, outputs) for v in pair)
        return outputs / scale + shift

    def decode(self, x: Shaped[Array, "batch ..."]) -> Shaped[Array, "batch ..."]:
        """Convert stored inputs to the model's inputs: shift and scale numbers, keep tokens."""
        if self.vocabulary:
            return x
        x = x.astype(jnp.result_type(float))
        shift, scale = (_along_last_axis(v, x) for v in (self.shift, self.scale))
        return (x - shift) * scale


def _along_last_axis(value: float | tuple[float, ...], x: Array) -> Array:
    array = jnp.asarray(value, x.dtype)
    return array.reshape((1,) * (x.ndim - 1) + (-1,)) if array.ndim else array
