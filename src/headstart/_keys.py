"""Derive the key of every random draw of a run from its seed.

Keys are derived, never stored. Each use has its own root, folded from the seed; rounds and clients
are folded into the root. So a run can be resumed at any round, and every engine draws the same
clients, batches and noise for the same round and client.

This is the only place that knows about rounds and clients: the compiled rounds, the reference
engine, read-ahead, the gradient count, scoring, personalisation, and the server and the sites of a
federation all ask :class:`Keys`. An algorithm or an aggregation step that draws several times folds
numbers into the key it was given (batch t of a client is drawn from ``fold_in(key, t)``); it never
makes a key from a seed. Outside of JAX, the split of the data and the choice of evaluated clients
use NumPy generators made from the seed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jaxtyping import Array, Int, PRNGKeyArray

Number = int | Int[Array, ""]
START = 2**32 - 1
"""Folded into a client's key for draws before its first adaptation step."""
ORDER = 2**32 - 2
"""Folded into a client's key for the order of its examples."""
FOLDS = 2**32 - 3
"""Folded into a client's key for adaptation within its cross-validation."""


class Keys(NamedTuple):
    """One root per use of randomness. Add new uses at the end: a root depends on its position."""

    init: PRNGKeyArray
    sampling_root: PRNGKeyArray
    broadcast_root: PRNGKeyArray
    training_root: PRNGKeyArray
    adaptation_root: PRNGKeyArray
    server_root: PRNGKeyArray

    @classmethod
    def from_seed(cls, seed: int) -> Keys:
        """Return all roots of a run."""
        root = jax.random.key(seed)
        return cls(*(jax.random.fold_in(root, use) for use in range(len(cls._fields))))

    def sampling(self, round: Number) -> PRNGKeyArray:
        """Return the key for choosing the clients of a round."""
        return jax.random.fold_in(self.sampling_root, round)

    def broadcast(self, round: Number) -> PRNGKeyArray:
        """Return the key for the server's draws before it sends the state."""
        return jax.random.fold_in(self.broadcast_root, round)

    def client(self, round: Number, client: Number) -> PRNGKeyArray:
        """Return the key for a client's draws while it trains in a round."""
        return jax.random.fold_in(jax.random.fold_in(self.training_root, round), client)

    def server(self, round: Number) -> PRNGKeyArray:
        """Return the key for the server's draws after it has received the replies."""
        return jax.random.fold_in(self.server_root, round)

    def adaptation(self, client: Number | None) -> PRNGKeyArray:
        """Return the key for a client's draws while it adapts; None for one outside the run.

        It does not depend on the round or the algorithm: evaluations compare models, not draws.
        """
        if client is None:
            return self.adaptation_root
        return jax.random.fold_in(self.adaptation_root, client)


def adaptation_step(key: PRNGKeyArray, step: Number) -> PRNGKeyArray:
    """Return the key of one adaptation step, from a client's adaptation key."""
    return jax.random.fold_in(key, step)


def adaptation_start(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the key for draws before the first adaptation step, from a client's adaptation key."""
    return jax.random.fold_in(key, START)


def example_order(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the key of the order of a client's examples, from its adaptation key."""
    return jax.random.fold_in(key, ORDER)


def fold_adaptation(key: PRNGKeyArray, fold: Number) -> PRNGKeyArray:
    """Return the adaptation key of one fold of a cross-validation, from a client's own."""
    return jax.random.fold_in(jax.random.fold_in(key, FOLDS), fold)
