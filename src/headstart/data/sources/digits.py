"""The digits inside scikit-learn: real handwriting that needs no download."""

from __future__ import annotations

from functools import cache

import numpy as np

from headstart.data.example_pool import Pool
from headstart.data.schema import Schema
from headstart.data.sources.source import Source


@cache
def load() -> Pool:
    """1,797 grey images of 8 × 8 pixels with values 0…16; read once, since they are few."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = digits.images.astype(np.uint8)[..., None], digits.target.astype(np.int32)
    x.flags.writeable = y.flags.writeable = False
    return Pool(
        name="digits",
        x=x,
        y=y,
        schema=Schema(
            shape=(8, 8, 1), classes=10, scale=1 / 16, class_names=tuple(map(str, range(10)))
        ),
    )


SOURCE = Source(
    name="digits",
    summary="1,797 handwritten digits, 8 × 8 pixels; comes with scikit-learn",
    clients="made by a partition",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998",
    home="https://archive.ics.uci.edu/dataset/80",
    load=load,
)
