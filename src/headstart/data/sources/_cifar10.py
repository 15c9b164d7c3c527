"""CIFAR-10 from its official binary version; nothing is unpickled."""

from __future__ import annotations

import numpy as np

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import DataError

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_ROW = 1 + 3 * 32 * 32
_ARCHIVE = "cifar-10-binary.tar.gz"
_DIGESTS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
FILES = tuple(
    DataFile(
        "cifar10",
        name,
        f"https://www.cs.toronto.edu/~kriz/{_ARCHIVE}",
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        f"md5:{digest}",
        archive=_ARCHIVE,
    )
    for name, digest in _DIGESTS.items()
)


def load() -> Pool:
    """Return 50,000 training and 10,000 test images of 32 × 32 pixels in three colours."""
    batches = [parse(c, f.name) for c, f in zip(downloads.read(FILES), FILES, strict=True)]
    (*train, (test_x, test_y)) = batches
    return Pool(
        name="cifar10",
        x=np.concatenate([x for x, _ in train]),
        y=np.concatenate([y for _, y in train]),
        schema=Schema(shape=(32, 32, 3), classes=10, scale=1 / 255, class_names=CLASSES),
        test_x=test_x,
        test_y=test_y,
    )


def parse(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (rows, 32, 32, 3) and classes; a row is 1 label and 3 × 32 × 32 pixel bytes."""
    if not content or len(content) % _ROW:
        raise DataError(
            f"{name} is cut short or damaged: {len(content)} bytes are not a multiple of {_ROW}; "
            "download it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _ROW)
    if rows[:, 0].max() > 9:
        raise DataError(f"{name} has labels outside 0 … 9: not CIFAR-10's binary version")
    pixels = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), rows[:, 0].astype(np.int32)


SOURCE = Source(
    name="cifar10",
    summary="50,000 + 10,000 small photographs, 32 × 32 pixels, three colours",
    clients="made by a partition",
    licence="none stated; free for research with citation",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    load=load,
    files=FILES,
)
