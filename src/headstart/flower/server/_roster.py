"""What the server knows about its sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headstart.records._federation_events import SiteSizes

UNKNOWN = SiteSizes(train_examples=0, test_examples=0, classes=0)
"""The sizes of a site that has not reported any."""


@dataclass
class Roster:
    """The sites by number, like the clients of a federated data set, but without data."""

    names: Sequence[str]
    known_clients: int
    """Sites that train; they have the lowest numbers."""
    sizes: dict[int, SiteSizes] = field(default_factory=dict)
    """As the sites report them."""

    @property
    def new_clients(self) -> int:
        """The number of sites that join later."""
        return len(self.names) - self.known_clients

    @property
    def train_counts(self) -> np.ndarray:
        """Training examples of each site; 0 where a site has not reported."""
        return np.array([self.size(client).train_examples for client in range(len(self.names))])

    @property
    def test_counts(self) -> np.ndarray:
        """Held-out examples of each site."""
        return np.array([self.size(client).test_examples for client in range(len(self.names))])

    def name(self, client: int) -> str:
        """Return the site's name."""
        return self.names[client]

    def size(self, client: int) -> SiteSizes:
        """Return how much data a site has."""
        return self.sizes.get(client, UNKNOWN)

    def classes_of(self, client: int) -> np.ndarray:
        """Return a 1 for each class of the site: examples per class are not known."""
        return np.ones(self.size(client).classes, int)

    def present(self, clients: Sequence[int]) -> Roster:
        """Return the roster without late sites, unless one of these clients is late.

        Tables leave out late sites that have not joined.
        """
        if any(client >= self.known_clients for client in clients):
            return self
        return Roster(self.names[: self.known_clients], self.known_clients, self.sizes)
