"""A data set as a folder of plain arrays, written client by client and read in place.

    x.npy  y.npy  offsets.npy  train_counts.npy    the arrays of ``FederatedDataset``, NumPy format
    store.json                                     the schema, and the digest of each array

``store.json`` is written last and in one step: a folder without it is not a data set. Values are
checked while they are written, so opening reads only the headers and the two small arrays. Data
larger than memory stay on disk until a client's rows are needed. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy as np

from headstart._atomic_files import clear_write_errors, write_json
from headstart.data._digest import PIECE, ArrayCard, build_array_card, combine_digests
from headstart.data._federated import FederatedDataset, find_bad_values
from headstart.data._schema import Schema
from headstart.errors import DataError, OutputError

VERSION: Literal[1] = 1
CARD = "store.json"
ARRAYS = ("x", "y", "offsets", "train_counts")
_KINDS = {"x": "buif", "y": "ui", "offsets": "i", "train_counts": "i"}
"""Kinds of numbers that each array may hold, in NumPy's one-letter codes."""
_NUMBERS = "f"
"""Kinds of labels that are numbers to predict."""
_WRITE_AGAIN = "write the data set again or get another copy"


@dataclass(frozen=True)
class Arrays:
    """The cards of the four arrays."""

    x: ArrayCard
    y: ArrayCard
    offsets: ArrayCard
    train_counts: ArrayCard


@dataclass(frozen=True)
class StoreCard:
    """The content of ``store.json``."""

    version: Literal[1]
    description: str
    clients: int
    new_clients: int
    examples: int
    schema: Schema
    arrays: Arrays
    digest: str
    names: tuple[str, ...] | None = None
    """Absent when clients have no names."""

    @property
    def nbytes(self) -> int:
        """Size of all arrays together, in bytes."""
        return sum(getattr(self.arrays, name).nbytes for name in ARRAYS)


def is_store(folder: Path) -> bool:
    """Return whether the folder holds a data set of this form, finished or not."""
    try:
        return any((folder / name).is_file() for name in (CARD, "offsets.npy"))
    except (OSError, ValueError):
        return False


def open_store(folder: str | Path) -> FederatedDataset:
    """Open the data set in a folder; its examples stay on disk until they are used.

    This checks sizes, headers and the small arrays; :func:`verify` reads the large ones too.
    """
    folder = Path(folder)
    return _open_arrays(folder, read_card(folder))


def _open_arrays(folder: Path, card: StoreCard) -> FederatedDataset:
    mapped = {
        name: _map_array(
            folder / f"{name}.npy", getattr(card.arrays, name), _allowed_kinds(name, card.schema)
        )
        for name in ARRAYS
    }
    small = {name: np.array(mapped[name], np.int64) for name in ("offsets", "train_counts")}
    for name in small:
        _check_digest(folder / f"{name}.npy", mapped[name], getattr(card.arrays, name))
    try:
        data = FederatedDataset(
            x=mapped["x"],
            y=mapped["y"],
            **small,
            schema=card.schema,
            new_clients=card.new_clients,
            names=card.names,
            description=card.description,
            validated=True,
        )
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None
    object.__setattr__(data, "stored_digest", card.digest)
    return data


def verify(folder: str | Path) -> StoreCard:
    """Read every byte and check that each array is unchanged and every value usable."""
    folder = Path(folder)
    card = read_card(folder)
    data = _open_arrays(folder, card)
    for name in ("x", "y"):
        _check_digest(folder / f"{name}.npy", getattr(data, name), getattr(card.arrays, name))
    for problem in find_bad_values(data):
        raise DataError(f"{folder}: {problem}")
    return card


def write_store(
    folder: str | Path, data: FederatedDataset, *, written: Callable[[int], None] | None = None
) -> StoreCard:
    """Write a data set to a new folder; ``open_store(folder)`` opens it.

    ``written`` is called with the number of clients written since its last call.
    """
    with StoreWriter(
        folder,
        data.schema,
        new_clients=data.new_clients,
        names=data.names,
        description=data.description,
    ) as writer:
        for part in _iterate_parts(data):
            writer.add(part)
            if written:
                written(part.clients)
    return writer.card


class StoreWriter:
    """Writes a data set of any size, a few clients at a time, in constant memory.

    Leaving the ``with`` block completes the data set. An exception inside it removes what was
    written, and the folder as well if the writer created it.

    >>> import tempfile
    >>> from headstart.data import from_clients
    >>> two = from_clients([([[0.0]], [0], [[1.0]], [1])] * 2, Schema(shape=(1,), classes=2))
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with StoreWriter(Path(parent) / "pairs", two.schema, new_clients=1) as writer:
    ...         for _ in range(3):
    ...             writer.add(two)
    ...     open_store(Path(parent) / "pairs").clients
    6
    """

    card: StoreCard
    """Describes what was written; set once the writer is done."""

    def __init__(
        self,
        folder: str | Path,
        schema: Schema,
        *,
        new_clients: int = 0,
        names: Sequence[str] | None = None,
        description: str = "",
    ) -> None:
        self.folder, self.schema, self.new_clients = Path(folder), schema, new_clients
        self.names, self.description = names, description
        self.clients = self.examples = 0
        self._columns: dict[str, _Column] = {}
        self._created_folder = False

    def __enter__(self) -> StoreWriter:
        """Claim the folder, which must be new or empty."""
        self._created_folder = _claim_folder(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the data set, or remove what was written after an exception."""
        try:
            if kind is None:
                self.card = self._finish()
        except BaseException:
            self._discard()
            raise
        if kind is not None:
            self._discard()

    def add(self, part: FederatedDataset) -> None:
        """Append the clients of a part, which was checked when it was built.

        The part's own ``new_clients`` is ignored: the last ``new_clients`` clients of the whole
        data set, as given to the writer, are new.
        """
        if part.schema != self.schema:
            raise DataError("a part has another schema than the data set it belongs to")
        arrays = part.arrays()
        arrays["offsets"] = arrays["offsets"][1:] + self.examples
        with clear_write_errors(self.folder):
            if not self._columns:
                self._open(arrays)
            for name, column in self._columns.items():
                column.append(arrays[name])
        self.clients += part.clients
        self.examples += len(part.y)

    def _open(self, arrays: dict[str, np.ndarray]) -> None:
        for name in ARRAYS:
            array = arrays[name]
            if array.dtype.kind not in _allowed_kinds(name, self.schema):
                raise DataError(f"{name} is of type {array.dtype}, which a store cannot hold")
            self._columns[name] = _Column(self.folder / f"{name}.npy", array)
        self._columns["offsets"].append(np.zeros(1, np.int64))

    def _finish(self) -> StoreCard:
        if not 0 <= self.new_clients < self.clients:
            raise DataError(
                f"new_clients={self.new_clients} of {self.clients} clients leaves none to train on"
            )
        if self.names is not None and len(self.names) != self.clients:
            raise DataError(f"{len(self.names)} names for {self.clients} clients; give one each")
        with clear_write_errors(self.folder):
            arrays = {name: column.finish() for name, column in self._columns.items()}
        card = StoreCard(
            version=VERSION,
            description=self.description,
            clients=self.clients,
            new_clients=int(self.new_clients),
            examples=self.examples,
            schema=self.schema,
            arrays=Arrays(**arrays),
            digest=combine_digests(arrays, self.schema.to_table(), self.new_clients),
            names=None if self.names is None else tuple(map(str, self.names)),
        )
        write_json(self.folder / CARD, {k: v for k, v in asdict(card).items() if v is not None})
        return card

    def _discard(self) -> None:
        for column in self._columns.values():
            with suppress(OSError):  # closing flushes, which fails again on a full disk
                column.file.close()
        for name in ARRAYS:  # the folder was empty: the writer created all of them
            with suppress(OSError):
                (self.folder / f"{name}.npy").unlink()
        if self._created_folder:
            with suppress(OSError):
                self.folder.rmdir()


class _Column:
    """One array, written row by row; the number of rows is filled in at the end."""

    def __init__(self, path: Path, like: np.ndarray) -> None:
        self.path, self.dtype, self.tail = path, like.dtype, like.shape[1:]
        self.count, self.digest = 0, hashlib.sha256()
        self.file = path.open("xb")
        self.start = self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Append rows, which must have the type and shape of the first."""
        if rows.dtype != self.dtype or rows.shape[1:] != self.tail:
            raise DataError(
                f"{self.path.name}: a part has numbers of type {rows.dtype} and shape "
                f"{rows.shape[1:]}, the first had {self.dtype} and {self.tail}; make them alike"
            )
        content = np.ascontiguousarray(rows).data
        self.digest.update(content)
        self.file.write(content)
        self.count += len(rows)

    def finish(self) -> ArrayCard:
        """Fill in the number of rows, and wait until everything is on disk."""
        self.file.seek(0)
        assert self._write_header() == self.start, "NumPy leaves room for the number of rows"
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return ArrayCard(self.dtype.str, (self.count, *self.tail), self.digest.hexdigest())

    def _write_header(self) -> int:
        shape = (self.count, *self.tail)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.file, header)
        return self.file.tell()


def read_card(folder: Path) -> StoreCard:
    """Read ``store.json``; refuse it if its form is wrong or it was edited."""
    from pydantic import TypeAdapter

    path = folder / CARD
    try:
        content = path.read_bytes()
    except (OSError, ValueError):
        _refuse_unfinished(folder)
    try:
        card: StoreCard = TypeAdapter(StoreCard).validate_json(content)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be used: {_describe_first_error(error)}; {_WRITE_AGAIN}"
        ) from None
    arrays = {name: getattr(card.arrays, name) for name in ARRAYS}
    rows = [array.shape[:1] for array in arrays.values()]
    n, m = card.examples, card.clients
    names_fit = card.names is None or len(card.names) == m
    unchanged = combine_digests(arrays, card.schema.to_table(), card.new_clients) == card.digest
    if rows != [(n,), (n,), (m + 1,), (m,)] or not names_fit or not unchanged:
        raise DataError(f"{path} was edited or damaged: it contradicts itself; {_WRITE_AGAIN}")
    return card


def _refuse_unfinished(folder: Path) -> NoReturn:
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist or is not a folder; give one that holds {CARD}")
    if is_store(folder):
        raise DataError(
            f"{folder} holds a data set whose writing was interrupted (no readable {CARD}); "
            "remove the folder and write it again"
        )
    raise DataError(
        f"{folder} holds no {CARD}; create a data set with headstart data pack or synthetic"
    )


def _describe_first_error(error: ValueError) -> str:
    """Say where the form is wrong, without repeating a value that may be long."""
    first: Any = error.errors()[0]  # type: ignore[attr-defined]
    if first["loc"] == ("version",):
        return f"this Headstart reads version {VERSION} of the form"
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or 'the file'}: {first['msg'].splitlines()[0]}"


def _allowed_kinds(name: str, schema: Schema) -> str:
    return _NUMBERS if name == "y" and schema.target == "number" else _KINDS[name]


def _map_array(path: Path, card: ArrayCard, kinds: str) -> np.ndarray:
    """Memory-map an array whose header and file length must match the card."""
    try:
        if not path.is_file():
            raise DataError(f"{path} does not exist; {_WRITE_AGAIN}")
        # np.load(mmap_mode="r") calls this too, but also tries other formats.
        array = np.lib.format.open_memmap(path, mode="r")
        length = path.stat().st_size
    except (OSError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} cannot be used ({reason}); {_WRITE_AGAIN}") from None
    if (array.dtype.str, array.shape) != (card.dtype, card.shape) or not array.flags.c_contiguous:
        raise DataError(
            f"{path} holds {array.dtype} of shape {array.shape}, {CARD} says {card.dtype} of "
            f"{card.shape}; {_WRITE_AGAIN}"
        )
    if array.dtype.kind not in kinds:
        raise DataError(
            f"{path} holds {array.dtype}, which is not a type for {path.stem}; {_WRITE_AGAIN}"
        )
    if length != array.offset + array.nbytes:
        raise DataError(
            f"{path} has {length} bytes, not {array.offset + array.nbytes}; {_WRITE_AGAIN}"
        )
    return array


def _check_digest(path: Path, array: np.ndarray, card: ArrayCard) -> None:
    if build_array_card(array).sha256 != card.sha256:
        raise DataError(f"{path} is not what was written: its digest differs; {_WRITE_AGAIN}")


def _iterate_parts(data: FederatedDataset) -> Iterator[FederatedDataset]:
    """Yield all clients, as many at a time as fit into a piece, but at least one."""
    row = data.x.nbytes // len(data.x)
    first = 0
    while first < data.clients:
        reach = int(data.offsets[first]) + PIECE // max(1, row)
        last = int(np.searchsorted(data.offsets, reach, side="right")) - 1
        last = min(max(last, first + 1), data.clients)
        yield data.part(first, last)
        first = last


def refuse_taken(folder: Path) -> None:
    """Refuse a folder that is not new or empty; nothing is ever overwritten."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; choose a folder with --out")
    with clear_write_errors(folder):
        existing = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if not existing:
        return
    if CARD in existing:
        raise OutputError(f"{folder} already holds a data set; choose another folder with --out")
    if is_store(folder):
        raise OutputError(
            f"{folder} holds a data set whose writing was interrupted; remove it, or choose "
            "another folder with --out"
        )
    raise OutputError(f"{folder} already holds other files; choose another folder with --out")


def _claim_folder(folder: Path) -> bool:
    """Create the folder if needed, and return whether it was created."""
    refuse_taken(folder)
    with clear_write_errors(folder):
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    return is_new
