"""Match examples in memory to the data a model was trained on.

An array must have the right shape. A table (pandas, polars, Arrow, or a dictionary of columns) is
matched by the names of its columns, whatever their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headstart.data._federated import find_bad_row
from headstart.data._schema import Schema
from headstart.errors import DataError


def match_inputs(x: Any, schema: Schema) -> np.ndarray:
    """Return inputs in the form of the model's data; raise a DataError if they do not fit."""
    names = column_names(x)
    array = _to_array(x, schema) if names is None else _stack_columns(x, names, schema)
    if array.ndim < 1 or array.shape[1:] != schema.shape:
        raise DataError(f"examples have shape {array.shape[1:]}, this run's have {schema.shape}")
    row = find_bad_row(array, schema)
    if row is not None:
        what = (
            "a token that is unknown"
            if schema.vocabulary
            else "a value that is not a finite number"
        )
        raise DataError(f"example {row} has {what}; fill or remove missing values first")
    return array


def match_labels(y: Any, schema: Schema) -> np.ndarray:
    """Return labels as class numbers; accept class names where the schema has them.

    Labels that are not classes stay unchanged.
    """
    y = np.asarray(y)
    if schema.target != "class":
        return y
    if y.dtype.kind not in "OUS" or not schema.class_names:
        return y
    numbers = {name: number for number, name in enumerate(schema.class_names)}
    words = [str(word) for word in np.ravel(y)]
    unknown = next((word for word in words if word not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"label {unknown!r} is not one of this run's: {', '.join(schema.class_names[:12])}"
        )
    return np.array([numbers[word] for word in words], np.int32).reshape(y.shape)


def column_names(x: Any) -> list[str] | None:
    """Return the column names of a table; None for anything else."""
    if isinstance(x, Mapping):
        return [str(name) for name in x]
    for attribute in ("column_names", "columns"):  # Arrow; pandas and polars
        names = getattr(x, attribute, None)
        if names is not None and not callable(names) and not isinstance(x, np.ndarray):
            return [str(name) for name in names]
    return None


def _stack_columns(x: Any, names: Sequence[str], schema: Schema) -> np.ndarray:
    wanted = schema.feature_names
    if not wanted:
        if len(schema.shape) != 1 or len(names) != schema.shape[0]:
            raise DataError(
                f"a table with {len(names)} columns does not fit this run, whose examples have "
                f"shape {schema.shape} and no names; give an array"
            )
        wanted = tuple(names)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}, which this run's data have")
    extra = [name for name in names if name not in wanted]
    if extra:
        raise DataError(
            f"the table has a column {extra[0]!r}, which this run's data do not have; leave it out"
        )
    keys = {str(key): key for key in (x if isinstance(x, Mapping) else names)}
    return np.stack([_to_numbers(x[keys.get(name, name)], name) for name in wanted], axis=1)


def _to_numbers(column: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(column, np.float64).astype(np.float32)
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} holds values that are not numbers") from None


def _to_array(x: Any, schema: Schema) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "buif":
        raise DataError(f"examples of type {array.dtype} are not numbers")
    return array
