"""The user's own data: a folder with one file per client, or one table with a client column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.data import _table_files as table_files
from headstart.data._example_files import parse_label_numbers, read_examples, write_examples
from headstart.data._example_pool import Pool
from headstart.data._identifiers import warn_about_identifiers
from headstart.data._schema import Schema, Target
from headstart.data._table_files import Columns, Frame, reorder_columns, warn_about_index_columns
from headstart.data._text_numbers import number_words, parse_integer, parse_number
from headstart.errors import DataError

MANY_CLASSES = 20
ROWS_PER_CLASS = 10

__all__ = ["read_examples", "read_folder", "read_path", "read_table", "write_examples"]


def read_folder(
    path: str | Path,
    *,
    label: str = "label",
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    classes: int | None = None,
    standardize: bool = False,
    target: Target = "class",
) -> Pool:
    """Read one CSV, TSV, Parquet or NPZ file per client, named after the client.

    The columns of the files must have the same names, in any order. Features are the columns in
    ``features``, or all but the label and those in ``drop``. Labels are words or whole numbers.
    They are numbered in sorted order over all clients; with ``classes``, they are the class
    numbers 0 … classes − 1 themselves. With ``target="number"`` labels are numbers to predict,
    which ``standardize`` scales as well. With ``target="labels"`` an NPZ file's y has a row of 0
    and 1 for each example.
    """
    columns = Columns(label, None, tuple(features), tuple(drop))
    return _pool_from_folder(Path(path), columns, _Labels(target, classes), standardize)


def read_table(
    path: str | Path,
    *,
    client: str = "client",
    label: str = "label",
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    classes: int | None = None,
    standardize: bool = False,
    target: Target = "class",
) -> Pool:
    """Read one table for all clients; the column ``client`` names the client of each row.

    The other options are those of :func:`read_folder`.
    """
    columns = Columns(label, client, tuple(features), tuple(drop))
    return _pool_from_table(Path(path), columns, True, _Labels(target, classes), standardize)


def read_path(
    path: Path,
    columns: Columns,
    *,
    natural: bool = True,
    classes: int | None = None,
    standardize: bool = False,
    target: Target = "class",
) -> Pool:
    """Read a folder or a table; natural clients need a client column."""
    labels = _Labels(target, classes)
    if _is_folder(path):
        return _pool_from_folder(path, replace(columns, client=None), labels, standardize)
    return _pool_from_table(path, columns, natural, labels, standardize)


class _Labels(NamedTuple):
    """The kind of labels, and the number of classes if the user gives it."""

    target: Target
    classes: int | None


def _pool_from_folder(path: Path, columns: Columns, labels: _Labels, standardize: bool) -> Pool:
    frames = _read_frames(path, columns)
    owner = np.repeat(np.arange(len(frames)), [len(frame.x) for frame in frames])
    pool = replace(
        _build_pool(frames, path.resolve().name, labels, standardize),
        owner=owner,
        owner_names=[frame.path.stem for frame in frames],
    )
    warn_about_identifiers(pool, path)
    return pool


def _pool_from_table(
    path: Path, columns: Columns, natural: bool, labels: _Labels, standardize: bool
) -> Pool:
    frame = table_files.read_table_file(path, columns, required=natural)
    pool = _add_clients(_build_pool([frame], path.stem, labels, standardize), frame)
    warn_about_identifiers(pool, path)
    return pool


def _is_folder(path: Path) -> bool:
    try:
        if not path.exists():
            raise DataError(f"data.path={str(path)!r} does not exist; give a folder or a table")
        return path.is_dir()
    except OSError as error:
        raise DataError(f"data.path={str(path)!r} cannot be read: {error.strerror}") from None


def _read_frames(folder: Path, columns: Columns) -> list[Frame]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one with a file per client")
    paths = sorted(
        p
        for p in folder.iterdir()
        if p.suffix.lower() in table_files.READERS and not p.name.startswith(".") and p.is_file()
    )
    if not paths:
        raise DataError(
            f"{folder} has no {', '.join(table_files.READERS)} file; put in one per client"
        )
    stems = [p.stem for p in paths]
    repeated = [p for i, p in enumerate(paths) if p.stem in stems[:i]]
    if repeated:
        path = repeated[0]
        raise DataError(f"{path} is the second file of client {path.stem!r}; keep one")
    frames = [table_files.read_table_file(p, columns) for p in paths]
    return [frames[0], *(_match_first(frame, frames[0]) for frame in frames[1:])]


def _match_first(frame: Frame, first: Frame) -> Frame:
    """Return the frame with its columns in the order of the first; refuse frames that differ."""
    if frame.columns or first.columns:
        frame = reorder_columns(frame, first.columns, str(first.path))
    if frame.x.shape[1:] != first.x.shape[1:]:
        raise DataError(
            f"{frame.path} has examples of shape {frame.x.shape[1:]}, {first.path} of "
            f"{first.x.shape[1:]}; make them agree"
        )
    return frame


def _build_pool(frames: Sequence[Frame], name: str, labels: _Labels, standardize: bool) -> Pool:
    warn_about_index_columns(frames)
    y, label_fields = _READ[labels.target](frames, labels.classes)
    x, scale = _join_inputs(frames)
    columns = frames[0].columns
    schema = Schema(
        shape=x.shape[1:], scale=scale, feature_names=columns, target=labels.target, **label_fields
    )
    return Pool(name=name, x=x, y=y, schema=schema, standardize=standardize)


def _refuse_several_labels(frames: Sequence[Frame]) -> None:
    several = next((frame for frame in frames if frame.labels.ndim > 1), None)
    if several is not None:
        raise DataError(
            f"{several.path} has more than one label per example; one is needed (labels that are "
            "on or off: objective.name='multi-label')"
        )


def _read_classes(
    frames: Sequence[Frame], classes: int | None
) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_several_labels(frames)
    y, names = _number_classes(frames, classes)
    return y, {"classes": classes or len(names), "class_names": names}


def _read_numbers(
    frames: Sequence[Frame], classes: int | None
) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_classes(classes)
    _refuse_several_labels(frames)
    return np.concatenate([parse_label_numbers(frame) for frame in frames]), {}


def _read_labels(frames: Sequence[Frame], classes: int | None) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_classes(classes)
    width = frames[0].labels.shape[1:]
    for frame in frames:
        y = frame.labels
        if y.ndim != 2 or y.shape[1:] != width or not np.isin(y, (0, 1)).all():
            raise DataError(
                f"{frame.path}: objective.name='multi-label' needs an NPZ file whose y has a row "
                "of 0 and 1 for each example, as many as in the other files"
            )
    return np.concatenate([f.labels for f in frames]).astype(np.uint8), {"classes": width[0]}


def _refuse_classes(classes: int | None) -> None:
    if classes is not None:
        raise DataError(
            f"data.classes={classes} is for classes, which this objective does not have; leave it "
            "out"
        )


_READ = {"class": _read_classes, "number": _read_numbers, "labels": _read_labels}


def _add_clients(pool: Pool, frame: Frame) -> Pool:
    if frame.clients is None:
        return pool
    names, owner = number_words(frame.clients)
    return replace(pool, owner=owner, owner_names=names)


def _join_inputs(frames: Sequence[Frame]) -> tuple[np.ndarray, float]:
    """Return all inputs in one array, and the scale that maps images of bytes to [0, 1]."""
    images = frames[0].x.ndim > 2 and all(frame.x.dtype == np.uint8 for frame in frames)
    kind = np.uint8 if images else np.float32
    x = np.concatenate([frame.x.astype(kind, copy=False) for frame in frames])
    return x[..., None] if x.ndim == 3 else x, 1 / 255 if images else 1.0


def _number_classes(
    frames: Sequence[Frame], classes: int | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the class numbers of all examples, and the names of the classes."""
    words = np.concatenate([frame.labels for frame in frames])
    names, codes = number_words(words)
    if classes is not None:
        return _take_class_numbers(frames, names, codes, classes), ()
    numbers = [parse_number(name) for name in names]
    if None not in numbers and any(parse_integer(name) is None for name in names):
        fraction = next(name for name in names if parse_integer(name) is None)
        raise DataError(
            f"{frames[0].path} has labels such as {fraction}, which is a quantity and not a "
            "class; to predict it set objective.name='regression', else write classes as whole "
            "numbers or words"
        )
    if None not in numbers and _looks_like_quantity([int(n) for n in numbers if n], len(words)):
        raise DataError(
            f"{frames[0].path} has {len(names)} different whole numbers as labels in {len(words)} "
            f"rows ({names[0]} … {names[-1]}): that looks like a quantity; to predict it set "
            "objective.name='regression'; if they are classes, give their number with "
            "data.classes, or write them as words"
        )
    if len(names) < 2:
        raise DataError(
            f"{frames[0].path}: every label is {names[0]!r}; two classes are needed, or give "
            "their number with data.classes"
        )
    return codes.astype(np.int32), tuple(names)


def _looks_like_quantity(values: Sequence[int], rows: int) -> bool:
    """Return whether whole numbers measure something rather than name classes.

    Class numbers are few, or they have no gaps and each occurs often. The bounds are a choice: 20
    values, ten rows for each.
    """
    if len(values) <= MANY_CLASSES:
        return False
    with_gaps = max(values) - min(values) + 1 > len(values)
    return with_gaps or rows < ROWS_PER_CLASS * len(values)


def _take_class_numbers(
    frames: Sequence[Frame], names: Sequence[str], codes: np.ndarray, classes: int
) -> np.ndarray:
    numbers = [parse_integer(name) for name in names]
    wrong = [i for i, n in enumerate(numbers) if n is None or not 0 <= n < classes]
    if wrong:
        row = int(np.flatnonzero(np.isin(codes, wrong))[0])
        frame, row = _locate_row(frames, row)
        raise DataError(
            f"{frame.where(row)} has label {str(frame.labels[row])[:40]!r}; "
            f"with data.classes={classes} labels are whole numbers 0 … {classes - 1}"
        )
    return np.array(numbers, np.int32)[codes]


def _locate_row(frames: Sequence[Frame], row: int) -> tuple[Frame, int]:
    for frame in frames:
        if row < len(frame.x):
            return frame, row
        row -= len(frame.x)
    raise AssertionError("row beyond the last frame")
