"""The IDX format of MNIST and its relatives: big-endian header, then the numbers.

Two zero bytes, one byte for the type (8: uint8, 12: int32), one for the number of axes, the length
of each axis as a 32-bit integer, the values in row-major order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headstart.errors import DataError

_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype(">u1"), 12: np.dtype(">i4")}


def parse(content: bytes, name: str, axes: int) -> np.ndarray:
    """Return the array in an IDX file; ``name`` is for messages."""
    if len(content) < 4 + 4 * axes or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise DataError(f"{name} is not an IDX file; download it again")
    kind = _TYPES[content[2]]
    if content[3] != axes:
        raise DataError(f"{name} has {content[3]} axes, not {axes}: it is another file; rename it")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, offset=4))
    size = len(content) - 4 - 4 * axes
    if size != math.prod(shape) * kind.itemsize:
        expected = math.prod(shape) * kind.itemsize
        raise DataError(
            f"{name} is cut short or damaged: {size} bytes, not {expected}; download it again"
        )
    values = np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(shape)
    return values.astype(kind.newbyteorder("="))


def images(content: bytes, name: str) -> np.ndarray:
    """Return grey images as (examples, 28, 28, 1) bytes."""
    pixels = parse(content, name, axes=3)
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (28, 28):
        raise DataError(f"{name} does not hold 28 × 28 images of bytes but {pixels.shape[1:]}")
    return pixels[..., None]


def labels(content: bytes, name: str, rows: int) -> np.ndarray:
    """Return the classes 0 … 9, one for each image."""
    values = parse(content, name, axes=1)
    if len(values) != rows:
        raise DataError(f"{name} has {len(values)} labels for {rows} images; download both again")
    if len(values) and (values.min() < 0 or values.max() > 9):
        raise DataError(f"{name} has labels outside 0 … 9; download it again")
    return values.astype(np.int32)
