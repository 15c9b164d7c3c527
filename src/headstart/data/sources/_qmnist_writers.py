"""MNIST by the people who wrote it: QMNIST's labels name the writer of every digit.

The writers of MNIST's test images wrote none of its training images, so they are natural *new
clients*: no model has been trained on their data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data.sources import _idx as idx
from headstart.data.sources import _mnist as mnist
from headstart.data.sources._source import Source
from headstart.errors import DataError

_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
FILES = (
    DataFile(
        "qmnist",
        "qmnist-train-labels-idx2-int",
        f"{_URL}qmnist-train-labels-idx2-int.gz",
        "sha256:2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
        "sha256:bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
    ),
    DataFile(
        "qmnist",
        "qmnist-test-labels-idx2-int",
        f"{_URL}qmnist-test-labels-idx2-int.gz",
        "sha256:9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
        "sha256:92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd",
    ),
)


def load() -> Pool:
    """Return 70,000 digits of 539 known writers and 297 new ones."""
    return add_writers(mnist.load())


def add_writers(digits: Pool) -> Pool:
    """Join both parts of MNIST into one pool, with the writer of each image."""
    assert digits.test_x is not None and digits.test_y is not None
    train, test = downloads.read(FILES)
    writers = np.concatenate(
        [
            _read_writers(train, FILES[0].name, digits.y),
            _read_writers(test, FILES[1].name, digits.test_y),
        ]
    )
    names, owner = np.unique(writers, return_inverse=True)
    return replace(
        digits,
        name="qmnist-writers",
        x=np.concatenate([digits.x, digits.test_x]),
        y=np.concatenate([digits.y, digits.test_y]),
        test_x=None,
        test_y=None,
        owner=owner,
        owner_names=[f"writer-{name}" for name in names],
        new_owners=frozenset(owner[len(digits.y) :].tolist())
        - frozenset(owner[: len(digits.y)].tolist()),
    )


def _read_writers(content: bytes, name: str, classes: np.ndarray) -> np.ndarray:
    """Return the writers in column 2 of the extended labels; column 0 must equal the classes."""
    table = idx.parse(content, name, axes=2)
    if table.shape[1] < 3 or len(table) < len(classes):
        raise DataError(f"{name} has shape {table.shape}, too small for {len(classes)} images")
    if not np.array_equal(table[: len(classes), 0], classes):
        raise DataError(f"{name} does not belong to these MNIST images: the classes differ")
    return table[: len(classes), 2]


SOURCE = Source(
    name="qmnist-writers",
    summary="MNIST by writer, 19 to 131 digits for each known writer",
    clients="539 writers; the 297 writers of the test images are new clients",
    licence="BSD 3-Clause (labels), CC BY-SA 3.0 (images)",
    citation="Yadav, Bottou: Cold Case: the Lost MNIST Digits, NeurIPS 2019",
    home="https://github.com/facebookresearch/qmnist",
    load=load,
    files=(*mnist.FILES, *FILES),
    natural=True,
)
