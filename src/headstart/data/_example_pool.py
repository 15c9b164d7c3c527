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
    """Examples with labels and, where the source says so, the client each belongs to."""

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
    """Natural clients that the source keeps out of training, such as the writers of a test set."""
    ordered: bool = False
    """Whether examples form a sequence, as in a text: a client's last examples are held out."""
    standardize: bool = False
    """Shift and scale every feature by statistics of the known clients' training examples."""

    def __repr__(self) -> str:
        """Describe the pool in one line."""
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

        The default partition is the source's own clients, or class groups of 20 clients (20 equal
        clients where labels are not classes).
        ``new_clients`` clients, drawn at random, are kept out of training and come last. If the
        source names its own new clients, all of them are used by default, or this many of them.
        Clients with fewer than ``min_examples`` examples are left out. Without this option, a
        client with fewer than two is an error. All randomness comes from the seed: the partition,
        the choice of new clients and the splits use three independent streams, so changing one
        leaves the others unchanged.

        >>> import headstart.data as data
        >>> split = data.load("digits").split(data.class_groups(clients=20), new_clients=4)
        >>> split.clients, split.known_clients
        (20, 16)
        """
        check_split(test_fraction, min_examples, seed)
        assign_rng, choose_rng, cut_rng = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
        )
        partition = partition or self._default_partition()
        rows, held = self._assign(partition, assign_rng)
        natural = isinstance(partition, Natural)
        clients = _find_large_clients(rows, held, min_examples)
        order, new = self._order_clients(clients, natural, new_clients, choose_rng)
        if held is None and not self.ordered:
            splits = _cut_all([rows[c] for c in order], len(self.y), test_fraction, cut_rng)
        else:
            splits = [
                self._cut(rows[c], None if held is None else held[c], test_fraction, cut_rng)
                for c in order
            ]
        data = self._gather(splits, new, self._names(order) if natural else None)
        return replace(
            _standardize(data) if self.standardize else data,
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
                f"partition='natural': {self.name} does not name the client of each example; "
                "use class-groups, dirichlet, dirichlet-labels, shards or iid"
            )
        return partition.assign(self.owner, None, rng)

    def _order_clients(
        self, clients: np.ndarray, natural: bool, new: int | None, rng: np.random.Generator
    ) -> tuple[np.ndarray, int]:
        """Return the clients in their final order, new ones last, and how many are new."""
        named = natural and bool(self.new_owners)
        named_new = np.isin(self._owners()[clients], list(self.new_owners)) if named else None
        candidates = clients if named_new is None else clients[named_new]
        known = clients if named_new is None else clients[~named_new]
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
        """Return one client's training and held-out rows; official test rows follow the pool's."""
        if held is not None:
            return rng.permutation(rows), held + len(self.y)
        rows = np.sort(rows)
        cut = len(rows) - count_held_out(len(rows), fraction)
        return rows[:cut], rows[cut:]

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
    """Draw training and held-out rows of every client at random.

    A row that several clients share is held out for all of them or for none: otherwise one client
    would train on rows that another is scored on. The first client that has a row decides.
    """
    undecided, train, held = range(3)
    use = np.full(examples, undecided, np.int8)
    splits = []
    for rows in clients:
        distinct = rng.permutation(np.unique(rows))
        free = distinct[use[distinct] == undecided]
        already_held = np.count_nonzero(use[distinct] == held)
        more_held = count_held_out(len(distinct), fraction) - already_held
        use[free] = train
        use[free[: max(0, more_held)]] = held
        is_held = use[rows] == held
        if len(free) < len(distinct) and (is_held.all() or not is_held.any()):
            raise ConfigError(
                "a client shares so many of its examples with others that nothing is left to train "
                "on or to hold out; use fewer clients or fewer examples for each"
            )
        splits.append((rng.permutation(rows[~is_held]), rng.permutation(rows[is_held])))
    return splits


def check_split(test_fraction: float, min_examples: int | None, seed: int) -> None:
    """Refuse options that cannot split any pool."""
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


def _find_large_clients(rows: Rows, held: Rows | None, least: int | None) -> np.ndarray:
    """Return the numbers of the clients that have enough distinct examples."""
    sizes = np.array([len(np.unique(r)) for r in rows])
    if held is not None:
        sizes = sizes + np.array([len(h) for h in held])
    large = np.flatnonzero(sizes >= (least or 0))
    if not len(large):
        raise ConfigError(
            f"min_examples={least} leaves no client: the largest has {sizes.max(initial=0)} "
            "examples; use a smaller number"
        )
    return large


def _take(x: np.ndarray, test_x: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return rows of x followed by test_x, without joining the two arrays first."""
    if test_x is None or not len(rows) or rows.max() < len(x):
        return x[rows]
    taken = np.empty((len(rows), *x.shape[1:]), x.dtype)
    official = rows >= len(x)
    taken[~official] = x[rows[~official]]
    taken[official] = test_x[rows[official] - len(x)]
    return taken


def _standardize(data: FederatedDataset) -> FederatedDataset:
    """Scale features to mean 0 and variance 1 over the known clients' training splits.

    Labels that are numbers are scaled in the same way.
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
    """Return the mean and 1 / standard deviation of each entry of the last axis."""
    numbers = values.astype(np.float64)
    axes = tuple(range(numbers.ndim - 1))
    mean, deviation = numbers.mean(axis=axes), numbers.std(axis=axes)
    # The deviation of a constant column is rounding error: do not scale such a column.
    varies = (deviation > 1e-7 * np.abs(numbers).max(axis=axes)) & (deviation > 1e-30)
    return tuple(mean.tolist()), tuple((1 / np.where(varies, deviation, 1)).tolist())
