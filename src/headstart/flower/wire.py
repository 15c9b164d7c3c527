"""What crosses the line between server and site, and in which form.

A parcel is a text (JSON) and named arrays, laid end to end. Flower carries it as one array of
bytes; between the ClientApp's process and the site's worker it goes through a local socket.
Arrays are NPY bytes, read without pickle. Light on purpose: no JAX here.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from headstart.errors import DataError

PROTOCOL = 1
"""Goes up when orders or answers change: server and sites must speak the same."""
PARCEL = "parcel"
LENGTH = struct.Struct(">QQ")


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
    """From NPY; what would need pickle is refused."""
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"an array that was received cannot be read: {error}") from None


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


def from_records(records: RecordDict) -> Parcel:
    """From Flower's records; DataError if they are not ours."""
    try:
        content = from_bytes(records.array_records[PARCEL][PARCEL].data)
        return from_stream(_reader(content.tobytes()))
    except (KeyError, ValueError, TypeError, struct.error) as error:
        raise DataError(f"a message that is no parcel: {type(error).__name__}") from None


def _reader(content: bytes) -> Callable[[int], bytes]:
    place = 0

    def read(count: int) -> bytes:
        nonlocal place
        if not 0 <= count <= len(content) - place:
            raise ValueError("shorter than it says")
        place += count
        return content[place - count : place]

    return read


def to_stream(parcel: Parcel) -> bytes:
    """For a socket: two lengths, the index with the text, then all arrays."""
    index = _dumped([parcel.text, [[name, len(data)] for name, data in parcel.arrays.items()]])
    body = b"".join(parcel.arrays.values())
    return LENGTH.pack(len(index), len(body)) + index + body


def from_stream(read: Callable[[int], bytes]) -> Parcel:
    """What :func:`to_stream` wrote, from ``read(count)``, which must give that many bytes."""
    index_length, body_length = LENGTH.unpack(read(LENGTH.size))
    text, names = json.loads(read(index_length))
    body = _reader(read(body_length))
    arrays = {str(name): body(int(length)) for name, length in names}
    if not isinstance(text, dict):
        raise ValueError("its text is no table")
    return Parcel(text, arrays)


def _dumped(text: Any) -> bytes:
    return json.dumps(text, allow_nan=False).encode()
