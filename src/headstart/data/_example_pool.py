"""A source's examples before they are distributed to clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headstart.data._federated import FederatedDataset
from headstart.data._partition import ClassGroups, Iid, Natural, Partition, Rows, partition_name
from headstart.data._schema import Schema
from headstart.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Pool:
    """Examples with labels, and what the source says of whose they are."""

    name: str
    x: np.ndarray
    y: np.ndarray
    schema: Schema
    test_x: np.ndarray | None = None
    test_y: np.ndarray | None = None
    """The source's own test examples, if it has any."""
    owner: np.ndarray | None = None
    """Number of the natural client each example belongs to."""
    owner_names: Sequence[str] = ()
    new_owners: frozenset[int] = frozenset()
    """Natural clients the source keeps apart, such as the writers of a test set."""
    ordered: bool = False
    """Examples follow one another, as in a text: the held-out part is a client's last part."""
    standardize: bool = False
    """Shift and scale every feature by what the known clients train on."""

    def __repr__(self) -> str:
        """What there is, in a line."""
        owners = "" if self.owner is None else f" of {len(np.unique(self.owner)):,} clients"
        return (
            f"Pool({self.name}: {len(self.y):,} examples{owners}, shape {self.schema.shape}; "
            "split() gives them to clients)"
        )

    def split(
        self,
        partition: Partition | None = None,
        *,
        new_clients: int | None = None,
        test_fraction: float = 0.2,
        min_examples: int | None = None,
        seed: int = 0,
    ) -> FederatedDataset:
        """Give the examples to clients, each with a training and a held-out split.

        Without a partition: the source's own clients, or class groups of 20 clients (20 equal
        clients where labels are not classes).
        ``new_clients`` of the clients, drawn at random, are kept out of training and stand last.
        A source that names its own new clients has all of them by default, or this many of them.
        Clients with fewer than ``min_examples`` examples are left out; without it they are an
        error. The seed alone decides; partition, choice of new clients and splits draw from three
        independent streams of it, so that changing one leaves the others as they were.

        >>> import headstart.data as data
        >>> split = data.load("digits").split(data.class_groups(clients=20), new_clients=4)
        >>> split.clients, split.known_clients
        (20, 16)
        """
        check_split(test_fraction, min_examples, seed)
        deal, choose, cut = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
        )
        partition = partition or self._default_partition()
        rows, held = self._assign(partition, deal)
        natural = isinstance(partition, Natural)
        large = _large_enough(rows, held, min_examples)
        order, new = self._order(large, natural, new_clients, choose)
        if held is None and not self.ordered:
            splits = _cut_all([rows[c] for c in order], len(self.y), test_fraction, cut)
        else:
            splits = [
                self._cut(rows[c], None if held is None else held[c], test_fraction, cut)
                for c in order
            ]
        data = self._gather(splits, new, self._names(order) if natural else None)
        return replace(
            _standardized(data) if self.standardize else data,
            description=f"{self.name}, {partition_name(partition)}",
        )

    def _default_partition(self) -> Partition:
        if self.owner is not None:
            return Natural()
        return ClassGroups() if self.schema.target == "class" else Iid()

    def _assign(self, partition: Partition, rng: np.random.Generator) -> tuple[Rows, Rows | None]:
        if self.schema.target != "class" and getattr(partition, "by_class", False):
            raise ConfigError(
                f"partition={partition_name(partition)!r} needs class labels, which these "
                "data do not have; use natural or iid"
            )
        if not isinstance(partition, Natural):
            return partition.assign(self.y, self.test_y, rng)
        if self.owner is None:
            raise ConfigError(
                f"partition='natural': {self.name} does not say whose its examples are; "
                "use class-groups, dirichlet, dirichlet-labels, shards or iid"
            )
        return partition.assign(self.owner, None, rng)

    def _order(
        self, clients: np.ndarray, natural: bool, new: int | None, rng: np.random.Generator
    ) -> tuple[np.ndarray, int]:
        """Clients in their final order, and how many of them, the last ones, are new."""
        named = natural and bool(self.new_owners)
        apart = np.isin(self._owners()[clients], list(self.new_owners)) if named else None
        candidates = clients if apart is None else clients[apart]
        known = clients if apart is None else clients[~apart]
        count = (len(candidates) if named else 0) if new is None else new
        most = len(candidates) if named else len(clients) - 1
        if not 0 <= count <= most:
            raise ConfigError(f"new_clients={count} of {len(clients)} clients: use 0 to {most}")
        if named and not len(known):
            raise ConfigError("min_examples leaves no client to train on; use a smaller number")
        drawn = np.sort(rng.choice(candidates, count, replace=False))
        return np.concatenate([np.setdiff1d(known, drawn), drawn]).astype(np.int64), count

    def _cut(
        self, rows: np.ndarray, held: np.ndarray | None, fraction: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and held-out rows of one client; official test rows follow the pool's."""
        if held is not None:
            return rng.permutation(rows), held + len(self.y)
        rows = np.sort(rows)
        return rows[: -count_held_out(len(rows), fraction)], rows[
            -count_held_out(len(rows), fraction) :
        ]

    def _gather(
        self, splits: list[tuple[np.ndarray, np.ndarray]], new: int, names: list[str] | None
    ) -> FederatedDataset:
        rows = np.concatenate([part for split in splits for part in split])
        sizes = [len(train) + len(test) for train, test in splits]
        return FederatedDataset(
            x=_take(self.x, self.test_x, rows),
            y=_take(self.y, self.test_y, rows).astype(self.schema.label_type),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            train_counts=np.array([len(train) for train, _ in splits], np.int64),
            schema=self.schema,
            new_clients=new,
            names=names,
        )

    def _owners(self) -> np.ndarray:
        assert self.owner is not None
        return np.unique(self.owner)

    def _names(self, order: np.ndarray) -> list[str]:
        return [
            str(self.owner_names[o]) if self.owner_names else str(o) for o in self._owners()[order]
        ]


def _cut_all(
    clients: list[np.ndarray], examples: int, fraction: float, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and held-out rows of every client, at random.

    Where clients share rows, a row is held out for all of them or for none: otherwise one client
    would train on what another is scored on. The first client to hold a row decides.
    """
    undecided, train, held = range(3)
    fate = np.full(examples, undecided, np.int8)
    splits = []
    for rows in clients:
        distinct = rng.permutation(np.unique(rows))
        free = distinct[fate[distinct] == undecided]
        wanted = count_held_out(len(distinct), fraction) - np.count_nonzero(fate[distinct] == held)
        fate[free] = train
        fate[free[: max(0, wanted)]] = held
        apart = fate[rows] == held
        if len(free) < len(distinct) and (apart.all() or not apart.any()):
            raise ConfigError(
                "a client shares so many of its examples with others that nothing is left to train "
                "on or to hold out; use fewer clients or fewer examples for each"
            )
        splits.append((rng.permutation(rows[~apart]), rng.permutation(rows[apart])))
    return splits


def check_split(test_fraction: float, min_examples: int | None, seed: int) -> None:
    """Refuse options no pool could be split by."""
    if not 0 < test_fraction < 1:
        raise ConfigError(f"test_fraction={test_fraction} must lie between 0 and 1, both excluded")
    if min_examples is not None and min_examples < 2:
        raise ConfigError(
            f"min_examples={min_examples} must be at least 2, one to train on and one held out"
        )
    if seed < 0:
        raise ConfigError(f"seed={seed} must be at least 0")


def count_held_out(size: int, fraction: float) -> int:
    """Return how many of ``size`` examples to hold out: at least one, and at most all but one."""
    return max(1, min(size - 1, round(fraction * size)))


def _large_enough(rows: Rows, held: Rows | None, least: int | None) -> np.ndarray:
    """Numbers of the clients that have enough distinct examples."""
    sizes = np.array([len(np.unique(r)) for r in rows])
    if held is not None:
        sizes = sizes + np.array([len(h) for h in held])
    kept = np.flatnonzero(sizes >= (least or 0))
    if not len(kept):
        raise ConfigError(
            f"min_examples={least} leaves no client: the largest has {sizes.max(initial=0)} "
            "examples; use a smaller number"
        )
    return kept


def _take(x: np.ndarray, test_x: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Rows of x followed by test_x, without making that one array first."""
    if test_x is None or not len(rows) or rows.max() < len(x):
        return x[rows]
    taken = np.empty((len(rows), *x.shape[1:]), x.dtype)
    official = rows >= len(x)
    taken[~official] = x[rows[~official]]
    taken[official] = test_x[rows[official] - len(x)]
    return taken


def _standardized(data: FederatedDataset) -> FederatedDataset:
    """Features with mean 0 and variance 1 over the known clients' training splits.

    So are labels that are numbers.
    """
    last = int(data.offsets[data.known_clients])
    local = np.arange(last) - np.repeat(data.offsets[:-1], np.diff(data.offsets))[:last]
    trained = local < np.repeat(data.train_counts, np.diff(data.offsets))[:last]
    shift, scale = _shift_and_scale(data.x[:last][trained])
    schema = replace(data.schema, shift=shift, scale=scale)
    if schema.target == "number":
        shift, scale = _shift_and_scale(data.y[:last][trained].reshape(-1, schema.targets))
        schema = replace(schema, target_shift=shift, target_scale=scale)
    return replace(data, schema=schema)


def _shift_and_scale(values: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and one over the spread, along the last axis."""
    seen = values.astype(np.float64)
    axes = tuple(range(seen.ndim - 1))
    mean, spread = seen.mean(axis=axes), seen.std(axis=axes)
    # A constant column has a spread of rounding errors: leave it as wide as it is.
    wide = (spread > 1e-7 * np.abs(seen).max(axis=axes)) & (spread > 1e-30)
    return tuple(mean.tolist()), tuple((1 / np.where(wide, spread, 1)).tolist())
