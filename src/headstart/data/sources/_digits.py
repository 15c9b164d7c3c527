"""Handwritten digits that come with Headstart: real data that needs no download.

``digits.gz`` holds the 1,797 images of the test part of "Optical Recognition of Handwritten Digits"
(Alpaydin and Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0), 64 bytes each with values
0 … 16, then 1,797 labels of one byte. The pixels, labels and order are those of scikit-learn's
``load_digits``.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

import numpy as np

from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import DataError

IMAGES = 1797
SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""Of the unpacked content."""


@cache
def load() -> Pool:
    """Return 1,797 grey images of 8 × 8 pixels with values 0 … 16; read only once."""
    content = _read_content()
    pixels = np.frombuffer(content, np.uint8, IMAGES * 64)
    labels = np.frombuffer(content, np.uint8, offset=IMAGES * 64)
    y = labels.astype(np.int32)
    y.flags.writeable = False
    return Pool(
        name="digits",
        x=pixels.reshape(IMAGES, 8, 8, 1),
        y=y,
        schema=Schema(
            shape=(8, 8, 1), classes=10, scale=1 / 16, class_names=tuple(map(str, range(10)))
        ),
    )


def _read_content() -> bytes:
    packed = files("headstart.data.sources").joinpath("digits.gz").read_bytes()
    try:
        content = gzip.decompress(packed)
    except (OSError, EOFError):
        content = b""
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError("the digits that come with Headstart are damaged; install Headstart again")
    return content


SOURCE = Source(
    name="digits",
    summary="1,797 handwritten digits, 8 × 8 pixels; comes with Headstart",
    clients="made by a partition",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998",
    home="https://archive.ics.uci.edu/dataset/80",
    load=load,
)
