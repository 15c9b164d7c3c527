"""Per-FedAvg (P Algorithm 1) and its generalisation to ν inner steps (G Algorithms 1–4).

Clients minimise the loss *after* ν adaptation steps, so the shared model becomes a good start.
"""

from __future__ import annotations

from typing import ClassVar, final

import equinox as eqx
from jaxtyping import Array, Float

from headstart.algorithms._averaging import Averaging, AveragingState, Context
from headstart.algorithms._contract import Batch, GradientNormPoint
from headstart.errors import ConfigError
from headstart.meta import (
    DEFAULT_DELTA,
    METHODS,
    MetaBatches,
    Method,
    gradient_evaluations,
    meta_value_and_gradient,
)
from headstart.options import require_at_least, require_one_of, require_positive
from headstart.trees import Tree


@final
class PerFedAvg(Averaging):
    r"""Local meta-gradient steps and averaging: d = ∇̃F(w), from w, on fresh batches (P (7)).

    P's text lets the outer step start from the adapted w̃; its equation (7), and we, start from w.
    With ``inner_steps = 0`` this is FedAvg, to the bit.
    """

    name: ClassVar[str] = "per-fedavg"

    method: Method = eqx.field(static=True, default="exact")
    inner_steps: int = eqx.field(static=True, default=1)
    """ν: adaptation steps inside the meta-loss."""
    delta: float = DEFAULT_DELTA
    """δ: difference step of ``hessian-free``."""
    same_batch: bool = eqx.field(static=True, default=False)
    """Whether one batch serves all evaluations of a local step.

    P's Algorithm 1 can be read this way; P (8) and G (11) draw a batch for each, and so do we.
    """

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_one_of(METHODS, method=self.method)
        require_at_least(0, inner_steps=self.inner_steps)
        require_positive(delta=self.delta)
        if self.same_batch and len(set(self.batch_sizes)) > 1:
            raise ConfigError(
                f"batch_size={list(self.batch_sizes)} are three sizes, but same_batch=true draws "
                "one batch; give one size"
            )

    @property
    def step_batches(self) -> list[int]:
        """The outer batch first: it is what FedAvg would draw."""
        inner, outer, hessian = self.batch_sizes
        if self.same_batch:
            return [outer]
        products = 0 if self.method == "first-order" else self.inner_steps
        return [outer] + [inner] * self.inner_steps + [hessian] * products

    @property
    def gradients_per_direction(self) -> int:
        """The cost of a meta-gradient."""
        return gradient_evaluations(self.method, self.inner_steps)

    def direction(
        self, params: Tree, batches: list[Batch], context: Context
    ) -> tuple[Float[Array, ""], Tree]:
        """Return the meta-gradient on 2ν+1 independent batches (ν+1 for first-order)."""
        task = context.task
        return meta_value_and_gradient(
            task.loss,
            params,
            self.arrange_batches(batches),
            inner_lr=self.inner_lr,
            method=self.method,
            delta=self.delta,
            first_layer=task.first_layer,
            adapted=task.adapted,
        )

    def arrange_batches(self, batches: list[Batch]) -> MetaBatches:
        """Arrange the batches of one local step by their use."""
        if self.same_batch:
            every = batches * self.inner_steps
            return MetaBatches(inner=every, outer=batches[0], hessian=every)
        last = 1 + self.inner_steps
        return MetaBatches(inner=batches[1:last], outer=batches[0], hessian=batches[last:])

    @property
    def label(self) -> str:
        """The estimate and ν."""
        return f"{self.name} ({self.method}, ν={self.inner_steps})"

    def gradient_norm_point(self, state: AveragingState) -> GradientNormPoint:
        """Return the mean random iterate, for ‖∇F‖."""
        return GradientNormPoint(state.iterate, self.inner_lr, self.inner_steps)
