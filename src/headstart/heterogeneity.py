r"""How different the clients are: distances between their data, and what they imply (P §4.1).

- Total variation of the labels, ½ Σ_c |p_i(c) − p(c)|: the effect of class imbalance alone.
  Numeric labels are binned by the deciles of all training labels.
- 1-Wasserstein distance of the examples: the cost of transporting one client's data to another's.
  An example is its decoded features with its label, z = (x, λ/√2 · onehot(y)). Two examples of
  different classes are λ apart even if they look the same; λ is the median distance of the
  features, so a label weighs as much as the features do.

Exact transport takes time cubic in the number of examples; beyond a size distances are
sliced: the mean over random directions of the one-dimensional distance, which only needs sorting.
The scale is chosen so that both agree for two clouds that differ by a shift; otherwise the sliced
distance is a lower estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from headstart.data._federated import FederatedDataset
from headstart.options import require_at_least, require_one_of

__all__ = [
    "Distances",
    "Similarity",
    "as_points",
    "draw_training_rows",
    "estimate_similarity",
    "label_bound",
    "label_distributions",
    "label_names",
    "total_variation",
    "wasserstein",
]

How = Literal["exact", "sliced"]
EXACT_PAIRS, EXACT_EXAMPLES = 300, 128
"""The most pairs of clients, and examples of each, for which transport is exact by default."""
MOST_COPIES = 512
"""Assignments of more points take longer than a linear program."""
DIRECTIONS = 200
CHANCE_DRAWS = 20


class Distances(NamedTuple):
    """Distances between clients, and from each client to the mean of all."""

    clients: np.ndarray
    """The client of each row."""
    pairwise: np.ndarray
    to_mean: np.ndarray
    how: str
    """How they were computed, in words."""
    chance: np.ndarray
    """The 95th percentile of the distance to the mean for a client of the same size, if all clients
    drew from one distribution."""

    @property
    def beyond_chance(self) -> np.ndarray:
        """Whether each client is farther from the mean than chance explains."""
        return self.to_mean > self.chance

    @property
    def mean_square(self) -> float:
        """The mean over clients of the squared distance to the mean, as in §4.1."""
        return float(np.mean(self.to_mean**2))


@dataclass(frozen=True)
class Similarity:
    """Estimates of γ_G and γ_H from a distance (P §4.1)."""

    gamma_G: float
    gamma_H: float


def label_distributions(data: FederatedDataset) -> np.ndarray:
    """Return the class shares of each client's training labels, (clients, classes).

    For numeric labels: the shares of the deciles of all labels. For on/off labels: the share of
    each among all that are on, and last the share of examples with none on.
    """
    kinds = _label_kinds(data)
    rows = []
    for client in range(data.known_clients):
        start, count = int(data.offsets[client]), int(data.train_counts[client])
        counts = kinds.counts(np.asarray(data.y[start : start + count]))
        rows.append(counts / counts.sum())
    return np.array(rows)


def label_names(data: FederatedDataset) -> list[str]:
    """Return the column names of :func:`label_distributions`."""
    return _label_kinds(data).names


class _LabelKinds(NamedTuple):
    """The kinds of labels: their names, and a function that counts them."""

    names: list[str]
    counts: Callable[[np.ndarray], np.ndarray]


def _label_kinds(data: FederatedDataset) -> _LabelKinds:
    schema = data.schema
    names = [str(name) for name in schema.class_names or range(schema.classes)]
    if schema.target == "number":
        return _deciles(data)
    if schema.target == "labels":
        return _LabelKinds([*names, "none"], _count_labels)
    return _LabelKinds(names, lambda y: np.bincount(y.ravel(), minlength=schema.classes))


def _count_labels(y: np.ndarray) -> np.ndarray:
    none = np.count_nonzero(~np.any(y, axis=1))
    return np.append(np.sum(y, axis=0, dtype=np.int64), none)


def _deciles(data: FederatedDataset) -> _LabelKinds:
    """Bin numbers (the first of several) by the deciles of the known clients' labels."""
    last = int(data.offsets[data.known_clients])
    values = np.asarray(data.y[:last]).reshape(last, -1)[:, 0]
    cuts = np.quantile(values, np.linspace(0.1, 0.9, 9))
    names = [*(f"≤ {cut:.3g}" for cut in cuts), f"> {cuts[-1]:.3g}"]

    def counts(y: np.ndarray) -> np.ndarray:
        places = np.searchsorted(cuts, y.reshape(len(y), -1)[:, 0])
        return np.bincount(places, minlength=len(names))

    return _LabelKinds(names, counts)


def total_variation(data: FederatedDataset, *, clients: int = 1000, seed: int = 0) -> Distances:
    """Return distances between label distributions of at most ``clients`` known clients."""
    require_at_least(2, clients=clients)
    chosen = _choose_clients(data.known_clients, clients, seed)
    p = label_distributions(data)
    every, mean = p[chosen], p.mean(axis=0)
    pairwise = np.array([0.5 * np.sum(np.abs(every - row), axis=1) for row in every])
    to_mean = 0.5 * np.sum(np.abs(every - mean), axis=1)
    rng = np.random.default_rng(seed)

    def draw_distances(size: int) -> list[float]:
        counts = rng.multinomial(size, mean, size=20 * CHANCE_DRAWS)
        return (0.5 * np.sum(np.abs(counts / size - mean), axis=1)).tolist()

    each = data.y[:1].size if data.schema.target == "class" else 1
    sizes = [each * int(data.train_counts[client]) for client in chosen]
    return Distances(chosen, pairwise, to_mean, "exact", _chance_levels(sizes, draw_distances))


def wasserstein(
    data: FederatedDataset,
    *,
    clients: int = 50,
    examples: int = EXACT_EXAMPLES,
    how: How | None = None,
    seed: int = 0,
) -> Distances:
    """Return 1-Wasserstein distances between at most ``clients`` clients, ``examples`` of each."""
    require_at_least(2, clients=clients, examples=examples)
    chosen = _choose_clients(data.known_clients, clients, seed)
    clouds = _load_clouds(data, chosen, examples, seed)
    pooled = _pool(clouds, examples, seed)
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

    def draw_distances(size: int) -> list[float]:
        return [measure(_draw_examples(clouds, size, rng), pooled) for _ in range(CHANCE_DRAWS)]

    sizes = [len(cloud) for cloud in clouds]
    words = f"{how}, {len(chosen)} clients, at most {max(sizes)} examples of each"
    return Distances(chosen, pairwise, to_mean, words, _chance_levels(sizes, draw_distances))


def label_bound(total_variations: np.ndarray, *, B: float) -> float:
    r"""γ_G ≤ 2B · √(mean TV²) (P §4.1), if clients differ only in their labels.

    ``total_variations`` are the distances of each client's label shares from their mean. ``B``
    bounds the gradient of **every example's** loss, ‖∇l(z; w)‖ ≤ B (P (14a)). The clients'
    mean gradients are not enough: two classes with gradients ±g, at shares ½ ± 0.1, have
    γ_G = 0.2‖g‖, while both mean gradients have length 0.2‖g‖ and would give 0.04‖g‖.

    >>> round(label_bound(np.array([0.1, 0.1]), B=1.0), 6)
    0.2
    """
    return 2 * B * math.sqrt(float(np.mean(total_variations**2)))


def estimate_similarity(distances: Distances, *, L_z: float, rho_z: float) -> Similarity:
    """Estimate γ_G ≈ L_z · √(mean W_1²) and γ_H ≈ ρ_z · √(mean W_1²).

    P §4.1 proves "at most" for suprema: ``L_z`` and ``rho_z`` are the Lipschitz constants of the
    gradient and the Hessian of the loss in the example, over all pairs, and W_1 is exact. Values
    from data are lower, and so is a sliced distance, so γ may be larger than this.
    """
    root = math.sqrt(distances.mean_square)
    return Similarity(L_z * root, rho_z * root)


def _chance_levels(
    sizes: Sequence[int], draw_distances: Callable[[int], list[float]]
) -> np.ndarray:
    """Return the 95th percentile of the distance for clients of these sizes.

    Each size is rounded down to a power of two; chance moves larger clients less.
    """
    levels = {
        size: float(np.quantile(draw_distances(size), 0.95))
        for size in {_round_down(n) for n in sizes}
    }
    return np.array([levels[_round_down(n)] for n in sizes])


def _round_down(size: int) -> int:
    return 2 ** int(math.log2(size)) if size > 8 else size


def _choose_clients(count: int, most: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def _load_clouds(
    data: FederatedDataset, chosen: np.ndarray, examples: int, seed: int
) -> list[np.ndarray]:
    """Return each client's training examples as points."""
    rng = np.random.default_rng(seed)
    rows = []
    for client in chosen:
        start, count = int(data.offsets[client]), int(data.train_counts[client])
        rows.append(start + rng.permutation(count)[:examples])
    every = as_points(data, np.concatenate(rows), seed=seed)
    return np.split(every, np.cumsum([len(some) for some in rows])[:-1])


def as_points(data: FederatedDataset, rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Return examples as points: features and a label that weighs as much as they do."""
    weight = _label_weight(data, np.random.default_rng(seed))
    labels = _label_points(data, rows)
    return np.concatenate([_features(data, rows), weight / math.sqrt(2) * labels], axis=1)


def _label_points(data: FederatedDataset, rows: np.ndarray) -> np.ndarray:
    """Return classes one-hot, and numbers scaled to variance 1, so two differ by √2 as well."""
    y = np.asarray(data.y[rows])
    if data.schema.target == "class":
        return _one_hot(y, data.schema.classes)
    values = y.reshape(len(y), -1).astype(float)
    if data.schema.target == "labels":
        return values
    deviation = np.std(np.asarray(data.y).reshape(len(data.y), -1), axis=0)
    return values / np.where(deviation > 0, deviation, 1) / math.sqrt(values.shape[1])


def _features(data: FederatedDataset, rows: np.ndarray) -> np.ndarray:
    if data.schema.vocabulary:
        return _one_hot(np.asarray(data.x[rows]), data.schema.vocabulary)
    decoded = np.asarray(data.schema.decode(data.x[rows]), float)
    return decoded.reshape(len(rows), -1)


def _one_hot(values: np.ndarray, size: int) -> np.ndarray:
    """Return the shares of the values in each row; a single label becomes one-hot."""
    flat = values.reshape(len(values), -1)
    return np.stack([np.bincount(row, minlength=size) / len(row) for row in flat])


def _label_weight(data: FederatedDataset, rng: np.random.Generator) -> float:
    """Return λ: the median feature distance of two training examples of random clients."""
    pairs = [_features(data, draw_training_rows(data, rng, 1000)) for _ in range(2)]
    return float(np.median(np.linalg.norm(pairs[0] - pairs[1], axis=1)))


def draw_training_rows(data: FederatedDataset, rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw ``size`` training rows, each from a known client drawn at random."""
    clients = rng.integers(data.known_clients, size=size)
    return data.offsets[clients] + rng.integers(np.asarray(data.train_counts)[clients])


def _pool(clouds: list[np.ndarray], examples: int, seed: int) -> np.ndarray:
    """Sample the mean distribution: every client has the same weight."""
    return _draw_examples(clouds, max(examples, 2 * len(clouds)), np.random.default_rng(seed))


def _draw_examples(clouds: list[np.ndarray], size: int, rng: np.random.Generator) -> np.ndarray:
    owners = rng.integers(len(clouds), size=size)
    return np.stack([clouds[i][rng.integers(len(clouds[i]))] for i in owners])


def _exact(a: np.ndarray, b: np.ndarray) -> float:
    """Return the least mean cost of carrying the points of a over to those of b."""
    cost = np.sqrt(np.maximum(_squares(a)[:, None] + _squares(b) - 2 * a @ b.T, 0))
    size = math.lcm(*cost.shape)
    return _assignment_cost(cost, size) if size <= MOST_COPIES else _transport_cost(cost)


def _assignment_cost(cost: np.ndarray, size: int) -> float:
    """Return the least mean cost of a one-to-one assignment, each point copied up to ``size``.

    With equally many points of equal weight, some optimal plan is an assignment (Birkhoff).
    """
    from scipy.optimize import linear_sum_assignment

    copied = cost.repeat(size // cost.shape[0], axis=0).repeat(size // cost.shape[1], axis=1)
    return float(np.mean(copied[linear_sum_assignment(copied)]))


def _transport_cost(cost: np.ndarray) -> float:
    """Return the least cost Σ p_ij c_ij of plans p ≥ 0 with row sums 1/n and column sums 1/m."""
    from scipy import sparse
    from scipy.optimize import linprog

    n, m = cost.shape
    rows = sparse.kron(sparse.eye_array(n), np.ones((1, m)))
    columns = sparse.kron(np.ones((1, n)), sparse.eye_array(m))
    totals = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    constraints = sparse.vstack([rows, columns], format="csr")
    return float(linprog(cost.ravel(), A_eq=constraints, b_eq=totals, method="highs-ds").fun)


def _squares(a: np.ndarray) -> np.ndarray:
    return np.sum(a**2, axis=1)


class _Sliced:
    """The mean distance over random directions; ‖v‖ for a shift by v."""

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
