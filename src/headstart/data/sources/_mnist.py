"""MNIST, and every data set in the same four files."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources import _idx as idx
from headstart.data.sources._source import Source

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_URL_HASHES = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_DIGESTS = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
FILES = tuple(
    DataFile("mnist", name, f"{_URL}{name}.gz", f"sha256:{of_gz}", f"sha256:{of_content}")
    for name, of_gz, of_content in zip(NAMES, _URL_HASHES, _DIGESTS, strict=True)
)


def load() -> Pool:
    """Return 60,000 training and 10,000 test images of 28 × 28 pixels."""
    return read("mnist", FILES, tuple(map(str, range(10))))


def read(name: str, files: Sequence[DataFile], class_names: tuple[str, ...]) -> Pool:
    """Read a pool from files of training images and labels, then test images and labels."""
    content = downloads.read(files)
    x, test_x = (idx.images(content[i], files[i].name) for i in (0, 2))
    return Pool(
        name=name,
        x=x,
        y=idx.labels(content[1], files[1].name, len(x)),
        schema=Schema(shape=(28, 28, 1), classes=10, scale=1 / 255, class_names=class_names),
        test_x=test_x,
        test_y=idx.labels(content[3], files[3].name, len(test_x)),
    )


SOURCE = Source(
    name="mnist",
    summary="60,000 + 10,000 handwritten digits, 28 × 28 pixels",
    clients="made by a partition",
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document "
    "recognition, Proc. IEEE 1998",
    home="http://yann.lecun.com/exdb/mnist/",
    load=load,
    files=FILES,
)
