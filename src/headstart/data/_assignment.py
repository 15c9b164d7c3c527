"""Building blocks of partitions: draw from a class, assign counts, draw shares."""

from __future__ import annotations

import numpy as np

from headstart.errors import ConfigError

Rows = list[np.ndarray]
"""One array of row numbers per client."""


class ClassExamples:
    """The examples of one class, each assigned once before any is used again."""

    def __init__(self, rows: np.ndarray, rng: np.random.Generator):
        self.rows, self.rng, self.assigned = rows, rng, 0

    def draw(self, k: int) -> np.ndarray:
        """Return the next k examples for one client."""
        unused = self.rows[self.assigned : self.assigned + k]
        already_assigned = self.rows[: self.assigned]
        self.assigned += len(unused)
        reused = self.rng.permutation(already_assigned)[: k - len(unused)]
        still_missing = k - len(unused) - len(reused)
        repeated = self.rng.choice(self.rows, still_missing) if still_missing else self.rows[:0]
        return np.concatenate([unused, reused, repeated])


def rows_by_class(labels: np.ndarray, rng: np.random.Generator) -> Rows:
    """Return the rows of each class that occurs, in random order."""
    if labels.ndim != 1:
        raise ConfigError("partition by class needs one label per example; use natural or iid")
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def assign_counts(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Rows:
    """Give client i ``counts[i, c]`` examples of class c; no two clients share an example."""
    parts = []
    for c in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == c))
        parts.append(np.split(rows, np.cumsum(counts[:, c]))[:-1])
    return [np.concatenate(client_rows) for client_rows in zip(*parts, strict=True)]


def draw_shares(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw from Dir(α, …, α), also where α is too small or too large for floating point."""
    with np.errstate(all="ignore"):
        share = rng.dirichlet(np.full(size, alpha))
    if np.isfinite(share).all() and share.sum() > 0:
        return share / share.sum()
    corner = np.eye(size)[rng.integers(size)]
    return corner if alpha < 1 else np.full(size, 1 / size)


def refuse_too_many_clients(
    clients: int, labels: np.ndarray, each: int = 2, option: str = ""
) -> None:
    """Refuse more clients than the examples can serve, before memory is allocated for them."""
    most = len(labels) // each
    if clients > most:
        also = f" or less {option} than {each}" if option and each > 2 else ""
        raise ConfigError(
            f"clients={clients} is too many for {len(labels)} examples, {each} or more each; "
            f"use at most {most}{also}"
        )
