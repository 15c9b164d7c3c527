"""What a source is: a way to a pool, and what a user must know before using it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headstart.data import files
from headstart.data.files import DataFile
from headstart.data.pool import Pool


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

    def missing(self) -> list[DataFile]:
        """The files that are not on this machine."""
        return [file for file in self.files if files.find(file) is None]
