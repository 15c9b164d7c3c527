"""Fingerprints of data sets that can be computed while the data are written.

Each array has a digest of its bytes. The fingerprint of a data set is the digest of a card that
lists these digests, the schema and the new clients. Four files can therefore grow side by side, and
an edited card is detected without reading the arrays.
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
"""Bytes of an array read at a time: enough to be fast, small compared with any data set."""


@dataclass(frozen=True)
class ArrayCard:
    """Type, shape and digest of an array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes, without a file header."""
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
        _release_pages(array)


def _release_pages(array: np.ndarray) -> None:
    """Release the pages of a read-only memory map, which otherwise stay in memory."""
    if not (isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED")):
        return
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)


def build_array_card(array: np.ndarray) -> ArrayCard:
    """Build the array's card piece by piece: the array may be larger than memory."""
    total = hashlib.sha256()
    for _, rows in iterate_pieces(array):
        total.update(np.ascontiguousarray(rows).data)
    return ArrayCard(array.dtype.str, array.shape, total.hexdigest())


def combine_digests(
    arrays: Mapping[str, ArrayCard], schema: Mapping[str, Any], new_clients: int
) -> str:
    """Return the fingerprint of a data set from the cards of its arrays."""
    card = {
        "arrays": {name: asdict(array) for name, array in arrays.items()},
        "schema": {key: _normalize(value) for key, value in schema.items()},
        "new_clients": int(new_clients),
    }
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()[:16]


def _normalize(value: Any) -> Any:
    """Make equal numbers equal text: 1, 1.0 and NumPy's 1 become the same."""
    if isinstance(value, list | tuple):
        return [_normalize(v) for v in value]
    return value if isinstance(value, str) else float(value)
