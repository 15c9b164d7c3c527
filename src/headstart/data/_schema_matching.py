"""Examples given in memory, matched to the data a model was trained on.

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
    """Inputs as the model's data store them, or one clear line why they do not fit."""
    names = column_names(x)
    array = _array(x, schema) if names is None else _from_columns(x, names, schema)
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
    """Labels as class numbers; class names are accepted where the schema has them.

    Where labels are numbers to predict they stay as they are.
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
    """The columns of a table; None for anything else."""
    if isinstance(x, Mapping):
        return [str(name) for name in x]
    for attribute in ("column_names", "columns"):  # Arrow; pandas and polars
        names = getattr(x, attribute, None)
        if names is not None and not callable(names) and not isinstance(x, np.ndarray):
            return [str(name) for name in names]
    return None


def _from_columns(x: Any, names: Sequence[str], schema: Schema) -> np.ndarray:
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
    strange = [name for name in names if name not in wanted]
    if strange:
        raise DataError(
            f"the table has a column {strange[0]!r}, which this run's data do not have; "
            "leave it out"
        )
    keys = {str(key): key for key in (x if isinstance(x, Mapping) else names)}
    return np.stack([_numbers(x[keys.get(name, name)], name) for name in wanted], axis=1)


def _numbers(column: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(column, np.float64).astype(np.float32)
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} holds values that are not numbers") from None


def _array(x: Any, schema: Schema) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "buif":
        raise DataError(f"examples of type {array.dtype} are not numbers")
    return array
