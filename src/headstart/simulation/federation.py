"""A federated data set on the device, and the keys that make a run repeatable.

Randomness is derived, never stored. Every use has a root of its own, folded from the seed, and
within training ``key = fold_in(fold_in(root, round), client)``: a run can be taken up at any round,
and any engine that asks for the same round and client draws the same batches.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from headstart.algorithms.contract import Objective, Task
from headstart.data.federated import FederatedDataset
from headstart.errors import DataError
from headstart.simulation.layout import aligned, mesh_of, replicate


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
    def from_dataset(
        cls, data: FederatedDataset, objective: Objective, mesh: Mesh | None = None
    ) -> Federation:
        """The data set on every device of a mesh; what a CPU's devices can share is not copied."""
        if data.offsets[-1] > np.iinfo(np.int32).max:
            raise DataError(
                f"{data.offsets[-1]} examples are more than the {np.iinfo(np.int32).max} that a "
                "run can number; split the data"
            )
        mesh = mesh or mesh_of(jax.local_devices()[:1])
        numbers = (data.offsets[:-1], data.train_counts, data.test_counts)
        return cls(
            objective,
            data.known_clients,
            replicate(mesh, (aligned(data.x), aligned(data.y))),
            *replicate(mesh, [aligned(each.astype(np.int32)) for each in numbers]),
        )

    def training_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its training split."""
        start, count = self.starts[client], self.train_counts[client]
        return Task(self.objective, self.examples, start, count)

    def held_out_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its held-out split."""
        start = self.starts[client] + self.train_counts[client]
        return Task(self.objective, self.examples, start, self.test_counts[client])
