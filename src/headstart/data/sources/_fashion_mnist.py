"""Fashion-MNIST: clothes in the format of MNIST."""

from __future__ import annotations

from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data.sources import _mnist as mnist
from headstart.data.sources._source import Source

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_URL_HASHES = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
_DIGESTS = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_DEBIAN = "/usr/share/datasets/fashion-mnist"
FILES = tuple(
    DataFile(
        "fashion_mnist",
        name,
        f"{_URL}{name}.gz",
        f"md5:{of_gz}",
        f"sha256:{of_content}",
        places=(_DEBIAN,),
    )
    for name, of_gz, of_content in zip(mnist.NAMES, _URL_HASHES, _DIGESTS, strict=True)
)


def load() -> Pool:
    """Return 60,000 training and 10,000 test images of 28 × 28 pixels."""
    return mnist.read("fashion-mnist", FILES, CLASSES)


SOURCE = Source(
    name="fashion-mnist",
    summary="60,000 + 10,000 pictures of clothes, 28 × 28 pixels",
    clients="made by a partition",
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv 1708.07747, 2017",
    home="https://github.com/zalandoresearch/fashion-mnist",
    load=load,
    files=FILES,
)
