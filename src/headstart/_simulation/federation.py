"""A federated data set on the device."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from headstart._simulation.layout import aligned, mesh_of, replicate
from headstart.algorithms._contract import ModelParts, Task
from headstart.data._federated import FederatedDataset
from headstart.errors import DataError
from headstart.models.objectives import Objective


def _power_of_two(least: int) -> int:
    """Rounded up, so that data sets of nearly equal clients share one compiled program."""
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
    """No client's split has more examples than this."""
    parts: ModelParts | None = None
    """What of the model is frozen or not adapted."""

    @classmethod
    def from_dataset(
        cls,
        data: FederatedDataset,
        objective: Objective,
        mesh: Mesh | None = None,
        parts: ModelParts | None = None,
    ) -> Federation:
        """The data set on every device of a mesh; what a CPU's devices can share is not copied."""
        if data.offsets[-1] > np.iinfo(np.int32).max:
            raise DataError(
                f"{data.offsets[-1]} examples are more than the {np.iinfo(np.int32).max} that a "
                "run can number; split the data"
            )
        mesh = mesh or mesh_of(jax.local_devices()[:1])
        numbers = (data.offsets[:-1], data.train_counts, data.test_counts)
        starts, train, test = replicate(mesh, [aligned(n.astype(np.int32)) for n in numbers])
        return cls(
            objective,
            data.known_clients,
            replicate(mesh, (aligned(data.x), aligned(data.y))),
            starts,
            train,
            test,
            _power_of_two(int(max(np.max(data.train_counts), np.max(data.test_counts)))),
            None if parts is None else replicate(mesh, parts),
        )

    def training_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its training split."""
        start, count = self.starts[client], self.train_counts[client]
        return Task(self.objective, self.examples, start, count, self.most, self.parts)

    def held_out_task(self, client: Int[Array, ""]) -> Task:
        """The client's loss on its held-out split."""
        start = self.starts[client] + self.train_counts[client]
        count = self.test_counts[client]
        return Task(self.objective, self.examples, start, count, self.most, self.parts)
