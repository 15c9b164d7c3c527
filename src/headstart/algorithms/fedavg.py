"""FedAvg (McMahan et al. 2017): the baseline, ν = 0 in the papers' notation.

Clients minimise their own loss; adaptation happens only at test time ("FedAvg + update").
"""

from __future__ import annotations

from typing import ClassVar, final

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from headstart.algorithms.averaging import Averaging
from headstart.algorithms.contract import Task
from headstart.trees import Tree


@final
class FedAvg(Averaging):
    """Local gradient steps and averaging: d = ∇̃f(w, D)."""

    name: ClassVar[str] = "fedavg"

    def direction(
        self, params: Tree, task: Task, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Tree]:
        """The plain stochastic gradient."""
        batch = task.batch(key, self.batch_sizes[1])
        return jax.value_and_grad(task.loss)(params, batch)

    @property
    def gradients_per_update(self) -> int:
        """One gradient per local step."""
        return self.local_steps
