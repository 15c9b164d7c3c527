"""Where every random number of a run comes from.

Randomness is derived, never stored. Each use has a root of its own, folded from the seed; within a
use, rounds and clients are folded in. So a run can be resumed at any round, and any engine that
asks for the same round and client draws the same batches.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jaxtyping import Array, Int, PRNGKeyArray

Number = int | Int[Array, ""]
START = 2**32 - 1
"""Folded in for what a client draws before its first adaptation step."""


class Keys(NamedTuple):
    """One root for each use of randomness. New uses go at the end: a root depends on its place."""

    init: PRNGKeyArray
    sampling_root: PRNGKeyArray
    broadcast_root: PRNGKeyArray
    training_root: PRNGKeyArray
    adaptation_root: PRNGKeyArray
    server_root: PRNGKeyArray

    @classmethod
    def from_seed(cls, seed: int) -> Keys:
        """All roots of a run."""
        root = jax.random.key(seed)
        return cls(*(jax.random.fold_in(root, use) for use in range(len(cls._fields))))

    def sampling(self, round: Number) -> PRNGKeyArray:
        """Which clients take part in a round."""
        return jax.random.fold_in(self.sampling_root, round)

    def broadcast(self, round: Number) -> PRNGKeyArray:
        """What the server draws before it sends."""
        return jax.random.fold_in(self.broadcast_root, round)

    def client(self, round: Number, client: Number) -> PRNGKeyArray:
        """What a client draws while it trains in a round."""
        return jax.random.fold_in(jax.random.fold_in(self.training_root, round), client)

    def server(self, round: Number) -> PRNGKeyArray:
        """What the server draws after the replies have come."""
        return jax.random.fold_in(self.server_root, round)

    def adaptation(self, client: Number) -> PRNGKeyArray:
        """What a client draws while it adapts.

        Neither the round nor the algorithm matters: evaluations compare models, not draws.
        """
        return jax.random.fold_in(self.adaptation_root, client)


def adaptation_step(key: PRNGKeyArray, step: Number) -> PRNGKeyArray:
    """The key of one adaptation step, from a client's key."""
    return jax.random.fold_in(key, step)


def adaptation_start(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key of what comes before the first adaptation step, from a client's key."""
    return jax.random.fold_in(key, START)
