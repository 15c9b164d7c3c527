"""A federated data set on the device, and the keys that make a run repeatable.

Randomness is derived, never stored. Every use has a root of its own, folded from the seed, and
within training ``key = fold_in(fold_in(root, round), client)``: a run can be taken up at any round,
and any engine that asks for the same round and client draws the same batches.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from headstart.algorithms.contract import Objective, Task
from headstart.data.federated import FederatedDataset


class Keys(NamedTuple):
    """One root for each use of randomness."""

    init: PRNGKeyArray
    sampling: PRNGKeyArray
    broadcast: PRNGKeyArray
    training: PRNGKeyArray
    adaptation: PRNGKeyArray

    @classmethod
    def from_seed(cls, seed: int) -> Keys:
        """All roots of a run."""
        root = jax.random.key(seed)
        return cls(*(jax.random.fold_in(root, use) for use in range(len(cls._fields))))


class Federation(eqx.Module):
    """All clients' examples on the device; new clients have the highest numbers."""

    objective: Objective = eqx.field(static=True)
    known: int = eqx.field(static=True)
    examples: PyTree[Array]
    starts: Int[Array, " clients"]
    train_counts: Int[Array, " clients"]
    test_counts: Int[Array, " clients"]

    @classmethod
    def from_dataset(cls, data: FederatedDataset, objective: Objective) -> Federation:
        """The data set as device arrays."""
        return cls(
            objective=objective,
            known=data.known_clients,
            examples=(jnp.asarray(data.x), jnp.asarray(data.y)),
            starts=jnp.asarray(data.offsets[:-1], jnp.int32),
            train_counts=jnp.asarray(data.train_counts, jnp.int32),
            test_counts=jnp.asarray(data.test_counts, jnp.int32),
        )

    def training_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its training split."""
        start, count = self.starts[client], self.train_counts[client]
        return Task(self.objective, self.examples, start, count)

    def held_out_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its held-out split."""
        start = self.starts[client] + self.train_counts[client]
        return Task(self.objective, self.examples, start, self.test_counts[client])
