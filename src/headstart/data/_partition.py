"""Ways to distribute the examples of one pool among clients.

A partition is a small frozen dataclass: its fields are its options, in Python and in the
experiment file alike. ``assign`` turns labels into one array of row numbers per client. All
randomness comes from its generator, so equal generators give equal clients.

Only :class:`ClassGroups` also assigns a source's official test examples, as its paper does. With
all others, a client's held-out examples are drawn from those assigned to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import numpy as np

from headstart.data._assignment import (
    ClassExamples,
    Rows,
    assign_counts,
    draw_shares,
    refuse_too_many_clients,
    rows_by_class,
)
from headstart.errors import ConfigError
from headstart.options import require_at_least, require_positive


class Partition(Protocol):
    """A rule that assigns examples to clients."""

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Return each client's rows of the pool, and of the test pool if it assigns these too."""


@dataclass(frozen=True)
class ClassGroups:
    """Two kinds of clients that share classes 0–4 only in part (P Table 2).

    Half of the clients hold a images of each of classes 0–4. The other half, in five groups
    c = 0…4 of sizes as even as possible, hold a/2 images of class c and 2a of class c + 5.
    ``different`` removes the a/2 images (P's "different heterogeneity"), so that the two
    halves have no class in common. By default ``a`` (``a_test``) is the largest even number that
    the pool (the official test pool) allows.
    """

    by_class: ClassVar[bool] = True

    clients: int = 20
    a: int | None = None
    a_test: int | None = None
    different: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no pool can satisfy."""
        require_at_least(2, clients=self.clients)
        for name, a in (("a", self.a), ("a_test", self.a_test)):
            if a is not None and (a < 2 or (a % 2 and not self.different)):
                raise ConfigError(f"{name}={a} must be an even number of at least 2")

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Assign both pools by the same design."""
        if self.a_test is not None and test_labels is None:
            raise ConfigError(
                f"a_test={self.a_test} needs a source that has its own test examples; leave it out"
            )
        refuse_too_many_clients(self.clients, labels)
        train = self._assign_by_design(labels, self.a, "a", rng)
        held = (
            None
            if test_labels is None
            else self._assign_by_design(test_labels, self.a_test, "a_test", rng)
        )
        return train, held

    def _units(self) -> np.ndarray:
        """Return the images per client and class, in units of a/2."""
        half = self.clients // 2
        units = np.zeros((self.clients, 10), np.int64)
        units[:half, :5] = 2
        for client, c in enumerate(sorted(np.arange(self.clients - half) % 5), start=half):
            units[client, c] = 0 if self.different else 1
            units[client, c + 5] = 4
        return units

    def _assign_by_design(
        self, labels: np.ndarray, a: int | None, name: str, rng: np.random.Generator
    ) -> Rows:
        if labels.ndim != 1 or len(np.unique(labels)) != 10 or labels.max() != 9:
            raise ConfigError("partition='class-groups' needs exactly 10 classes; use another one")
        units = self._units()
        needed, available = units.sum(axis=0), np.bincount(labels, minlength=10)
        used = needed > 0
        largest = int(np.min(available[used] // needed[used])) * 2
        a = largest if a is None else a
        if largest < 2 or np.any(needed * a > available * 2):
            remedy = f"use at most {largest}" if largest >= 2 else "use fewer clients"
            raise ConfigError(
                f"{name}={a or 2} needs more images than there are for {self.clients} clients; "
                + remedy
            )
        return assign_counts(labels, units * a // 2, rng)


@dataclass(frozen=True)
class Dirichlet:
    """Clients of equal size, each with its own class distribution (G, Figure 1).

    Client i draws p_i ~ Dir(α_d, …, α_d) over the classes and ``examples`` examples from it. Each
    example of a class is assigned once; when none are left, further clients draw at random from
    all examples of the class. No client gets an example twice, unless it needs more than exist.
    """

    by_class: ClassVar[bool] = True

    clients: int = 50
    alpha: float = 0.01
    examples: int = 1000

    def __post_init__(self) -> None:
        """Refuse numbers that no pool can satisfy."""
        require_at_least(2, clients=self.clients, examples=self.examples)
        require_positive(alpha=self.alpha)

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Draw each client's distribution, then its examples."""
        refuse_too_many_clients(self.clients, labels)
        if self.examples > len(labels):
            raise ConfigError(
                f"examples={self.examples} per client is more than the {len(labels)} there are; "
                "use fewer"
            )
        classes = [ClassExamples(rows, rng) for rows in rows_by_class(labels, rng)]
        return [self._draw_client(classes, rng) for _ in range(self.clients)], None

    def _draw_client(
        self, classes: Sequence[ClassExamples], rng: np.random.Generator
    ) -> np.ndarray:
        share = draw_shares(self.alpha, len(classes), rng)
        counts = rng.multinomial(self.examples, share)
        return np.concatenate(
            [examples.draw(int(k)) for examples, k in zip(classes, counts, strict=True)]
        )


@dataclass(frozen=True)
class DirichletLabels:
    """Every class divided unevenly among the clients, so that sizes differ too.

    Class c draws q_c ~ Dir(α_d, …, α_d) over the *clients*, and its examples are divided in these
    shares. Clients with fewer than ``min_size`` examples then receive random examples from the
    client that has most at that moment.
    """

    by_class: ClassVar[bool] = True

    clients: int = 20
    alpha: float = 0.5
    min_size: int = 10

    def __post_init__(self) -> None:
        """Refuse numbers that no pool can satisfy."""
        require_at_least(2, clients=self.clients, min_size=self.min_size)
        require_positive(alpha=self.alpha)

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Cut each class at the cumulative shares, then fill small clients."""
        refuse_too_many_clients(self.clients, labels, each=self.min_size, option="min_size")
        parts: list[Rows] = []
        for rows in rows_by_class(labels, rng):
            share = draw_shares(self.alpha, self.clients, rng)
            cuts = np.floor(np.cumsum(share)[:-1] * len(rows) + 1e-9).astype(np.int64)
            parts.append(np.split(rows, np.minimum(cuts, len(rows))))
        clients = [rng.permutation(np.concatenate(rows)) for rows in zip(*parts, strict=True)]
        return self._fill_up(clients), None

    def _fill_up(self, clients: Rows) -> Rows:
        sizes = np.array([len(c) for c in clients])
        for small in np.flatnonzero(sizes < self.min_size):
            while sizes[small] < self.min_size:
                large = int(np.argmax(sizes))
                spare = max(1, (sizes[large] - sizes[small]) // 2)
                k = int(min(self.min_size - sizes[small], spare))
                clients[small] = np.concatenate([clients[small], clients[large][:k]])
                clients[large] = clients[large][k:]
                sizes[small], sizes[large] = sizes[small] + k, sizes[large] - k
        return clients


@dataclass(frozen=True)
class Shards:
    """Examples sorted by class, cut into equal shards, a few random shards per client.

    McMahan et al. 2017, §3: with two shards most clients hold two classes.
    """

    by_class: ClassVar[bool] = True

    clients: int = 20
    shards_per_client: int = 2

    def __post_init__(self) -> None:
        """Refuse numbers that no pool can satisfy."""
        require_at_least(2, clients=self.clients)
        require_at_least(1, shards_per_client=self.shards_per_client)

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Sort the examples, cut them into shards and distribute these at random."""
        each = max(2, self.shards_per_client)
        refuse_too_many_clients(self.clients, labels, each=each, option="shards_per_client")
        shards = np.array_split(
            np.concatenate(rows_by_class(labels, rng)), self.clients * self.shards_per_client
        )
        order = rng.permutation(len(shards)).reshape(self.clients, -1)
        return [np.concatenate([shards[s] for s in chosen]) for chosen in order], None


@dataclass(frozen=True)
class Iid:
    """All clients alike: the pool shuffled and cut into parts of (nearly) equal size."""

    clients: int = 20

    def __post_init__(self) -> None:
        """Refuse numbers that no pool can satisfy."""
        require_at_least(2, clients=self.clients)

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Shuffle the pool and cut it."""
        refuse_too_many_clients(self.clients, labels)
        return list(np.array_split(rng.permutation(len(labels)), self.clients)), None


@dataclass(frozen=True)
class Natural:
    """The clients the source itself names: writers, hospitals, people, files."""

    def assign(
        self, labels: np.ndarray, test_labels: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Make one client per distinct value of ``labels``, which here are the owners."""
        order = np.argsort(labels, kind="stable")
        _, starts = np.unique(labels[order], return_index=True)
        return list(np.split(order, starts[1:])), None


PARTITIONS: dict[str, type[Partition]] = {
    "class-groups": ClassGroups,
    "dirichlet": Dirichlet,
    "dirichlet-labels": DirichletLabels,
    "shards": Shards,
    "natural": Natural,
    "iid": Iid,
}
"""Every partition by the name an experiment file uses."""

class_groups = ClassGroups
dirichlet = Dirichlet
dirichlet_labels = DirichletLabels
shards = Shards
iid = Iid
natural = Natural


def partition_name(partition: Partition) -> str:
    """Return the name of a partition in the experiment file."""
    known = {cls: name for name, cls in PARTITIONS.items()}
    return known.get(type(partition), type(partition).__name__)


def option_names(cls: type | None) -> list[str]:
    """Return the option names of a partition or of a source that generates its clients."""
    return [] if cls is None else [f.name for f in fields(cls)]
