"""Per-FedAvg (P Algorithm 1) and its generalisation to ν inner steps (G Algorithms 1–4).

Clients minimise the loss *after* ν adaptation steps, so the shared model becomes a good start.
"""

from __future__ import annotations

from typing import ClassVar, final

import equinox as eqx
import jax
from jaxtyping import Array, Float

from headstart.algorithms._averaging import (
    DEFAULT_RATES_STEPS,
    Averaging,
    AveragingState,
    Context,
)
from headstart.algorithms._contract import Batch, GradientNormPoint
from headstart.algorithms._rates import LogRates, descend_log_rates, rates_of_step
from headstart.errors import ConfigError
from headstart.meta import (
    DEFAULT_DELTA,
    METHODS,
    MetaBatches,
    Method,
    gradient_evaluations,
    meta_value_and_gradient,
    meta_value_and_gradients,
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
    earlier_losses: float = eqx.field(static=True, default=0.0)
    """c: how much the losses before and between the adaptation steps count, beside the last.

    The meta-loss is then [f(w_ν) + c Σ_{l<ν} f(w_l)] / (1 + cν), with the same gradients.
    """
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
        if not 0 <= self.earlier_losses < float("inf"):
            raise ConfigError(f"earlier_losses={self.earlier_losses} must be at least 0")
        learned_for = self.inner_steps or self.rates_steps
        if self.rates_method is None and self.rates_steps not in (None, learned_for):
            raise ConfigError(
                f"rates_steps={self.rates_steps} differs from inner_steps={self.inner_steps}; "
                "the rates are learned with it; leave out rates_steps, or set rates_method"
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

    def direction_and_rates(
        self, params: Tree, log_rates: LogRates, batches: list[Batch], context: Context
    ) -> tuple[Float[Array, ""], Tree, LogRates]:
        """Return loss and meta-gradient with the learned rates, and the log-rates' next values."""
        if self.inner_steps == 0 or not (self.learns_rates or self.earlier_losses):
            return super().direction_and_rates(params, log_rates, batches, context)
        if self.learns_rates:
            rates = [rates_of_step(log_rates, step) for step in range(self.inner_steps)]
        else:
            rates = [jax.tree.map(lambda leaf: self.inner_lr, params)] * self.inner_steps
        loss, d, by_step = meta_value_and_gradients(
            context.task.loss,
            params,
            self.arrange_batches(batches),
            rates=rates,
            method=self.method,
            delta=self.delta,
            adapted=context.task.adapted,
            earlier=self.earlier_losses,
        )
        if not self.learns_rates or self.learns_rates_each_round:
            return loss, d, log_rates
        return loss, d, descend_log_rates(log_rates, by_step, self.rates_lr)

    @property
    def rates_horizon(self) -> int:
        """ν, unless stated otherwise."""
        return self.rates_steps or self.inner_steps or DEFAULT_RATES_STEPS

    @property
    def learns_rates_each_round(self) -> bool:
        """Whether rates are learned apart from the meta-gradients of local steps."""
        return self.learns_rates and (self.rates_method is not None or self.inner_steps == 0)

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
        learned = f", {self.rates} rates" if self.learns_rates else ""
        return f"{self.name} ({self.method}, ν={self.inner_steps}{learned})"

    def gradient_norm_point(self, state: AveragingState) -> GradientNormPoint:
        """Return the mean random iterate, for ‖∇F‖."""
        return GradientNormPoint(state.iterate, self.inner_lr, self.inner_steps)
