"""A federated data set on the device."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from headstart._simulation.layout import align, make_mesh, replicate
from headstart.algorithms._contract import ModelParts, Task
from headstart.data._federated import FederatedDataset
from headstart.errors import DataError
from headstart.models.objectives import Objective


def _next_power_of_two(least: int) -> int:
    """Round up to a power of two, so that data sets of similar sizes share a compiled program."""
    return 1 << (least - 1).bit_length()


class Federation(eqx.Module):
    """All clients' examples on the device; new clients have the highest numbers."""

    objective: Objective = eqx.field(static=True)
    known: int = eqx.field(static=True)
    examples: PyTree[Array]
    starts: Int[Array, " clients"]
    train_counts: Int[Array, " clients"]
    test_counts: Int[Array, " clients"]
    most: int = eqx.field(static=True, default=0)
    """The most examples that a split of a client may have."""
    parts: ModelParts | None = None
    """Which parts of the model are frozen or not adapted."""

    @classmethod
    def from_dataset(
        cls,
        data: FederatedDataset,
        objective: Objective,
        mesh: Mesh | None = None,
        parts: ModelParts | None = None,
    ) -> Federation:
        """Put the data set on every device of a mesh; devices of a CPU share it where possible."""
        if data.offsets[-1] > np.iinfo(np.int32).max:
            raise DataError(
                f"{data.offsets[-1]} examples are too many: a run can number "
                f"{np.iinfo(np.int32).max}; split the data"
            )
        mesh = mesh or make_mesh(jax.local_devices()[:1])
        numbers = (data.offsets[:-1], data.train_counts, data.test_counts)
        starts, train, test = replicate(mesh, [align(n.astype(np.int32)) for n in numbers])
        return cls(
            objective,
            data.known_clients,
            replicate(mesh, (align(data.x), align(data.y))),
            starts,
            train,
            test,
            _next_power_of_two(int(max(np.max(data.train_counts), np.max(data.test_counts)))),
            None if parts is None else replicate(mesh, parts),
        )

    def training_task(self, client: Int[Array, ""]) -> Task:
        """Return the client's loss on its training split."""
        start, count = self.starts[client], self.train_counts[client]
        return Task(self.objective, self.examples, start, count, self.most, self.parts)

    def held_out_task(self, client: Int[Array, ""]) -> Task:
        """Return the client's loss on its held-out split."""
        start = self.starts[client] + self.train_counts[client]
        count = self.test_counts[client]
        return Task(self.objective, self.examples, start, count, self.most, self.parts)
