"""A source: how to load its examples, and what a user must know before using it."""

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
    """A source that generates its clients: a dataclass whose fields are options of ``[data]``."""

    @property
    def clients(self) -> int:
        """Number of clients to generate."""

    def dataset(
        self, *, seed: int, new_clients: int = 0, test_fraction: float = 0.2
    ) -> FederatedDataset:
        """Generate the clients and split them; all randomness comes from the seed."""


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
    """Web page of its publishers."""
    load: Callable[[], Pool]
    files: tuple[DataFile, ...] = ()
    natural: bool = False
    """Whether the source names the client of each example."""
    maker: type[Maker] | None = None
    """The class that generates the clients, if they are not read from files."""

    def missing(self) -> list[DataFile]:
        """Return the files that are not on this machine."""
        return [file for file in self.files if downloads.find(file) is None]
