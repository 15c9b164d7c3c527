r"""Clients made by a formula, as many as wanted: synthetic(α, β) of Li et al. 2020 (§5.1).

Client i draws how its labels differ, u_i ~ N(0, α), and how its inputs differ, B_i ~ N(0, β). Then

    W_i ~ N(u_i, 1),  b_i ~ N(u_i, 1)     of shapes (classes, features) and (classes,)
    v_i[j] ~ N(B_i, 1)                    for each feature j = 1, 2, …
    x ~ N(v_i, diag(j^{−1.2})),  y = argmax(W_i x + b_i)

N(m, s) has *variance* s, as the paper writes it; the code it was published with takes α and β as
standard deviations, which is the same at 0 and 1. The paper draws sizes of clients from a
log-normal law; here all clients have equally many examples. u_i adds the same number to the score
of every class, so that α changes no label (rounding apart): it is kept because it is published so.

Clients are drawn in blocks of fixed size, each from a generator of its own. Client i is therefore
the same however many others there are and in whatever portions they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headstart.data._example_pool import Pool, check_split, count_held_out
from headstart.data._federated import FederatedDataset
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import ConfigError
from headstart.options import require_at_least

BLOCK = 256
"""Clients drawn from one generator. Another number is another data set."""
LARGEST_IN_MEMORY = 4 << 30
"""Bytes of inputs up to which they are made in memory."""
WIDEST = 1e6
"""Variances above it would leave the range of 32-bit numbers when squared by a model."""


class Block(NamedTuple):
    """Everything drawn for the clients of one block, in the symbols of the definition."""

    u: np.ndarray
    B: np.ndarray
    W: np.ndarray
    b: np.ndarray
    v: np.ndarray
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Synthetic:
    """Clients with a linear rule each; ``alpha`` and ``beta`` say how much they differ.

    >>> data = Synthetic(clients=10, features=5).dataset(seed=0, new_clients=2)
    >>> data.clients, data.x.shape, data.train_counts[0]
    (10, (200, 5), np.int64(16))
    """

    clients: int = 100
    examples: int = 20
    features: int = 60
    classes: int = 10
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no data set."""
        require_at_least(2, clients=self.clients, examples=self.examples, classes=self.classes)
        require_at_least(1, features=self.features)
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= value <= WIDEST:
                raise ConfigError(f"{name}={value} must be a variance between 0 and {WIDEST:g}")

    @property
    def schema(self) -> Schema:
        """What an example looks like."""
        return Schema(shape=(self.features,), classes=self.classes)

    @property
    def description(self) -> str:
        """A few words for tables."""
        return f"synthetic({self.alpha:g}, {self.beta:g})"

    def check(self, *, new_clients: int = 0, test_fraction: float = 0.2, seed: int = 0) -> None:
        """Refuse what could not be split, before anything is made."""
        check_split(test_fraction, None, seed)
        if not 0 <= new_clients < self.clients:
            raise ConfigError(
                f"new_clients={new_clients} must be at least 0 and less than clients={self.clients}"
            )

    def block(self, number: int, *, seed: int) -> Block:
        """Clients number · 256 … number · 256 + 255; what a block holds depends on nothing else."""
        rng = np.random.default_rng([seed, number])
        f, c = self.features, self.classes

        def normal(*shape: int) -> np.ndarray:
            return rng.standard_normal((BLOCK, *shape), dtype=np.float32)

        u = np.float32(np.sqrt(self.alpha)) * normal()
        B = np.float32(np.sqrt(self.beta)) * normal()
        W = u[:, None, None] + normal(c, f)
        b = u[:, None] + normal(c)
        v = B[:, None] + normal(f)
        deviation = np.arange(1, f + 1, dtype=np.float32) ** np.float32(-0.6)
        x = v[:, None, :] + deviation * normal(self.examples, f)
        y = np.argmax(x @ W.transpose(0, 2, 1) + b[:, None, :], axis=2).astype(np.int32)
        return Block(u, B, W, b, v, x, y)

    def parts(self, *, seed: int, test_fraction: float = 0.2) -> Iterator[FederatedDataset]:
        """All clients, a block at a time: for data larger than memory."""
        train = self.examples - count_held_out(self.examples, test_fraction)
        for first in range(0, self.clients, BLOCK):
            count = min(BLOCK, self.clients - first)
            block = self.block(first // BLOCK, seed=seed)
            yield FederatedDataset(
                x=block.x[:count].reshape(-1, self.features),
                y=block.y[:count].reshape(-1),
                offsets=np.arange(count + 1) * self.examples,
                train_counts=np.full(count, train),
                schema=self.schema,
            )

    def dataset(
        self, *, seed: int, new_clients: int = 0, test_fraction: float = 0.2
    ) -> FederatedDataset:
        """All clients in memory. They are independent of one another, so the last ones are new."""
        self.check(new_clients=new_clients, test_fraction=test_fraction, seed=seed)
        self._refuse_crowd()
        total = self.clients * self.examples
        x, y = np.empty((total, self.features), np.float32), np.empty(total, np.int32)
        row = 0
        for part in self.parts(seed=seed, test_fraction=test_fraction):
            rows = slice(row, row + len(part.y))
            x[rows], y[rows] = part.x, part.y
            row += len(part.y)
        train = self.examples - count_held_out(self.examples, test_fraction)
        return FederatedDataset(
            x=x,
            y=y,
            offsets=np.arange(self.clients + 1) * self.examples,
            train_counts=np.full(self.clients, train),
            schema=self.schema,
            new_clients=new_clients,
            description=self.description,
            validated=True,
        )

    def _refuse_crowd(self) -> None:
        size = 4 * self.clients * self.examples * self.features
        if size > LARGEST_IN_MEMORY:
            raise ConfigError(
                f"clients={self.clients} with {self.examples} examples of {self.features} features "
                f"take {size / 1e9:.1f} GB; write them to a folder (headstart data synthetic "
                "--out FOLDER) and give data.path, or use fewer"
            )


def load() -> Pool:
    """The default clients of seed 0 as one pool."""
    made = Synthetic()
    data = made.dataset(seed=0)
    owner = np.repeat(np.arange(made.clients), made.examples)
    return Pool(name="synthetic", x=data.x, y=data.y, schema=data.schema, owner=owner)


SOURCE = Source(
    name="synthetic",
    summary="clients made by a formula, each with a linear rule of its own; any number of them",
    clients="drawn: `clients` (100) of `examples` (20) each",
    licence="none: made on this machine",
    citation="Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020",
    home="https://arxiv.org/abs/1812.06127",
    load=load,
    natural=True,
    maker=Synthetic,
)
