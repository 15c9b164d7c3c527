r"""Sinusoids: the classic few-shot regression of MAML (Finn, Abbeel, Levine 2017, §5.1).

Client i draws an amplitude A_i ~ U[0.1, 5] and a phase φ_i ~ U[0, π]. Its examples are

    x ~ U[−5, 5],  y = A_i sin(x − φ_i)

without noise. The mean of all clients' functions is nearly 0 everywhere, so a model that serves all
clients alike predicts next to nothing, and what counts is how fast it adapts. The paper draws new
tasks for ever; here the clients are given, and other clients are new.

Clients are drawn in blocks of fixed size, each with its own generator. Client i is therefore the
same for any number of clients.
"""

from __future__ import annotations

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
"""Clients drawn from one generator. Changing it changes the data."""
LARGEST = 10**8
"""The most examples: they are generated in memory."""
SCHEMA = Schema(shape=(1,), target="number")


class Sinusoids(NamedTuple):
    """What is drawn for the clients of one block, in the symbols of the definition."""

    A: np.ndarray
    phi: np.ndarray
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Sinusoid:
    """Clients with a sinusoid each.

    >>> data = Sinusoid(clients=10, examples=20).dataset(seed=0, new_clients=2, test_fraction=0.5)
    >>> data.clients, data.x.shape, data.train_counts[0]
    (10, (200, 1), np.int64(10))
    """

    clients: int = 1000
    examples: int = 40

    def __post_init__(self) -> None:
        """Refuse numbers that do not give a data set."""
        require_at_least(2, clients=self.clients, examples=self.examples)
        if self.clients * self.examples > LARGEST:
            raise ConfigError(
                f"clients={self.clients} with {self.examples} examples each are more than "
                f"{LARGEST:,} examples; use fewer"
            )

    def block(self, number: int, *, seed: int) -> Sinusoids:
        """Draw clients number · 256 … number · 256 + 255, which depend on number and seed alone."""
        rng = np.random.default_rng([seed, number])
        A, phi = rng.uniform(0.1, 5.0, BLOCK), rng.uniform(0.0, np.pi, BLOCK)
        x = rng.uniform(-5.0, 5.0, (BLOCK, self.examples))
        return Sinusoids(A, phi, x, A[:, None] * np.sin(x - phi[:, None]))

    def dataset(
        self, *, seed: int, new_clients: int = 0, test_fraction: float = 0.5
    ) -> FederatedDataset:
        """Generate all clients; they are independent, so the last ones are new."""
        check_split(test_fraction, None, seed)
        if not 0 <= new_clients < self.clients:
            raise ConfigError(
                f"new_clients={new_clients} must be at least 0 and less than clients={self.clients}"
            )
        blocks = [self.block(n, seed=seed) for n in range(-(-self.clients // BLOCK))]
        rows = self.clients * self.examples
        held_out = count_held_out(self.examples, test_fraction)
        return FederatedDataset(
            x=np.concatenate([b.x.reshape(-1, 1) for b in blocks])[:rows].astype(np.float32),
            y=np.concatenate([b.y.reshape(-1) for b in blocks])[:rows].astype(np.float32),
            offsets=np.arange(self.clients + 1) * self.examples,
            train_counts=np.full(self.clients, self.examples - held_out),
            schema=SCHEMA,
            new_clients=new_clients,
            description="sinusoids",
        )


def load() -> Pool:
    """Return the default clients of seed 0 as one pool."""
    sinusoid = Sinusoid()
    data = sinusoid.dataset(seed=0)
    owner = np.repeat(np.arange(sinusoid.clients), sinusoid.examples)
    return Pool(name="sinusoid", x=data.x, y=data.y, schema=SCHEMA, owner=owner)


SOURCE = Source(
    name="sinusoid",
    summary="numbers to predict: every client has a sinusoid of its own",
    clients="generated: `clients` (1000) of `examples` (40) each",
    licence="none: generated on this machine",
    citation="Finn, Abbeel, Levine: Model-Agnostic Meta-Learning, ICML 2017",
    home="https://arxiv.org/abs/1703.03400",
    load=load,
    natural=True,
    maker=Sinusoid,
)
