"""Read and check one file of the user's own data: CSV, TSV, Parquet or NPZ.

Every problem is reported in one line that names the file and, where possible, the line and column.
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
"""Names that pandas gives a row index in a file; an empty name is one of them."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are used, and their roles."""

    label: str | None = "label"
    """None if labels are not needed."""
    client: str | None = None
    """The column that names the client of each row, if there is one."""
    features: tuple[str, ...] = ()
    """The columns to learn from, in this order; if empty, all remaining columns."""
    drop: tuple[str, ...] = ()
    """Columns to leave out; each must exist."""
    ignore: tuple[str, ...] = ()
    """Columns to leave out if they exist."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The examples of one file, before labels become classes."""

    path: Path
    columns: tuple[str, ...]
    """Names of the features; empty for NPZ."""
    x: np.ndarray
    labels: np.ndarray
    """Text, one per example (numbers too); for a text, whole numbers, one per position."""
    clients: np.ndarray | None = None
    lines: Sequence[int] | None = None
    indices: tuple[str, ...] = ()
    """Columns that were left out because they are row indices."""

    def where(self, row: int) -> str:
        """Return the file and the line or number of an example, for messages."""
        return f"{self.path} " + (
            f"example {row}" if self.lines is None else f"line {self.lines[row]}"
        )


def read_table_file(path: Path, columns: Columns, *, required: bool = True) -> Frame:
    """Read and check one file; the client column may be absent if it is not ``required``."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise DataError(f"{path} is not one of {', '.join(READERS)}; convert it to one of these")
    try:
        frame = READERS[suffix](path, columns)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or 'damaged'}") from None
    if columns.client is not None and required and frame.clients is None:
        raise DataError(
            f"{path} has no column {columns.client!r}; set data.client to the column that names "
            "the client of each row"
        )
    if not len(frame.x):
        raise DataError(f"{path} has no examples; remove it or add rows")
    if 0 in frame.x.shape:
        raise DataError(f"{path} has no feature besides {columns.label!r}; add columns")
    return _check_values(frame)


def warn_about_index_columns(frames: Sequence[Frame]) -> None:
    """Warn in one line about row indices that were left out of these files."""
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


def _choose_features(
    path: Path, header: Sequence[str], columns: Columns, indices: Sequence[str] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns to learn from, and those left out as row indices."""
    not_features = (columns.label, columns.client)
    for option, names in (("features", columns.features), ("drop", columns.drop)):
        unknown = [name for name in names if name not in header]
        if unknown:
            raise DataError(
                f"{path} has no column {unknown[0]!r}, which data.{option} names; "
                f"it has {_list_names(header)}"
            )
    contradictory = [
        name for name in columns.features if name in not_features or name in columns.drop
    ]
    if contradictory:
        raise DataError(
            f"data.features names {contradictory[0]!r}, which is the label, the client or dropped; "
            "remove it from the list"
        )
    if columns.features:
        return list(columns.features), ()
    excluded = (*not_features, *columns.drop, *columns.ignore)
    remaining = [name for name in header if name not in excluded]
    row_indices = [name for name in remaining if name in indices or _INDEX_NAME.fullmatch(name)]
    features = [name for name in remaining if name not in row_indices]
    return features, tuple(dict.fromkeys(row_indices))


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def reorder_columns(frame: Frame, columns: Sequence[str], other: str) -> Frame:
    """Return the frame with its columns in this order; refuse missing and extra columns."""
    missing = [name for name in columns if name not in frame.columns]
    extra = [name for name in frame.columns if name not in columns]
    if missing:
        raise DataError(f"{frame.path} has no column {missing[0]!r}, which {other} has")
    if extra:
        raise DataError(f"{frame.path} has a column {extra[0]!r}, which {other} does not have")
    if tuple(columns) == frame.columns:
        return frame
    order = [frame.columns.index(name) for name in columns]
    return replace(frame, columns=tuple(columns), x=frame.x[:, order])


def _check_values(frame: Frame) -> Frame:
    """Return the frame; refuse empty labels and features that are not finite numbers."""
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
    header, rows, lines = _read_csv_rows(path)
    _check_header(path, header, columns.label)
    names, indices = _choose_features(path, header, columns)
    keep = [header.index(name) for name in names]

    def words(name: str) -> np.ndarray:
        place = header.index(name)
        return np.array([row[place] for row in rows], dtype=np.str_)

    return Frame(
        path=path,
        columns=tuple(names),
        x=_parse_cells(path, [[row[i] for i in keep] for row in rows], header, keep, lines),
        labels=words(columns.label) if columns.label else _placeholder_labels(len(rows)),
        clients=words(columns.client) if columns.client in header and columns.client else None,
        lines=lines,
        indices=indices,
    )


def _read_csv_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Return header, rows and their line numbers; refuse rows not as long as the header."""
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


def _placeholder_labels(rows: int) -> np.ndarray:
    return np.full(rows, "0", dtype=np.str_)


def _check_header(path: Path, header: Sequence[str], label: str | None) -> None:
    if not header:
        raise DataError(f"{path} is empty; its first line must name the columns")
    repeated = [name for i, name in enumerate(header) if name and name in header[:i]]
    if repeated:
        raise DataError(f"{path} has two columns {repeated[0]!r}; rename one")
    if label is not None and label not in header:
        raise DataError(
            f"{path} has no column {label!r}; set data.label to the column with the labels "
            f"(it has {_list_names(header)})"
        )


def _parse_cells(
    path: Path,
    cells: list[list[str]],
    header: Sequence[str],
    keep: Sequence[int],
    lines: Sequence[int],
) -> np.ndarray:
    """Convert cells to 32-bit numbers; search for the bad cell only if that fails."""
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
    table = _read_parquet_table(path)
    header = [str(name) for name in table.column_names]
    _check_header(path, header, columns.label)
    names, indices = _choose_features(path, header, columns, _find_pandas_index(table))
    x = np.empty((table.num_rows, len(names)), np.float32)
    for i, name in enumerate(names):
        x[:, i] = _convert_parquet_column(path, name, table.column(name))
    client = columns.client if columns.client in header else None
    return Frame(
        path=path,
        columns=tuple(names),
        x=x,
        labels=_to_text(table.column(columns.label).to_pylist())
        if columns.label
        else _placeholder_labels(table.num_rows),
        clients=_to_text(table.column(client).to_pylist()) if client else None,
        indices=indices,
    )


def _find_pandas_index(table: Any) -> list[str]:
    """Return the columns that were a data frame's index, from pandas' notes in the file."""
    pandas_notes = (table.schema.metadata or {}).get(b"pandas", b"{}")
    try:
        entries = json.loads(pandas_notes).get("index_columns", [])
    except (ValueError, AttributeError):
        return []
    return [entry for entry in entries if isinstance(entry, str)]


def _read_parquet_table(path: Path) -> Any:
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
    except Exception as error:  # pyarrow raises many kinds of errors for a damaged file
        reason = (str(error).splitlines() or ["damaged"])[0][:120]
        raise DataError(f"{path} is not a Parquet file that can be read: {reason}") from None


def _convert_parquet_column(path: Path, name: str, column: Any) -> np.ndarray:
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
    arrays = _read_npz_arrays(path)
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
    clients = None if owners is None else _to_text(owners.tolist())
    return Frame(path, (), _convert_npz_inputs(path, x), _convert_npz_labels(path, y), clients)


def _read_npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of the file; refuse pickles, which could run code."""
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
        if "pickle" in reason:  # NumPy's message would suggest loading it unsafely
            reason = "it is not an archive of plain arrays"
        raise DataError(
            f"{path} is not an NPZ file that can be read: {reason}; "
            "make one with numpy.savez(file, x=…, y=…)"
        ) from None


def _convert_npz_inputs(path: Path, x: np.ndarray) -> np.ndarray:
    """Return bytes (images) unchanged and all other numbers as 32-bit floats."""
    if x.dtype.kind not in "buif":
        raise DataError(f"{path} has x of type {x.dtype}; numbers are needed")
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _convert_npz_labels(path: Path, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "buifU" or (y.ndim > 1 and y.dtype.kind not in "bui"):
        raise DataError(f"{path} has y of type {y.dtype}; whole numbers or words are needed")
    return _to_text(y.tolist()) if y.ndim == 1 else y.astype(np.int64)


def _to_text(values: Sequence[Any]) -> np.ndarray:
    """Return the values as text; a missing value becomes an empty text."""
    return np.array(["" if v is None else str(v) for v in values], dtype=np.str_)


READERS: dict[str, Callable[[Path, Columns], Frame]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
