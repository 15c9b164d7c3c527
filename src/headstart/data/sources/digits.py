"""The digits inside scikit-learn: real handwriting that needs no download."""

from __future__ import annotations

import numpy as np

from headstart.data.federated import Schema
from headstart.data.pool import Pool
from headstart.data.sources.source import Source


def load() -> Pool:
    """1,797 grey images of 8 × 8 pixels with values 0…16."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Pool(
        name="digits",
        x=digits.images.astype(np.uint8)[..., None],
        y=digits.target.astype(np.int32),
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
