"""One client's examples in one file, read to fit a model's data and written in the same form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headstart._atomic_files import write_bytes, write_text
from headstart.data import _table_files as table_files
from headstart.data._schema import Schema
from headstart.data._table_files import Columns, Frame, reorder_columns, warn_about_index_columns
from headstart.data._text_numbers import parse_integer, parse_number
from headstart.errors import DataError, OutputError

_LARGEST = float(np.finfo(np.float32).max)


def read_examples(
    path: str | Path, schema: Schema, *, label: str = "label", ignore: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Read one client's examples in the form of the data a model was trained on.

    Columns are matched by name where the schema has names. Otherwise (images) a table needs one
    column per number of an example, in row-major order. Columns in ``ignore``, which training left
    out, may be present or absent. A label is a class name, or the class's number if no class name
    is a number. Raises a one-line DataError if the file does not fit.
    """
    frame = table_files.read_table_file(Path(path), Columns(label, ignore=tuple(ignore)))
    warn_about_index_columns([frame])
    if schema.feature_names and frame.columns:
        frame = reorder_columns(frame, schema.feature_names, "the model's data")
    x = _reshape_inputs(frame, schema)
    if schema.vocabulary:
        _check_range(frame, x, schema.vocabulary, "token")
        x = x.astype(np.int32)
    return x, _parse_labels(frame, schema, x.shape)


def read_inputs(path: str | Path, schema: Schema) -> np.ndarray:
    """Read inputs without labels in the form of the data a model was trained on.

    The model's columns of a table are taken by name; others are ignored. Where the schema has no
    names (images), all columns but ``label`` are taken. Raises a one-line DataError if the file
    does not fit.
    """
    frame = _read_model_columns(Path(path), schema)
    x = _reshape_inputs(frame, schema)
    if schema.vocabulary:
        _check_range(frame, x, schema.vocabulary, "token")
        x = x.astype(np.int32)
    return x


def _read_model_columns(path: Path, schema: Schema) -> Frame:
    if path.suffix.lower() == ".npz" or not schema.feature_names:
        frame = table_files.read_table_file(path, Columns(None, ignore=("label",)))
        warn_about_index_columns([frame])
        return frame
    try:
        return table_files.read_table_file(path, Columns(None, features=schema.feature_names))
    except DataError as error:
        text = str(error).replace("which data.features names", "which the model needs")
        raise DataError(text) from None


def write_examples(
    path: str | Path, x: np.ndarray, y: np.ndarray, schema: Schema, *, label: str = "label"
) -> None:
    """Write stored examples as CSV or NPZ, in the form that :func:`read_examples` reads.

    Labels are written by name where the schema has names. Text needs NPZ.
    """
    path = Path(path)
    names = np.array(schema.class_names)
    named = len(names) and not schema.vocabulary and schema.target == "class"
    labels = names[y] if named else y
    if path.suffix.lower() == ".npz":
        packed = io.BytesIO()
        np.savez_compressed(packed, x=x, y=labels)
        write_bytes(path, packed.getvalue())
    elif path.suffix.lower() == ".csv" and y.ndim == 1:
        write_text(path, _format_csv(x.reshape(len(x), -1), labels, schema, label))
    else:
        kinds = ".npz" if y.ndim > 1 else ".csv or .npz"
        raise OutputError(f"{path} must end in {kinds}")


def _format_csv(x: np.ndarray, labels: np.ndarray, schema: Schema, label: str) -> str:
    columns = schema.feature_names or [f"x{i}" for i in range(x.shape[1])]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*columns, label])
    # NumPy writes the shortest text that gives the same 32-bit number again.
    writer.writerows(
        [*row, name] for row, name in zip(x.astype(np.str_).tolist(), labels, strict=True)
    )
    return text.getvalue()


def _reshape_inputs(frame: Frame, schema: Schema) -> np.ndarray:
    """Return inputs in the schema's shape; accept flat rows and grey images without a channel."""
    x, size = frame.x, math.prod(schema.shape)
    flat = x.ndim == 2 and x.shape[1] == size
    grey = schema.shape[-1:] == (1,) and x.shape[1:] == schema.shape[:-1]
    if schema.vocabulary and frame.columns:
        raise DataError(f"{frame.path}: text needs an NPZ file with x and y of whole numbers")
    if not (flat or grey or x.shape[1:] == schema.shape):
        what = f"{x.shape[1]} features" if x.ndim == 2 else f"examples of shape {x.shape[1:]}"
        raise DataError(
            f"{frame.path} has {what}; the model needs {size} numbers "
            f"per example, shape {schema.shape}"
        )
    return x.reshape(len(x), *schema.shape)


def parse_label_numbers(frame: Frame) -> np.ndarray:
    """Return labels as numbers to predict; raise a one-line DataError if one is not a number."""
    if frame.labels.ndim > 1:
        return frame.labels.astype(np.float32)
    values = [parse_number(word) for word in frame.labels.tolist()]
    bad = next((i for i, v in enumerate(values) if v is None or not abs(v) < _LARGEST), None)
    if bad is not None:
        raise DataError(
            f"{frame.where(bad)} has label {str(frame.labels[bad])[:40]!r}, which is not a finite "
            "number that fits 32 bits; fill or remove it, or set objective.name='classification'"
        )
    return np.array(values, np.float32)


def _parse_multi_labels(frame: Frame, schema: Schema) -> np.ndarray:
    y = frame.labels
    if y.ndim != 2 or y.shape[1] != schema.classes or not np.isin(y, (0, 1)).all():
        raise DataError(
            f"{frame.path}: the model needs an NPZ file whose y has {schema.classes} numbers, 0 or "
            "1, for each example"
        )
    return y.astype(np.uint8)


def _parse_labels(frame: Frame, schema: Schema, shape: tuple[int, ...]) -> np.ndarray:
    if schema.target == "number":
        return parse_label_numbers(frame)
    if schema.target == "labels":
        return _parse_multi_labels(frame, schema)
    if frame.labels.ndim > 1 or schema.vocabulary:
        if not schema.vocabulary or frame.labels.shape != shape:
            raise DataError(
                f"{frame.path} has y of shape {frame.labels.shape} for x of shape {shape}; "
                + ("one label per position is needed" if schema.vocabulary else "one per example")
            )
        _check_range(frame, frame.labels, schema.classes, "label")
        return frame.labels.astype(np.int32)
    words, codes = np.unique(frame.labels, return_inverse=True)
    numbers = [_find_class_number(word, schema) for word in words]
    if None in numbers:
        row = int(np.flatnonzero(codes == numbers.index(None))[0])
        names = schema.class_names or [f"0 … {schema.classes - 1}"]
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        raise DataError(
            f"{frame.where(row)} has label {str(frame.labels[row])[:40]!r}, which the model does "
            f"not know; it knows {shown}"
        )
    return np.array(numbers, np.int32)[codes]


def _find_class_number(word: str, schema: Schema) -> int | None:
    names, value = schema.class_names, parse_integer(word)
    for name in (word, str(value)):
        if name in names:
            return names.index(name)
    by_number = any(parse_integer(name) is not None for name in names)
    inside = value is not None and 0 <= value < schema.classes
    return value if inside and not by_number else None


def _check_range(frame: Frame, values: np.ndarray, count: int, what: str) -> None:
    wrong = (values < 0) | (values >= count) | (values != np.floor(values))
    if wrong.any():
        raise DataError(f"{frame.path} has a {what} that is not a whole number in 0 … {count - 1}")
