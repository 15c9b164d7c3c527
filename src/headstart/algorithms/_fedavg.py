"""FedAvg (McMahan et al. 2017): the baseline, ν = 0 in the papers' notation.

Clients minimise their own loss; adaptation happens only at test time ("FedAvg + update").
"""

from __future__ import annotations

from typing import ClassVar, final

import jax
from jaxtyping import Array, Float

from headstart.algorithms._averaging import Averaging, AveragingState, Context
from headstart.algorithms._contract import Batch, GradientNormPoint
from headstart.trees import Tree


@final
class FedAvg(Averaging):
    """Local gradient steps and averaging: d = ∇̃f(w, D)."""

    name: ClassVar[str] = "fedavg"

    @property
    def step_batches(self) -> list[int]:
        """One batch, of the outer size."""
        return [self.batch_sizes[1]]

    @property
    def gradients_per_direction(self) -> int:
        """One gradient."""
        return 1

    def direction(
        self, params: Tree, batches: list[Batch], context: Context
    ) -> tuple[Float[Array, ""], Tree]:
        """Return the loss and the plain stochastic gradient."""
        return jax.value_and_grad(context.task.loss)(params, batches[0])

    @property
    def label(self) -> str:
        """The name, and how rates are learned."""
        return f"{self.name} ({self.rates} rates)" if self.learns_rates else self.name

    def gradient_norm_point(self, state: AveragingState) -> GradientNormPoint:
        """Return the mean random iterate, for ‖∇f‖."""
        return GradientNormPoint(state.iterate, self.inner_lr, 0)
