"""What crosses the line between server and site, and in which form.

A parcel is a text (JSON) and named arrays, laid end to end. Flower carries it as one array of
bytes; between the ClientApp's process and the site's worker it goes through a local socket.
Arrays are NPY bytes, read without pickle. What a message announces (lengths, shapes, nesting) is
checked before anything is allocated for it. Light on purpose: no JAX here.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from headstart.errors import DataError

PROTOCOL = 2
"""Goes up when orders or answers change: server and sites must speak the same."""
PARCEL = "parcel"
LENGTH = struct.Struct(">QQ")
DEPTH = 32
"""The deepest nesting of a parcel's text; ours have six levels."""
NPY_HEADER = 1000
"""The longest header of an array, in bytes; NumPy's own are 128 long."""
NUMBERS = "biufc"
"""The kinds of numbers an array may hold, as NumPy abbreviates them."""


class Bounds(NamedTuple):
    """The most that the reader of a parcel accepts."""

    text: int = 1 << 26
    """Bytes of the text with the index."""
    arrays: int = 100_000
    """How many arrays."""
    body: int = 1 << 40
    """Bytes of all arrays together."""


ORDER_BOUNDS = Bounds()
"""For orders, which come from a server the site trusts: against damage only."""


class Parcel(NamedTuple):
    """A text and named arrays, the latter still as NPY bytes."""

    text: dict[str, Any]
    arrays: dict[str, bytes]

    @property
    def size(self) -> int:
        """Bytes of content."""
        return len(_dumped(self.text)) + sum(map(len, self.arrays.values()))


def parcel(text: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Parcel:
    """A parcel with these arrays."""
    return Parcel(dict(text), {name: to_bytes(array) for name, array in tensors.items()})


def tensors(parcel: Parcel) -> dict[str, np.ndarray]:
    """The arrays of a parcel, or one clear line if they are none."""
    return {name: from_bytes(content) for name, content in parcel.arrays.items()}


def to_bytes(array: np.ndarray) -> bytes:
    """NPY."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def from_bytes(content: bytes) -> np.ndarray:
    """From NPY; the header must announce exactly the numbers that follow it."""
    stream = io.BytesIO(content)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("it is not NPY version 1.0")
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream, NPY_HEADER)
        _refuse_header(shape, dtype, len(content) - stream.tell())
        numbers = np.frombuffer(content, dtype, math.prod(shape), stream.tell())
        return numbers.reshape(shape, order="F" if by_column else "C")
    except (ValueError, TypeError, OverflowError, OSError, EOFError) as error:
        raise DataError(f"an array that was received cannot be read: {error}") from None


def _refuse_header(shape: tuple[int, ...], dtype: np.dtype[Any], present: int) -> None:
    if dtype.kind not in NUMBERS:
        raise ValueError(f"it holds {dtype}, not numbers")
    announced = math.prod(shape) * dtype.itemsize
    if min(shape, default=1) < 0 or announced != present:
        raise ValueError(f"its header announces {announced} bytes; {present} follow")


def to_records(parcel: Parcel) -> RecordDict:
    """As Flower carries it: one array of bytes.

    Flower moves every array of a message with requests of its own, there and back: one array
    instead of seven means fewer of them.
    """
    content = np.frombuffer(to_stream(parcel), np.uint8)
    return RecordDict({PARCEL: array_record({PARCEL: content})})


def array_record(tensors: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Named arrays as Flower has them."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in tensors.items()})


def from_records(records: RecordDict, bounds: Bounds = ORDER_BOUNDS) -> Parcel:
    """From Flower's records; DataError if they are not ours."""
    try:
        record = records.array_records[PARCEL][PARCEL]
    except KeyError:
        raise _not_a_parcel("it has no such record") from None
    content = from_bytes(record.data)
    if content.dtype != np.uint8 or content.ndim != 1:
        raise _not_a_parcel(f"it holds {content.dtype}{content.shape}, not bytes")
    return from_stream(_reader(content.data), bounds)


def _not_a_parcel(why: str) -> DataError:
    return DataError(f"its message is not a parcel: {why}")


def _reader(content: bytes | memoryview) -> Callable[[int], bytes]:
    place = 0

    def read(count: int) -> bytes:
        nonlocal place
        if not 0 <= count <= len(content) - place:
            raise _not_a_parcel("it is shorter than it says")
        place += count
        return bytes(content[place - count : place])

    return read


def to_stream(parcel: Parcel) -> bytes:
    """For a socket: two lengths, the index with the text, then all arrays."""
    index = _dumped([parcel.text, [[name, len(data)] for name, data in parcel.arrays.items()]])
    body = b"".join(parcel.arrays.values())
    return LENGTH.pack(len(index), len(body)) + index + body


def from_stream(read: Callable[[int], bytes], bounds: Bounds = ORDER_BOUNDS) -> Parcel:
    """What :func:`to_stream` wrote, from ``read(count)``, which must give that many bytes."""
    index_length, body_length = LENGTH.unpack(read(LENGTH.size))
    if index_length > bounds.text or body_length > bounds.body:
        raise _not_a_parcel(
            f"it announces {index_length} + {body_length} bytes; "
            f"at most {bounds.text} + {bounds.body} are expected"
        )
    text, lengths = _index(read(index_length), bounds)
    if sum(lengths.values()) != body_length:
        raise _not_a_parcel("its arrays do not have the length it announces")
    body = _reader(read(body_length))
    return Parcel(text, {name: body(length) for name, length in lengths.items()})


def _index(content: bytes, bounds: Bounds) -> tuple[dict[str, Any], dict[str, int]]:
    """The text, and the length of every array."""
    if _depth(content) > DEPTH:
        raise _not_a_parcel(f"its text is nested more than {DEPTH} levels deep")
    try:
        text, entries = json.loads(content.decode())
        lengths = dict(entries)
    except (ValueError, TypeError) as error:
        raise _not_a_parcel(f"its text cannot be read ({type(error).__name__})") from None
    if not isinstance(text, dict) or not isinstance(entries, list):
        raise _not_a_parcel("its text is not a table and a list")
    if len(entries) > bounds.arrays:
        raise _not_a_parcel(f"it has {len(entries)} arrays; at most {bounds.arrays} are expected")
    if len(lengths) < len(entries) or not all(map(_is_entry, lengths.items())):
        raise _not_a_parcel("its index is not a list of names and lengths")
    return text, lengths


def _is_entry(entry: tuple[Any, Any]) -> bool:
    name, length = entry
    return isinstance(name, str) and type(length) is int and length >= 0


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A JSON string; the end is optional, so that a text without one is scanned only once."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _depth(text: bytes) -> int:
    """How deep a JSON text is nested, found without parsing it: the parser is recursive."""
    brackets = np.frombuffer(_STRING.sub(b"", text).translate(None, _NO_BRACKETS), np.uint8)
    steps = np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1)
    return int(np.cumsum(steps).max(initial=0))


def _dumped(text: Any) -> bytes:
    return json.dumps(text, allow_nan=False).encode()
