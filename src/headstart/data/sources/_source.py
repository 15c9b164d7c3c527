"""What a source is: a way to a pool, and what a user must know before using it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._federated import FederatedDataset


@runtime_checkable
class Maker(Protocol):
    """A source that makes its clients: a dataclass whose fields are options of ``[data]``."""

    @property
    def clients(self) -> int:
        """How many clients it makes."""

    def dataset(
        self, *, seed: int, new_clients: int = 0, test_fraction: float = 0.2
    ) -> FederatedDataset:
        """The clients, split; the seed alone decides."""


@dataclass(frozen=True)
class Source:
    """One data set."""

    name: str
    summary: str
    clients: str
    """What the clients are."""
    licence: str
    citation: str
    home: str
    """Address of the people who keep it."""
    load: Callable[[], Pool]
    files: tuple[DataFile, ...] = ()
    natural: bool = False
    """Whether it says itself whose each example is."""
    maker: type[Maker] | None = None
    """What makes the clients, where they are not read from files."""

    def missing(self) -> list[DataFile]:
        """The files that are not on this machine."""
        return [file for file in self.files if downloads.find(file) is None]
