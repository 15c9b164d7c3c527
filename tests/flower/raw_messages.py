"""Messages as bytes that a test can spoil: taken apart without checks, and put together again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import Message
from safetensors.numpy import load, save

from headstart.flower.protocol._flower_records import from_records, to_records
from headstart.flower.protocol._messages import PROTOCOL


@dataclass(frozen=True)
class RawMessage:
    """A message whose record is any table."""

    kind: str
    record: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    protocol: str = str(PROTOCOL)

    def to_bytes(self) -> bytes:
        """As it is sent."""
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        record = json.dumps(self.record)
        return save(arrays, {"protocol": self.protocol, "kind": self.kind, "record": record})

    def with_record(self, **changes: Any) -> RawMessage:
        """With other values in the record; those with double underscores are deeper in it."""
        record = json.loads(json.dumps(self.record))
        for path, value in changes.items():
            *parents, name = path.split("__")
            table = record
            for parent in parents:
                table = table[parent]
            table[name] = value
        return replace(self, record=record)

    @classmethod
    def from_bytes(cls, content: bytes) -> RawMessage:
        """Take a real message apart."""
        header, _ = split_header(content)
        metadata = json.loads(header)["__metadata__"]
        return cls(metadata["kind"], json.loads(metadata["record"]), load(content))

    @classmethod
    def from_reply(cls, reply: Message) -> RawMessage:
        """Take a message of Flower's apart."""
        return cls.from_bytes(from_records(reply.content))

    def as_reply(self, message: Message) -> Message:
        """The answer to a message of Flower's."""
        return Message(to_records(self.to_bytes()), reply_to=message)


def split_header(content: bytes) -> tuple[bytes, bytes]:
    """The header and the arrays of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


def with_header(header: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with any header, and a length that may be wrong."""
    size = len(header) if length is None else length
    return size.to_bytes(8, "little") + header + body
