r"""How different the clients are: distances between their data, and what these say (P §4.1).

- Total variation of the labels, ½ Σ_c |p_i(c) − p(c)|: what class imbalance alone can do. Numbers
  are taken by the tenths of all training labels they fall into.
- 1-Wasserstein of the examples: what it costs to carry one client's data over to another's. An
  example is its decoded features beside its label, z = (x, λ/√2 · onehot(y)): two examples of
  different classes are λ apart even if they look the same, and λ is the median distance of the
  features, so that a label weighs as much as a picture.

Exact transport (POT) takes time cubic in the number of examples; beyond a size distances are
sliced: the mean over random directions of the distance in one dimension, which is sorting. It is
scaled so that for two clouds that differ by a shift both agree; for others it is a lower estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from headstart.data.federated import FederatedDataset
from headstart.options import require_at_least, require_one_of

How = Literal["exact", "sliced"]
EXACT_PAIRS, EXACT_EXAMPLES = 300, 128
"""Up to so many pairs of clients, and examples of each, transport is exact by default."""
DIRECTIONS = 200
CHANCE_DRAWS = 20


class Distances(NamedTuple):
    """Between clients, and from each to the mean of all."""

    clients: np.ndarray
    """Whose the rows are."""
    pairwise: np.ndarray
    to_mean: np.ndarray
    how: str
    """How they were found, in words."""
    chance: np.ndarray
    """How far from the mean a client of the same size comes if all draw from one distribution:
    what 95 % of such clients stay below."""

    @property
    def beyond_chance(self) -> np.ndarray:
        """Which clients are farther from the mean than chance explains."""
        return self.to_mean > self.chance

    @property
    def mean_square(self) -> float:
        """Mean over clients of the squared distance to the mean: what §4.1 is about."""
        return float(np.mean(self.to_mean**2))


@dataclass(frozen=True)
class Similarity:
    """What a distance suggests for γ_G and γ_H (P §4.1)."""

    gamma_G: float
    gamma_H: float


def label_distributions(data: FederatedDataset) -> np.ndarray:
    """Shares of the classes among each client's training labels, (clients, classes).

    Of numbers: shares of the tenths of all labels. Of labels that are on or off: each one's share
    of all that are on, and last the share of examples with none.
    """
    kinds = _label_kinds(data)
    rows = []
    for client in range(data.known_clients):
        start, count = int(data.offsets[client]), int(data.train_counts[client])
        counts = kinds.counts(np.asarray(data.y[start : start + count]))
        rows.append(counts / counts.sum())
    return np.array(rows)


def label_names(data: FederatedDataset) -> list[str]:
    """What the columns of :func:`label_distributions` are called."""
    return _label_kinds(data).names


class _Kinds(NamedTuple):
    """Labels as one of several kinds: their names, and how to count them."""

    names: list[str]
    counts: Callable[[np.ndarray], np.ndarray]


def _label_kinds(data: FederatedDataset) -> _Kinds:
    schema = data.schema
    names = [str(name) for name in schema.class_names or range(schema.classes)]
    if schema.target == "number":
        return _tenths(data)
    if schema.target == "labels":
        return _Kinds([*names, "none"], _count_labels)
    return _Kinds(names, lambda y: np.bincount(y.ravel(), minlength=schema.classes))


def _count_labels(y: np.ndarray) -> np.ndarray:
    none = np.count_nonzero(~np.any(y, axis=1))
    return np.append(np.sum(y, axis=0, dtype=np.int64), none)


def _tenths(data: FederatedDataset) -> _Kinds:
    """Numbers (the first of several) by the tenth of the known clients' labels they are in."""
    last = int(data.offsets[data.known_clients])
    values = np.asarray(data.y[:last]).reshape(last, -1)[:, 0]
    cuts = np.quantile(values, np.linspace(0.1, 0.9, 9))
    names = [*(f"≤ {cut:.3g}" for cut in cuts), f"> {cuts[-1]:.3g}"]

    def counts(y: np.ndarray) -> np.ndarray:
        places = np.searchsorted(cuts, y.reshape(len(y), -1)[:, 0])
        return np.bincount(places, minlength=len(names))

    return _Kinds(names, counts)


def total_variation(data: FederatedDataset, *, clients: int = 1000, seed: int = 0) -> Distances:
    """Between label distributions; with more known clients than asked for, between some."""
    require_at_least(2, clients=clients)
    chosen = _some(data.known_clients, clients, seed)
    p = label_distributions(data)
    every, mean = p[chosen], p.mean(axis=0)
    pairwise = np.array([0.5 * np.sum(np.abs(every - row), axis=1) for row in every])
    to_mean = 0.5 * np.sum(np.abs(every - mean), axis=1)
    rng = np.random.default_rng(seed)

    def drawn(size: int) -> list[float]:
        counts = rng.multinomial(size, mean, size=20 * CHANCE_DRAWS)
        return (0.5 * np.sum(np.abs(counts / size - mean), axis=1)).tolist()

    each = data.y[:1].size if data.schema.target == "class" else 1
    sizes = [each * int(data.train_counts[client]) for client in chosen]
    return Distances(chosen, pairwise, to_mean, "exact", _by_chance(sizes, drawn))


def wasserstein(
    data: FederatedDataset,
    *,
    clients: int = 50,
    examples: int = EXACT_EXAMPLES,
    how: How | None = None,
    seed: int = 0,
) -> Distances:
    """1-Wasserstein between clients' examples, at most so many clients and examples of each."""
    require_at_least(2, clients=clients, examples=examples)
    chosen = _some(data.known_clients, clients, seed)
    clouds = _clouds(data, chosen, examples, seed)
    pooled = _pooled(clouds, examples, seed)
    pairs = len(chosen) * (len(chosen) - 1) // 2
    if how is None:
        how = "exact" if pairs <= EXACT_PAIRS and examples <= EXACT_EXAMPLES else "sliced"
    require_one_of(("exact", "sliced"), how=how)
    measure = _exact if how == "exact" else _Sliced(clouds[0].shape[1], seed)
    pairwise = np.zeros((len(chosen), len(chosen)))
    for i in range(len(chosen)):
        for j in range(i):
            pairwise[i, j] = pairwise[j, i] = measure(clouds[i], clouds[j])
    to_mean = np.array([measure(cloud, pooled) for cloud in clouds])
    rng = np.random.default_rng(seed)

    def drawn(size: int) -> list[float]:
        return [measure(_drawn(clouds, size, rng), pooled) for _ in range(CHANCE_DRAWS)]

    sizes = [len(cloud) for cloud in clouds]
    words = f"{how}, {len(chosen)} clients, at most {max(sizes)} examples of each"
    return Distances(chosen, pairwise, to_mean, words, _by_chance(sizes, drawn))


def label_bound(total_variations: np.ndarray, *, B: float) -> float:
    r"""γ_G ≤ 2B · √(mean TV²) (P §4.1), if clients differ in their labels alone.

    ``total_variations``: from each client's label shares to their mean. ``B`` bounds the gradient
    of **every example's** loss, ‖∇l(z; w)‖ ≤ B (P (14a)). The clients' mean gradients are not
    enough: two classes with gradients ±g, at shares ½ ± 0.1, have γ_G = 0.2‖g‖, while both mean
    gradients have length 0.2‖g‖ and would give 0.04‖g‖.

    >>> round(label_bound(np.array([0.1, 0.1]), B=1.0), 6)
    0.2
    """
    return 2 * B * math.sqrt(float(np.mean(total_variations**2)))


def suggested_by_examples(distances: Distances, *, L_z: float, rho_z: float) -> Similarity:
    """γ_G ≈ L_z · √(mean W_1²), γ_H ≈ ρ_z · √(mean W_1²): an estimate.

    P §4.1 proves "at most" for suprema: ``L_z`` and ``rho_z`` say how fast the gradient and the
    Hessian of the loss change with an example, over all pairs, and W_1 is exact. Values found in
    data are lower ones, and so is a sliced distance, so γ may be larger than this.
    """
    root = math.sqrt(distances.mean_square)
    return Similarity(L_z * root, rho_z * root)


def _by_chance(sizes: Sequence[int], drawn: Callable[[int], list[float]]) -> np.ndarray:
    """What 95 % of clients of these sizes stay below.

    A size stands for those up to twice as large, which chance moves less.
    """
    found = {
        size: float(np.quantile(drawn(size), 0.95)) for size in {_rounded_down(n) for n in sizes}
    }
    return np.array([found[_rounded_down(n)] for n in sizes])


def _rounded_down(size: int) -> int:
    return 2 ** int(math.log2(size)) if size > 8 else size


def _some(count: int, most: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def _clouds(
    data: FederatedDataset, chosen: np.ndarray, examples: int, seed: int
) -> list[np.ndarray]:
    """Each client's training examples as points."""
    rng = np.random.default_rng(seed)
    rows = []
    for client in chosen:
        start, count = int(data.offsets[client]), int(data.train_counts[client])
        rows.append(start + rng.permutation(count)[:examples])
    every = as_points(data, np.concatenate(rows), seed=seed)
    return np.split(every, np.cumsum([len(some) for some in rows])[:-1])


def as_points(data: FederatedDataset, rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Examples as points: features beside the label, which weighs as much as they do."""
    weight = _label_weight(data, np.random.default_rng(seed))
    labels = _label_points(data, rows)
    return np.concatenate([_features(data, rows), weight / math.sqrt(2) * labels], axis=1)


def _label_points(data: FederatedDataset, rows: np.ndarray) -> np.ndarray:
    """One hot number for a class; numbers with variance 1, so that two differ by √2 as well."""
    y = np.asarray(data.y[rows])
    if data.schema.target == "class":
        return _one_hot(y, data.schema.classes)
    values = y.reshape(len(y), -1).astype(float)
    if data.schema.target == "labels":
        return values
    spread = np.std(np.asarray(data.y).reshape(len(data.y), -1), axis=0)
    return values / np.where(spread > 0, spread, 1) / math.sqrt(values.shape[1])


def _features(data: FederatedDataset, rows: np.ndarray) -> np.ndarray:
    if data.schema.vocabulary:
        return _one_hot(np.asarray(data.x[rows]), data.schema.vocabulary)
    decoded = np.asarray(data.schema.decode(data.x[rows]), float)
    return decoded.reshape(len(rows), -1)


def _one_hot(values: np.ndarray, size: int) -> np.ndarray:
    """Shares of the values in each row; a single label is one hot number."""
    flat = values.reshape(len(values), -1)
    return np.stack([np.bincount(row, minlength=size) / len(row) for row in flat])


def _label_weight(data: FederatedDataset, rng: np.random.Generator) -> float:
    """λ: the median distance of two examples' features, each of a random client's training data."""
    pairs = [_features(data, training_rows(data, rng, 1000)) for _ in range(2)]
    return float(np.median(np.linalg.norm(pairs[0] - pairs[1], axis=1)))


def training_rows(data: FederatedDataset, rng: np.random.Generator, size: int) -> np.ndarray:
    """So many examples' rows, each of a known client drawn at random."""
    clients = rng.integers(data.known_clients, size=size)
    return data.offsets[clients] + rng.integers(np.asarray(data.train_counts)[clients])


def _pooled(clouds: list[np.ndarray], examples: int, seed: int) -> np.ndarray:
    """The mean distribution: every client with the same weight."""
    return _drawn(clouds, max(examples, 2 * len(clouds)), np.random.default_rng(seed))


def _drawn(clouds: list[np.ndarray], size: int, rng: np.random.Generator) -> np.ndarray:
    whose = rng.integers(len(clouds), size=size)
    return np.stack([clouds[i][rng.integers(len(clouds[i]))] for i in whose])


def _exact(a: np.ndarray, b: np.ndarray) -> float:
    import ot

    cost = np.sqrt(np.maximum(_squares(a)[:, None] + _squares(b) - 2 * a @ b.T, 0))
    return float(ot.emd2(np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b)), cost))


def _squares(a: np.ndarray) -> np.ndarray:
    return np.sum(a**2, axis=1)


class _Sliced:
    """Mean distance over random directions; of a shift by v it gives ‖v‖."""

    def __init__(self, dimensions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        directions = rng.normal(size=(dimensions, DIRECTIONS))
        self.directions = directions / np.linalg.norm(directions, axis=0)
        # E|⟨θ, v⟩| = ‖v‖ Γ(d/2) / (√π Γ((d+1)/2)) for θ uniform on the sphere.
        halves = math.lgamma((dimensions + 1) / 2) - math.lgamma(dimensions / 2)
        self.scale = math.sqrt(math.pi) * math.exp(halves)

    def __call__(self, a: np.ndarray, b: np.ndarray) -> float:
        grid = (np.arange(256) + 0.5) / 256
        one, other = (np.quantile(c @ self.directions, grid, axis=0) for c in (a, b))
        return self.scale * float(np.mean(np.abs(one - other)))
