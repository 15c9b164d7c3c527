r"""Learned rates: how far each part of the model moves in an adaptation step.

The papers adapt every parameter with one step size α. Here α becomes a tree of rates that is
learned beside the initial model: one rate for each array of parameters, or one for each parameter
(Meta-SGD: Li, Zhou, Chen, Li 2017; per array and step: Antoniou, Edwards, Storkey 2019). What is
learned is the logarithm, so rates stay positive; every rate begins with α.

A client follows −∂F/∂log r (:func:`headstart.meta.meta_value_and_gradients`) with a step size of
its own, ``rates_lr``. The derivative is the change of the loss per e-fold of the rate, so it has
the scale of the loss, whatever the model. Rare huge values are cut to ±1. Thus ``rates_lr`` is also
the most that the logarithm of a rate moves in one step. The server adds the mean change.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from headstart.trees import Scalar, Tree

RatesOption = Literal["fixed", "per-array", "per-coordinate"]
RATES: tuple[str, ...] = get_args(RatesOption)
LogRates = Tree
"""log r, one array for each array of parameters, with a leading axis for the steps."""


class Adapting(NamedTuple):
    """A client's own model on its way, with the rates of its steps."""

    params: Tree
    log_rates: LogRates
    step: Int[Array, ""]


def init_log_rates(params: Tree, option: str, inner_lr: Scalar, steps: int) -> LogRates:
    """Return log α for every rate of ``steps`` different adaptation steps."""

    def start(leaf: Array) -> Array:
        shape = leaf.shape if option == "per-coordinate" else ()
        return jnp.full((steps, *shape), jnp.log(inner_lr), leaf.dtype)

    return jax.tree.map(start, params)


def rates_of_step(log_rates: LogRates, step: int | Int[Array, ""]) -> Tree:
    """Return the rates r of this adaptation step; later steps use those of the last."""
    return jax.tree.map(lambda rho: jnp.exp(rho[jnp.minimum(step, len(rho) - 1)]), log_rates)


def gradient_by_log_rates(log_rates: LogRates, by_step: list[Tree]) -> LogRates:
    """Return the gradient by all log-rates from those of the single steps.

    A rate that several steps share receives the sum of their gradients.
    """

    def collect(rho: Array, *gradients: Array) -> Array:
        stacked = jnp.stack(gradients)
        kept = stacked[: len(rho) - 1]
        shared = jnp.sum(stacked[len(rho) - 1 :], axis=0, keepdims=True)
        return jnp.concatenate([kept, shared]).astype(rho.dtype)

    return jax.tree.map(collect, log_rates, *by_step)


def descend_log_rates(log_rates: LogRates, by_step: list[Tree], rates_lr: Scalar) -> LogRates:
    """Return log r − rates_lr · clip(∂F/∂log r, ±1), from the gradients of the single steps."""
    return jax.tree.map(
        lambda rho, d: (rho - rates_lr * jnp.clip(d, -1.0, 1.0)).astype(rho.dtype),
        log_rates,
        gradient_by_log_rates(log_rates, by_step),
    )


def adapt(personal: Adapting, gradient: Tree) -> Adapting:
    """Take one adaptation step with the rates of its number."""
    rates = rates_of_step(personal.log_rates, personal.step)
    params = jax.tree.map(
        lambda w, r, d: (w - r * d).astype(w.dtype), personal.params, rates, gradient
    )
    return Adapting(params, personal.log_rates, personal.step + 1)
