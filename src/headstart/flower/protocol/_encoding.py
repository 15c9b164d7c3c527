"""Messages as bytes: each is one safetensors file. No pickle, no JAX.

The tensors of the file are the message's arrays. Its metadata are the version of the protocol,
the kind of the message, and the record as JSON. Lengths and counts are checked before anything is
allocated; the safetensors library checks types, shapes and offsets, and both JSON parsers limit
the depth of nesting.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from headstart.errors import ConfigError, DataError
from headstart.flower.protocol._messages import PROTOCOL, WireMessage
from headstart.records._base import first_problem

LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""
METADATA = "__metadata__"

M = TypeVar("M", bound=WireMessage)


class Bounds(NamedTuple):
    """The largest message a reader accepts."""

    header: int = 1 << 26
    """Bytes of the header, which contains the record and the index of the arrays."""
    arrays: int = 100_000
    body: int = 1 << 40
    """Bytes of all arrays together."""

    @property
    def total(self) -> int:
        """Bytes of the message."""
        return LENGTH_BYTES + self.header + self.body


ORDER_BOUNDS = Bounds()
"""For orders: the site trusts the server, so these bounds only protect against damage."""


def encode(message: WireMessage) -> bytes:
    """Return the message as a safetensors file."""
    metadata = {
        "protocol": str(PROTOCOL),
        "kind": message.KIND,
        "record": message.model_dump_json(),
    }
    arrays = {name: np.asarray(array, order="C") for name, array in message.tensors.items()}
    return save(arrays, metadata)


def decode(content: bytes, bounds: Bounds, *expected: type[M]) -> M:
    """Read a message of one of the expected kinds; raise DataError if it is something else."""
    header = _read_header(content, bounds)
    metadata = header.pop(METADATA, None)
    if not isinstance(metadata, dict):
        raise _unreadable("it has no metadata")
    if metadata.get("protocol") != str(PROTOCOL):
        raise ConfigError(
            f"the sender speaks protocol {str(metadata.get('protocol'))[:20]}, the receiver "
            f"{PROTOCOL}; install the same version of Headstart on both"
        )
    if len(header) > bounds.arrays:
        raise _unreadable(f"it has {len(header)} arrays; at most {bounds.arrays} are expected")
    kinds = {kind.KIND: kind for kind in expected}
    kind, record = metadata.get("kind"), metadata.get("record")
    if not isinstance(kind, str) or kind not in kinds or not isinstance(record, str):
        raise _unreadable(f"it is not {' or '.join(kinds)}")
    try:
        message = kinds[kind].model_validate_json(record, strict=True)
    except ValidationError as error:
        raise DataError(f"its {kind} cannot be used: {first_problem(error)}") from None
    return message.model_copy(update={"tensors": _read_arrays(content)})


def _read_header(content: bytes, bounds: Bounds) -> dict[str, Any]:
    """Check the lengths that the header announces, then parse it."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    body = len(content) - LENGTH_BYTES - length
    if length > bounds.header or body > bounds.body:
        raise _unreadable(
            f"it announces {length} + {body} bytes; at most {bounds.header} + {bounds.body} are "
            "expected"
        )
    if body < 0:
        raise _unreadable("it is shorter than it says")
    try:
        text = content[LENGTH_BYTES : LENGTH_BYTES + length].decode()
        header = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"its header is not JSON ({type(error).__name__})") from None
    if not isinstance(header, dict):
        raise _unreadable("its header is not a table")
    return header


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:
        raise _unreadable(f"its arrays: {error}") from None


def _unreadable(why: str) -> DataError:
    return DataError(f"its message cannot be read: {why}")
