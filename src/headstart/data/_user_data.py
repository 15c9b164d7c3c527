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
    """One CSV, TSV, Parquet or NPZ file per client; a client's name is its file's, less the ending.

    Columns may stand in any order but must have the same names everywhere. All but the label are
    learned from, or those in ``features``, or all but those in ``drop``. Labels are words or
    whole numbers, numbered in sorted order over all clients, or with ``classes`` taken as they are.
    With ``target="number"`` they are numbers to predict, which ``standardize`` scales as well; with
    ``target="labels"`` an NPZ file's y has a row of 0 and 1 for each example.
    """
    columns = Columns(label, None, tuple(features), tuple(drop))
    return _folder_pool(Path(path), columns, _Labels(target, classes), standardize)


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
    """One table for all clients, with a column that says whose each row is."""
    columns = Columns(label, client, tuple(features), tuple(drop))
    return _table_pool(Path(path), columns, True, _Labels(target, classes), standardize)


def read_path(
    path: Path,
    columns: Columns,
    *,
    natural: bool = True,
    classes: int | None = None,
    standardize: bool = False,
    target: Target = "class",
) -> Pool:
    """A folder or a table, whichever the path is; a client column is needed for natural clients."""
    labels = _Labels(target, classes)
    if _is_folder(path):
        return _folder_pool(path, replace(columns, client=None), labels, standardize)
    return _table_pool(path, columns, natural, labels, standardize)


class _Labels(NamedTuple):
    """What labels are, and how many classes there are if the user says so."""

    target: Target
    classes: int | None


def _folder_pool(path: Path, columns: Columns, labels: _Labels, standardize: bool) -> Pool:
    read = _frames_of(path, columns)
    owner = np.repeat(np.arange(len(read)), [len(frame.x) for frame in read])
    pool = replace(
        _pool(read, path.resolve().name, labels, standardize),
        owner=owner,
        owner_names=[frame.path.stem for frame in read],
    )
    warn_about_identifiers(pool, path)
    return pool


def _table_pool(
    path: Path, columns: Columns, natural: bool, labels: _Labels, standardize: bool
) -> Pool:
    frame = table_files.read_table_file(path, columns, required=natural)
    pool = _with_clients(_pool([frame], path.stem, labels, standardize), frame)
    warn_about_identifiers(pool, path)
    return pool


def _is_folder(path: Path) -> bool:
    try:
        if not path.exists():
            raise DataError(f"data.path={str(path)!r} does not exist; give a folder or a table")
        return path.is_dir()
    except OSError as error:
        raise DataError(f"data.path={str(path)!r} cannot be read: {error.strerror}") from None


def _frames_of(folder: Path, columns: Columns) -> list[Frame]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one with a file per client")
    kept = sorted(
        p
        for p in folder.iterdir()
        if p.suffix.lower() in table_files.READERS and not p.name.startswith(".") and p.is_file()
    )
    if not kept:
        raise DataError(
            f"{folder} has no {', '.join(table_files.READERS)} file; put in one per client"
        )
    stems = [p.stem for p in kept]
    twice = [p for i, p in enumerate(kept) if p.stem in stems[:i]]
    if twice:
        raise DataError(f"{twice[0]} is the second file of client {twice[0].stem!r}; keep one")
    read = [table_files.read_table_file(p, columns) for p in kept]
    return [read[0], *(_agreeing(frame, read[0]) for frame in read[1:])]


def _agreeing(frame: Frame, first: Frame) -> Frame:
    """The frame with its columns as in the first, or a line that says where they differ."""
    if frame.columns or first.columns:
        frame = reorder_columns(frame, first.columns, str(first.path))
    if frame.x.shape[1:] != first.x.shape[1:]:
        raise DataError(
            f"{frame.path} has examples of shape {frame.x.shape[1:]}, {first.path} of "
            f"{first.x.shape[1:]}; make them agree"
        )
    return frame


def _pool(read: Sequence[Frame], name: str, labels: _Labels, standardize: bool) -> Pool:
    warn_about_index_columns(read)
    y, about = _READ[labels.target](read, labels.classes)
    x, scale = _joined(read)
    columns = read[0].columns
    schema = Schema(
        shape=x.shape[1:], scale=scale, feature_names=columns, target=labels.target, **about
    )
    return Pool(name=name, x=x, y=y, schema=schema, standardize=standardize)


def _refuse_several(read: Sequence[Frame]) -> None:
    several = next((frame for frame in read if frame.labels.ndim > 1), None)
    if several is not None:
        raise DataError(
            f"{several.path} has more than one label per example; one is needed (labels that are "
            "on or off: objective.name='multi-label')"
        )


def _read_classes(read: Sequence[Frame], classes: int | None) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_several(read)
    y, names = _classes(read, classes)
    return y, {"classes": classes or len(names), "class_names": names}


def _read_numbers(read: Sequence[Frame], classes: int | None) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_classes(classes)
    _refuse_several(read)
    return np.concatenate([parse_label_numbers(frame) for frame in read]), {}


def _read_labels(read: Sequence[Frame], classes: int | None) -> tuple[np.ndarray, dict[str, Any]]:
    _refuse_classes(classes)
    width = read[0].labels.shape[1:]
    for frame in read:
        y = frame.labels
        if y.ndim != 2 or y.shape[1:] != width or not np.isin(y, (0, 1)).all():
            raise DataError(
                f"{frame.path}: objective.name='multi-label' needs an NPZ file whose y has a row "
                "of 0 and 1 for each example, as many as in the other files"
            )
    return np.concatenate([f.labels for f in read]).astype(np.uint8), {"classes": width[0]}


def _refuse_classes(classes: int | None) -> None:
    if classes is not None:
        raise DataError(
            f"data.classes={classes} is for classes, which this objective does not have; leave it "
            "out"
        )


_READ = {"class": _read_classes, "number": _read_numbers, "labels": _read_labels}


def _with_clients(pool: Pool, frame: Frame) -> Pool:
    if frame.clients is None:
        return pool
    names, owner = number_words(frame.clients)
    return replace(pool, owner=owner, owner_names=names)


def _joined(read: Sequence[Frame]) -> tuple[np.ndarray, float]:
    """All examples in one array, and the scale that brings images of bytes to [0, 1]."""
    images = read[0].x.ndim > 2 and all(frame.x.dtype == np.uint8 for frame in read)
    kind = np.uint8 if images else np.float32
    x = np.concatenate([frame.x.astype(kind, copy=False) for frame in read])
    return x[..., None] if x.ndim == 3 else x, 1 / 255 if images else 1.0


def _classes(read: Sequence[Frame], classes: int | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class numbers of all examples, and the names they stand for."""
    words = np.concatenate([frame.labels for frame in read])
    names, codes = number_words(words)
    if classes is not None:
        return _as_given(read, names, codes, classes), ()
    figures = [parse_number(name) for name in names]
    if None not in figures and any(parse_integer(name) is None for name in names):
        odd = next(name for name in names if parse_integer(name) is None)
        raise DataError(
            f"{read[0].path} has labels such as {odd}, which is a quantity and not a class; to "
            "predict it set objective.name='regression', else write classes as whole numbers or "
            "words"
        )
    if None not in figures and _looks_like_quantity([int(f) for f in figures if f], len(words)):
        raise DataError(
            f"{read[0].path} has {len(names)} different whole numbers as labels in {len(words)} "
            f"rows ({names[0]} … {names[-1]}): that looks like a quantity; to predict it set "
            "objective.name='regression'; if they are classes, say how many with data.classes, or "
            "write them as words"
        )
    if len(names) < 2:
        raise DataError(
            f"{read[0].path}: every label is {names[0]!r}; two classes are needed, or say how "
            "many there are with data.classes"
        )
    return codes.astype(np.int32), tuple(names)


def _looks_like_quantity(values: Sequence[int], rows: int) -> bool:
    """Whether whole numbers measure something rather than name classes.

    Names of classes are few, or all of them are used and each often. The bounds are a choice: 20
    values, ten rows for each.
    """
    if len(values) <= MANY_CLASSES:
        return False
    with_gaps = max(values) - min(values) + 1 > len(values)
    return with_gaps or rows < ROWS_PER_CLASS * len(values)


def _as_given(
    read: Sequence[Frame], names: Sequence[str], codes: np.ndarray, classes: int
) -> np.ndarray:
    numbers = [parse_integer(name) for name in names]
    wrong = [i for i, n in enumerate(numbers) if n is None or not 0 <= n < classes]
    if wrong:
        row = int(np.flatnonzero(np.isin(codes, wrong))[0])
        frame, row = _frame_of(read, row)
        raise DataError(
            f"{frame.where(row)} has label {str(frame.labels[row])[:40]!r}; "
            f"with data.classes={classes} labels are whole numbers 0 … {classes - 1}"
        )
    return np.array(numbers, np.int32)[codes]


def _frame_of(read: Sequence[Frame], row: int) -> tuple[Frame, int]:
    for frame in read:
        if row < len(frame.x):
            return frame, row
        row -= len(frame.x)
    raise AssertionError("row beyond the last frame")
