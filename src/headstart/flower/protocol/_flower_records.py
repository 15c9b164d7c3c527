"""Put a message's bytes into Flower's records, and take them out, without reading them.

The bytes travel as one array, because Flower moves every array of a message with separate requests.
Flower's ``Array`` says how its data are serialised; ours are a safetensors file.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

from headstart.errors import DataError

NAME = "headstart"
SERIALISATION = "safetensors"


def to_records(content: bytes) -> RecordDict:
    """Return the records that Flower carries."""
    array = Array("uint8", (len(content),), SERIALISATION, content)
    return RecordDict({NAME: ArrayRecord({NAME: array})})


def from_records(records: RecordDict) -> bytes:
    """Return the bytes; raise DataError if Flower has carried something else."""
    try:
        return records.array_records[NAME][NAME].data
    except KeyError:
        raise DataError(
            f"its message cannot be read: it has no record {NAME!r}; is it from another version "
            "of Headstart?"
        ) from None
