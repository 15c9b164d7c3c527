"""Small files in the formats of the real sources."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.data._downloads import DataFile
from headstart.data.sources import (
    _cifar10 as cifar10,
)
from headstart.data.sources import (
    _fashion_mnist as fashion_mnist,
)
from headstart.data.sources import (
    _heart_disease as heart_disease,
)
from headstart.data.sources import (
    _mnist as mnist,
)
from headstart.data.sources import (
    _qmnist_writers as qmnist_writers,
)
from headstart.data.sources import (
    _wisdm as wisdm,
)


def idx(values: np.ndarray) -> bytes:
    """An IDX file of bytes or 32-bit integers."""
    kind = {1: 8, 4: 12}[values.dtype.itemsize]
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape)
    return header + values.astype(values.dtype.newbyteorder(">")).tobytes()


def put(root: Path, file: DataFile, content: bytes, suffix: str = "") -> Path:
    """Write a file where a source looks for it."""
    path = root / file.folder / f"{file.name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 1) if suffix == ".gz" else content)
    return path


def put_mnist(root: Path, files: Any = mnist.FILES, train: int = 60, test: int = 30) -> None:
    """Four files whose images are filled with the row number, whose labels are it mod 10."""
    for i, count in ((0, train), (2, test)):
        rows = np.arange(count, dtype=np.uint8)
        images = np.broadcast_to(rows[:, None, None], (count, 28, 28))
        put(root, files[i], idx(np.ascontiguousarray(images)), ".gz")
        put(root, files[i + 1], idx(rows % 10), ".gz" if i else "")


def put_qmnist(root: Path, train: int = 60, test: int = 30) -> None:
    """Extended labels: four writers of training images, three others of test images."""
    for file, count, first, writers in zip(
        qmnist_writers.FILES, (train, test), (100, 200), (4, 3), strict=True
    ):
        table = np.zeros((count + 5, 8), np.int32)
        rows = np.arange(count + 5)
        table[:, 0], table[:, 2] = rows % 10, first + rows % writers
        put(root, file, idx(table), ".gz")


def cifar_batch(rows: int, start: int = 0) -> bytes:
    """Rows of a label byte and a red, a green and a blue plane of values 1, 2 and 3."""
    planes = np.repeat(np.array([1, 2, 3], np.uint8), 1024)
    labels = (np.arange(start, start + rows) % 10).astype(np.uint8)
    return np.hstack([labels[:, None], np.tile(planes, (rows, 1))]).astype(np.uint8).tobytes()


def without_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files stand for the real ones; checks of structure stay."""
    for module in (mnist, fashion_mnist, qmnist_writers, cifar10, heart_disease, wisdm):
        files = tuple(replace(f, digest="", places=()) for f in module.FILES)
        monkeypatch.setattr(module, "FILES", files)
