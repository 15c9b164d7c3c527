"""One file of the user's own data, read and checked: CSV, TSV, Parquet or NPZ.

Whatever is wrong with a file ends in one line that names the file, and the line and column where
there are such.
"""

from __future__ import annotations

import csv
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import DataError, DataWarning

_FINITE = "fill or remove missing values first"
_INDEX_NAME = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""How pandas names a row index in a file: not at all, or like this."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are used, and for what."""

    label: str | None = "label"
    """None: there need be no labels."""
    client: str | None = None
    """The column that says whose each row is, if there is one."""
    features: tuple[str, ...] = ()
    """The columns to learn from, in this order; empty: all that are left."""
    drop: tuple[str, ...] = ()
    """Columns to leave out; each must be there."""
    ignore: tuple[str, ...] = ()
    """Columns to leave out if they are there."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The examples of one file, before labels become classes."""

    path: Path
    columns: tuple[str, ...]
    """Names of the features; empty for NPZ."""
    x: np.ndarray
    labels: np.ndarray
    """Words (or numbers as words), one per example; whole numbers, one per position, for text."""
    clients: np.ndarray | None = None
    lines: Sequence[int] | None = None
    indices: tuple[str, ...] = ()
    """Columns that were left out because they are row indices."""

    def where(self, row: int) -> str:
        """The file and the place of an example in it, for messages."""
        return f"{self.path} " + (
            f"example {row}" if self.lines is None else f"line {self.lines[row]}"
        )


def read_table_file(path: Path, columns: Columns, *, required: bool = True) -> Frame:
    """One file; a client column that is not ``required`` may be absent."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise DataError(f"{path} is not one of {', '.join(READERS)}; convert it to one of these")
    try:
        frame = READERS[suffix](path, columns)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or 'damaged'}") from None
    if columns.client is not None and required and frame.clients is None:
        raise DataError(
            f"{path} has no column {columns.client!r}; name the one that says whose each row is "
            "with data.client"
        )
    if not len(frame.x):
        raise DataError(f"{path} has no example; remove it or add rows")
    if 0 in frame.x.shape:
        raise DataError(f"{path} has no feature beside {columns.label!r}; add columns")
    return _checked(frame)


def warn_about_index_columns(frames: Sequence[Frame]) -> None:
    """One line for the row indices that were left out of these files, if any."""
    names = list(dict.fromkeys(name for frame in frames for name in frame.indices))
    if names:
        first = next(frame.path for frame in frames if frame.indices)
        others = sum(bool(frame.indices) for frame in frames) - 1
        where = f"{first}" + (f" and {others} more" if others else "")
        shown = ", ".join(repr(name) if name else "without a name" for name in names)
        warnings.warn(
            f"{where}: column {shown} is a row index, not a feature, and is left out "
            "(write tables with index=False)",
            DataWarning,
            stacklevel=3,
        )


def _chosen_features(
    path: Path, header: Sequence[str], columns: Columns, indices: Sequence[str] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """The columns to learn from, and those that were left out as row indices."""
    aside = (columns.label, columns.client)
    for option, names in (("features", columns.features), ("drop", columns.drop)):
        unknown = [name for name in names if name not in header]
        if unknown:
            raise DataError(
                f"{path} has no column {unknown[0]!r}, which data.{option} names; "
                f"it has {_shown(header)}"
            )
    taken = [name for name in columns.features if name in aside or name in columns.drop]
    if taken:
        raise DataError(
            f"data.features names {taken[0]!r}, which is the label, the client or dropped; "
            "take it out"
        )
    if columns.features:
        return list(columns.features), ()
    out = (*aside, *columns.drop, *columns.ignore)
    left = [name for name in header if name not in out]
    found = [name for name in left if name in indices or _INDEX_NAME.fullmatch(name)]
    return [name for name in left if name not in found], tuple(dict.fromkeys(found))


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def reorder_columns(frame: Frame, columns: Sequence[str], other: str) -> Frame:
    """The frame with its columns in this order, or a line that says which are too few or many."""
    missing = [name for name in columns if name not in frame.columns]
    strange = [name for name in frame.columns if name not in columns]
    if missing:
        raise DataError(f"{frame.path} has no column {missing[0]!r}, which {other} has")
    if strange:
        raise DataError(f"{frame.path} has a column {strange[0]!r}, which {other} has not")
    if tuple(columns) == frame.columns:
        return frame
    order = [frame.columns.index(name) for name in columns]
    return replace(frame, columns=tuple(columns), x=frame.x[:, order])


def _checked(frame: Frame) -> Frame:
    """Refuse empty labels and features that are not finite numbers."""
    for what, words in (("label", frame.labels), ("client", frame.clients)):
        if words is None or words.ndim > 1:
            continue
        empty = np.flatnonzero(np.strings.str_len(np.strings.strip(words)) == 0)
        if len(empty):
            raise DataError(f"{frame.where(int(empty[0]))} has an empty {what}; fill or remove it")
    if not np.issubdtype(frame.x.dtype, np.floating):
        return frame
    bad = np.argwhere(~np.isfinite(frame.x))
    if len(bad):
        row, column = int(bad[0][0]), int(bad[0][1]) if len(bad[0]) > 1 else 0
        named = f" column {frame.columns[column]!r}" if frame.columns else ""
        raise DataError(
            f"{frame.where(row)}{named} is not a finite number that fits 32 bits; {_FINITE}"
        )
    return frame


def _read_csv(path: Path, columns: Columns) -> Frame:
    header, rows, lines = _csv_rows(path)
    _check_header(path, header, columns.label)
    names, indices = _chosen_features(path, header, columns)
    keep = [header.index(name) for name in names]

    def words(name: str) -> np.ndarray:
        place = header.index(name)
        return np.array([row[place] for row in rows], dtype=np.str_)

    return Frame(
        path=path,
        columns=tuple(names),
        x=_numbers(path, [[row[i] for i in keep] for row in rows], header, keep, lines),
        labels=words(columns.label) if columns.label else _no_labels(len(rows)),
        clients=words(columns.client) if columns.client in header and columns.client else None,
        lines=lines,
        indices=indices,
    )


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows and their line numbers; every row as long as the header."""
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(
                        f"{path} line {reader.line_num} has {len(row)} cells, "
                        f"the header {len(header)}; make them agree"
                    )
                rows.append(row)
                lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"{path} is not a text table in UTF-8; save it as CSV again") from None
    return header, rows, lines


def _no_labels(rows: int) -> np.ndarray:
    return np.full(rows, "0", dtype=np.str_)


def _check_header(path: Path, header: Sequence[str], label: str | None) -> None:
    if not header:
        raise DataError(f"{path} is empty; it needs a first line with the names of the columns")
    twice = [name for i, name in enumerate(header) if name and name in header[:i]]
    if twice:
        raise DataError(f"{path} has two columns {twice[0]!r}; rename one")
    if label is not None and label not in header:
        raise DataError(
            f"{path} has no column {label!r}; name the one with the labels with data.label "
            f"(it has {_shown(header)})"
        )


def _numbers(
    path: Path,
    cells: list[list[str]],
    header: Sequence[str],
    keep: Sequence[int],
    lines: Sequence[int],
) -> np.ndarray:
    """Cells as 32-bit numbers; the slow search only runs when there is something to find."""
    with np.errstate(over="ignore"):
        try:
            return np.array(cells, np.float64).reshape(len(cells), len(keep)).astype(np.float32)
        except ValueError:
            for row, line in zip(cells, lines, strict=True):
                for cell, i in zip(row, keep, strict=True):
                    if not _is_number(cell):
                        raise DataError(
                            f"{path} line {line} column {header[i]!r} is {cell[:40]!r}, "
                            f"not a number; {_FINITE}, or leave the column out with data.drop"
                        ) from None
            raise DataError(f"{path} has cells that are not numbers; {_FINITE}") from None


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _read_parquet(path: Path, columns: Columns) -> Frame:
    table = _parquet_table(path)
    header = [str(name) for name in table.column_names]
    _check_header(path, header, columns.label)
    names, indices = _chosen_features(path, header, columns, _pandas_index(table))
    x = np.empty((table.num_rows, len(names)), np.float32)
    for i, name in enumerate(names):
        x[:, i] = _parquet_numbers(path, name, table.column(name))
    client = columns.client if columns.client in header else None
    return Frame(
        path=path,
        columns=tuple(names),
        x=x,
        labels=_words(table.column(columns.label).to_pylist())
        if columns.label
        else _no_labels(table.num_rows),
        clients=_words(table.column(client).to_pylist()) if client else None,
        indices=indices,
    )


def _pandas_index(table: Any) -> list[str]:
    """The columns that were a data frame's index, as pandas notes it in the file."""
    noted = (table.schema.metadata or {}).get(b"pandas", b"{}")
    try:
        entries = json.loads(noted).get("index_columns", [])
    except (ValueError, AttributeError):
        return []
    return [entry for entry in entries if isinstance(entry, str)]


def _parquet_table(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f'{path} needs pyarrow: pip install "headstart[parquet]", or save it as CSV'
        ) from None
    try:
        return parquet.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise
    except Exception as error:  # pyarrow has many ways to say that a file is damaged
        reason = (str(error).splitlines() or ["damaged"])[0][:120]
        raise DataError(f"{path} is not a Parquet file that can be read: {reason}") from None


def _parquet_numbers(path: Path, name: str, column: Any) -> np.ndarray:
    from pyarrow import types

    if column.null_count:
        raise DataError(f"{path} column {name!r} has {column.null_count} empty cells; {_FINITE}")
    kind = column.type
    if types.is_temporal(kind) or types.is_dictionary(kind):
        raise DataError(
            f"{path} column {name!r} holds {kind}, not numbers; leave it out with data.drop, or "
            "turn it into numbers"
        )
    try:
        with np.errstate(over="ignore"):
            return np.asarray(column.to_numpy(), dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"{path} column {name!r} holds {kind}, not numbers; "
            "leave it out with data.drop, or turn it into numbers"
        ) from None


def _read_npz(path: Path, columns: Columns) -> Frame:
    client = columns.client
    for option in ("features", "drop"):
        if getattr(columns, option):
            raise DataError(f"{path} has no named columns; leave out data.{option}")
    arrays = _npz_arrays(path)
    if columns.label is None and "x" in arrays:
        arrays["y"] = np.zeros(len(arrays["x"]), np.int64)
    for name in ("x", "y"):
        if name not in arrays:
            raise DataError(f"{path} has no array {name!r}; an NPZ file needs x and y")
    x, y = arrays["x"], arrays["y"]
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise DataError(
            f"{path} has x of shape {x.shape} and y of shape {y.shape}; "
            "both need one row per example"
        )
    owners = None if client is None else arrays.get(client)
    if owners is not None and owners.shape != (len(x),):
        raise DataError(f"{path} has {client!r} of shape {owners.shape}, not one per example")
    clients = None if owners is None else _words(owners.tolist())
    return Frame(path, (), _npz_numbers(path, x), _npz_labels(path, y), clients)


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the file; pickles are refused, since they could run code."""
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise DataError(f"{path} holds one array, not x and y; save it with numpy.savez")
            return {name: loaded[name] for name in loaded.files}
    except (DataError, FileNotFoundError):
        raise
    except Exception as error:  # zip, zlib, header and memory errors all mean the same here
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        if "pickle" in reason:  # NumPy would now advise to load it unsafely
            reason = "it is not an archive of plain arrays"
        raise DataError(
            f"{path} is not an NPZ file that can be read: {reason}; "
            "make one with numpy.savez(file, x=…, y=…)"
        ) from None


def _npz_numbers(path: Path, x: np.ndarray) -> np.ndarray:
    """Images of bytes stay bytes, whole numbers whole; all else becomes 32-bit numbers."""
    if x.dtype.kind not in "buif":
        raise DataError(f"{path} has x of type {x.dtype}; numbers are needed")
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _npz_labels(path: Path, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "buifU" or (y.ndim > 1 and y.dtype.kind not in "bui"):
        raise DataError(f"{path} has y of type {y.dtype}; whole numbers or words are needed")
    return _words(y.tolist()) if y.ndim == 1 else y.astype(np.int64)


def _words(values: Sequence[Any]) -> np.ndarray:
    """Values as text; a missing one is empty."""
    return np.array(["" if v is None else str(v) for v in values], dtype=np.str_)


READERS: dict[str, Callable[[Path, Columns], Frame]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
