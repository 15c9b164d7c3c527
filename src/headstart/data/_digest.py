"""Fingerprints of data sets, made so that they can be computed while the data are written.

Each array has a digest of its own bytes; the fingerprint of a data set is the digest of a card that
names all of them, the schema and the new clients. So four files can grow side by side, and a card
that was edited is found out without reading the arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

PIECE = 1 << 24
"""Bytes of an array looked at in one go: enough to be fast, little beside any data set."""


@dataclass(frozen=True)
class ArrayCard:
    """What an array is: its kind of numbers, its shape and the digest of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers themselves."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


def iterate_pieces(array: np.ndarray, size: int = PIECE) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row and the content of runs of rows, of about ``size`` bytes each.

    >>> [(first, len(rows)) for first, rows in iterate_pieces(np.zeros((5, 2), np.int8), size=4)]
    [(0, 2), (2, 2), (4, 1)]
    """
    row = array.dtype.itemsize * math.prod(array.shape[1:])
    step = max(1, size // max(1, row))
    for first in range(0, len(array), step):
        yield first, array[first : first + step]
        _give_back(array)


def _give_back(array: np.ndarray) -> None:
    """Release the pages of a read-only memory map: they stay in memory until then."""
    if not (isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED")):
        return
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)


def build_array_card(array: np.ndarray) -> ArrayCard:
    """The array's card, reading it piece by piece: it may be larger than memory."""
    total = hashlib.sha256()
    for _, rows in iterate_pieces(array):
        total.update(np.ascontiguousarray(rows).data)
    return ArrayCard(array.dtype.str, array.shape, total.hexdigest())


def combine_digests(
    arrays: Mapping[str, ArrayCard], schema: Mapping[str, Any], new_clients: int
) -> str:
    """The fingerprint of a data set from what its parts are."""
    card = {
        "arrays": {name: asdict(array) for name, array in arrays.items()},
        "schema": {key: _plain(value) for key, value in schema.items()},
        "new_clients": int(new_clients),
    }
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Equal numbers as equal text: 1, 1.0 and NumPy's 1 are one number."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str) else float(value)
