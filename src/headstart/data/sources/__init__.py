"""The data sets Headstart knows by name; one file each."""

from __future__ import annotations

from headstart.data.sources import (
    cifar10,
    digits,
    fashion_mnist,
    heart_disease,
    mnist,
    qmnist_writers,
    shakespeare,
    synthetic,
    wisdm,
)
from headstart.data.sources.source import Source
from headstart.extensions import find_extension, require_instance

SOURCES: dict[str, Source] = {
    module.SOURCE.name: module.SOURCE
    for module in (
        digits,
        mnist,
        fashion_mnist,
        qmnist_writers,
        cifar10,
        shakespeare,
        heart_disease,
        wisdm,
        synthetic,
    )
}


def find_source(name: str, where: str) -> Source:
    """A source by its name: built in, an entry point, or ``package.module:SOURCE``."""
    return find_extension("source", name, SOURCES, where, require_instance(Source))
