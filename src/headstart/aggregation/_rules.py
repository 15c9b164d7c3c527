r"""Rules that need all replies of a round: robust means.

A single client with large numbers can move a weighted mean anywhere. Not so with these rules: as
long as fewer than half (Krum: fewer than n/2 − 1) of the clients lie, the result stays among the
honest ones. The cost is memory for all replies, a bias where honest clients differ, and no secure
aggregation: the server sees every reply.
"""

from __future__ import annotations

from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from headstart.aggregation._interfaces import AggregationRule
from headstart.errors import ConfigError
from headstart.options import require_at_least
from headstart.trees import Tree, add


@final
class Median(AggregationRule):
    """The median of every coordinate (Yin et al. 2018). Weights do not count."""

    name: ClassVar[str] = "median"

    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Return the median of every coordinate."""
        return jax.tree.map(lambda u: jnp.median(u, axis=0).astype(u.dtype), replies)


@final
class TrimmedMean(AggregationRule):
    """The mean of every coordinate without its extremes (Yin et al. 2018). Weights do not count."""

    name: ClassVar[str] = "trimmed-mean"

    trim: float = eqx.field(static=True, default=0.2)
    """Share of the values that is left out at each end, rounded down to whole clients."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"trim={self.trim} must be at least 0 and less than 0.5")

    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Return the mean of the values in the middle."""
        cut = int(self.trim * len(weights))

        def middle(u: Array) -> Array:
            return jnp.mean(jnp.sort(u, axis=0)[cut : len(u) - cut], axis=0).astype(u.dtype)

        return jax.tree.map(middle, replies)


@final
class Krum(AggregationRule):
    """The reply that is nearest to its neighbours (Blanchard et al. 2017). Weights do not count.

    A reply's score is the sum of its squared distances to the n − f − 2 nearest others; the mean of
    the ``selected`` best is taken (Multi-Krum for more than one).
    """

    name: ClassVar[str] = "krum"

    byzantine: int = eqx.field(static=True, default=1)
    """f: how many clients may lie; n ≥ 2f + 3 are needed."""
    selected: int = eqx.field(static=True, default=1)
    """How many of the best are averaged."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_at_least(0, byzantine=self.byzantine)
        require_at_least(1, selected=self.selected)

    def needs(self) -> int:
        """Return 2f + 3, and at least as many as are averaged."""
        return max(2 * self.byzantine + 3, self.selected)

    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Return the mean of the replies with the smallest scores."""
        near = jnp.sort(squared_distances(replies), axis=1)[
            :, 1 : len(weights) - self.byzantine - 1
        ]
        best = jnp.argsort(jnp.sum(near, axis=1))[: self.selected]
        return jax.tree.map(lambda u: jnp.mean(u[best], axis=0).astype(u.dtype), replies)


@final
class GeometricMedian(AggregationRule):
    r"""The point with the least weighted sum of distances (RFA, Pillutla et al. 2022).

    Smoothed Weiszfeld: z ← Σ β_i u_i / Σ β_i with β_i = weight_i / max(ν, ‖u_i − z‖).
    """

    name: ClassVar[str] = "geometric-median"

    iterations: int = eqx.field(static=True, default=32)
    smoothing: float = 1e-6
    """ν: the least distance; smaller ones count as this."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_at_least(1, iterations=self.iterations)

    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Take ``iterations`` Weiszfeld steps from the weighted mean."""

        def average(shares: Float[Array, " clients"]) -> Tree:
            return jax.tree.map(
                lambda u: jnp.tensordot(shares / jnp.sum(shares), u, axes=1).astype(u.dtype),
                replies,
            )

        def approach(_: Array, z: Tree) -> Tree:
            away = jax.vmap(lambda u: squared_norm(add(u, z, -1.0)))(replies)
            return average(weights / jnp.maximum(self.smoothing, jnp.sqrt(away)))

        return jax.lax.fori_loop(0, self.iterations, approach, average(weights))


def squared_norm(tree: Tree) -> Float[Array, ""]:
    """Return ‖tree‖²."""
    return sum((jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)), jnp.zeros(()))


def squared_distances(replies: Tree) -> Float[Array, "clients clients"]:
    """Return ‖u_i − u_j‖² for all pairs; one row of differences at a time."""

    def row(mine: Tree) -> Float[Array, " clients"]:
        return jax.vmap(lambda other: squared_norm(add(other, mine, -1.0)))(replies)

    return jax.lax.map(row, replies)
