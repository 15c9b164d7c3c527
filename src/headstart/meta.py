r"""The meta-gradient: how the adapted model's loss changes with the initial model.

A client adapts w by ν gradient steps of size α. The meta-loss is the loss of the result,

    F(w) = f(w_ν),   w_0 = w,   w_l = w_{l−1} − α∇f(w_{l−1}).

The gradient (G (8); P (5) is ν = 1) is a product of ν matrices and a vector,

    ∇F(w) = (I − α∇²f(w_0)) ⋯ (I − α∇²f(w_{ν−1})) ∇f(w_ν),

taken from the right, one Hessian-vector product per factor; a Hessian is never formed.
Each evaluation of f may use a different batch (G (11), P (8)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from headstart._first_layer import FirstLayer
from headstart.errors import ConfigError
from headstart.trees import Scalar, Tree, add, choose_leaves, scale, subtract, zeros_like

__all__ = [
    "MetaBatches",
    "exact_product",
    "gradient_evaluations",
    "hessian_free_product",
    "meta_gradient",
    "meta_value_and_gradient",
    "meta_value_and_gradients",
]

Method = Literal["exact", "first-order", "hessian-free"]
METHODS: tuple[str, ...] = get_args(Method)
Loss = Callable[[Tree, Any], Array]

# Chosen by measurement in float32 on the papers' network, see docs/notation.md: for smaller δ the
# difference of two nearly equal gradients loses digits, for larger δ the Hessian is not constant.
DEFAULT_DELTA = 1e-3


class MetaBatches(NamedTuple):
    """The independent batches of one meta-gradient; ν is ``len(inner)``."""

    inner: Sequence[Any]
    """D_0 … D_{ν−1}, one for each adaptation step."""
    outer: Any
    """D_ν, on which the adapted model is scored."""
    hessian: Sequence[Any] = ()
    """D′_0 … D′_{ν−1} for the Hessian-vector products; unused by ``first-order``."""


def meta_gradient(
    loss: Loss,
    params: Tree,
    batches: MetaBatches,
    *,
    inner_lr: Scalar,
    method: Method = "exact",
    delta: Scalar = DEFAULT_DELTA,
) -> Tree:
    r"""Return the stochastic gradient of the loss after adaptation (G (11), Algorithms 2–4; P (8)).

        w̃_0 = w;  w̃_l = w̃_{l−1} − α ∇̃f(w̃_{l−1}, D_{l−1})      l = 1 … ν
        d    = ∇̃f(w̃_ν, D_ν)
        d   ← d − α ∇̃²f(w̃_l, D′_l) d                          l = ν−1 … 0

    w ↔ ``params``, α ↔ ``inner_lr``, δ ↔ ``delta``. ``loss(params, batch)`` is any scalar function.
    ``first-order`` drops the last line; ``hessian-free`` replaces the product by a central
    difference of two gradients. With no inner batch (ν = 0) this is the plain gradient.

    >>> import jax.numpy as jnp
    >>> f = lambda w, target: 0.5 * jnp.sum((w - target) ** 2)
    >>> batch = jnp.ones(2)
    >>> meta_gradient(f, jnp.zeros(2), MetaBatches([batch], batch, [batch]), inner_lr=0.5).tolist()
    [-0.25, -0.25]
    """
    return meta_value_and_gradient(
        loss, params, batches, inner_lr=inner_lr, method=method, delta=delta
    )[1]


def meta_value_and_gradient(
    loss: Loss,
    params: Tree,
    batches: MetaBatches,
    *,
    inner_lr: Scalar,
    method: Method = "exact",
    delta: Scalar = DEFAULT_DELTA,
    first_layer: FirstLayer | None = None,
    adapted: Sequence[bool] | None = None,
) -> tuple[Array, Tree]:
    r"""Return the loss of the adapted model on the outer batch, and the meta-gradient.

    With ``first_layer`` that layer's gradients are not written out where this saves work; the
    result is the same up to rounding. ``adapted`` says which leaves the inner steps move: with the
    projection M on them, w_l = w_{l−1} − αM∇f(w_{l−1}), and a factor is I − α∇²f(w_l)M.
    """
    product = _product(loss, method, delta, batches)
    if first_layer is not None and adapted is None and first_layer.pays(params, batches):
        return first_layer.value_and_gradient(
            loss, params, batches, inner_lr=inner_lr, product=product
        )
    gradient = jax.grad(lambda w, batch: loss(_stop_unadapted(w, adapted), batch))
    path = [params]
    for batch in batches.inner:
        path.append(add(path[-1], gradient(path[-1], batch), -inner_lr))
    value, d = jax.value_and_grad(loss)(path.pop(), batches.outer)
    if product is not None:
        for w, batch in zip(reversed(path), reversed(batches.hessian), strict=True):
            d = add(d, product(w, _project(d, adapted), batch), -inner_lr)
    return value, d


def meta_value_and_gradients(
    loss: Loss,
    params: Tree,
    batches: MetaBatches,
    *,
    rates: Sequence[Tree],
    method: Method = "exact",
    delta: Scalar = DEFAULT_DELTA,
    adapted: Sequence[bool] | None = None,
    earlier: float = 0.0,
) -> tuple[Array, Tree, list[Tree]]:
    r"""Return the adapted model's loss and its gradients by w and by the logarithms of the rates.

    Each inner step has a tree of rates r_l > 0, whose arrays broadcast against those of w: one
    number for each array of parameters, or one for each parameter.

        w_0 = w;  w_l = w_{l−1} − r_l ∘ ∇̃f(w_{l−1}, D_{l−1})                  l = 1 … ν
        λ_ν = ∇̃f(w_ν, D_ν);  λ_{l−1} = λ_l − ∇̃²f(w_{l−1}, D′_{l−1}) (r_l ∘ λ_l)
        ∂F/∂w = λ_0;  ∂F/∂log r_l = −r_l ∘ Σ λ_l ∘ ∇̃f(w_{l−1}, D_{l−1})

    where Σ adds up the parameters that share a rate. The rates' gradients need no evaluation beyond
    those of the meta-gradient. ``first-order`` leaves out the Hessian in both gradients. With
    equal, constant rates the gradient by w is that of :func:`meta_gradient`, up to rounding.

    With ``earlier`` = c > 0 the losses before and between the steps count too:
    F = [f(w_ν) + c Σ_{l<ν} f(w_l)] / (1 + cν), so c ∇̃f(w_{l−1}, D_{l−1}) is added to λ_{l−1}. These
    gradients were computed for the steps, on batches that w_{l−1} does not depend on. The loss
    returned is still that of the adapted model.
    """
    if len(rates) != len(batches.inner):
        raise ConfigError(f"{len(batches.inner)} inner steps need as many rates, got {len(rates)}")
    product = _product(loss, method, delta, batches)
    moving = None if earlier else adapted  # losses before the last step train every leaf
    gradient = jax.grad(lambda w, batch: loss(_stop_unadapted(w, moving), batch))
    path, gradients = [params], []
    for rate, batch in zip(rates, batches.inner, strict=True):
        gradients.append(gradient(path[-1], batch))
        move = _project(_multiply(rate, gradients[-1]), adapted)
        path.append(subtract(path[-1], move))
    value, d = jax.value_and_grad(loss)(path.pop(), batches.outer)
    by_rates: list[Tree] = []
    for step in reversed(range(len(path))):
        moved = _project(gradients[step], adapted)
        by_rates.insert(0, jax.tree.map(_by_log_rate, rates[step], d, moved))
        if product is not None:
            along = _project(_multiply(rates[step], d), adapted)
            d = subtract(d, product(path[step], along, batches.hessian[step]))
        if earlier:
            d = add(d, gradients[step], earlier)
    share = 1 / (1 + earlier * len(rates))
    return value, scale(d, share), [scale(each, share) for each in by_rates]


def _multiply(rates: Tree, d: Tree) -> Tree:
    return jax.tree.map(lambda r, v: (r * v).astype(v.dtype), rates, d)


def _by_log_rate(rate: Array, d: Array, gradient: Array) -> Array:
    """Return −r Σ d ∘ ∇f over the coordinates that share the rate."""
    product = d * gradient
    return -rate * (product if jnp.shape(rate) == product.shape else jnp.sum(product))


def _stop_unadapted(w: Tree, adapted: Sequence[bool] | None) -> Tree:
    """Make leaves that are not adapted constant, so that their gradient is not computed."""
    return w if adapted is None else choose_leaves(adapted, w, jax.lax.stop_gradient(w))


def _project(d: Tree, adapted: Sequence[bool] | None) -> Tree:
    """Return Md."""
    return d if adapted is None else choose_leaves(adapted, d, zeros_like(d))


def exact_product(loss: Loss, w: Tree, v: Tree, batch: Any) -> Tree:
    """Return ∇²f(w) v by automatic differentiation, forward over reverse."""
    return jax.jvp(lambda u: jax.grad(loss)(u, batch), (w,), (v,))[1]


def hessian_free_product(loss: Loss, w: Tree, v: Tree, batch: Any, *, delta: Scalar) -> Tree:
    """Return a Hessian-vector product from two gradients, a central difference (G (34), P (119)).

    ∇²f(w) v ≈ [∇f(w + δv) − ∇f(w − δv)] / 2δ, with error at most ρδ‖v‖². P's main text divides
    by δ; its appendix and G divide by 2δ, which is the difference quotient.
    """
    gradient = jax.grad(loss)
    difference = subtract(gradient(add(w, v, delta), batch), gradient(add(w, v, -delta), batch))
    return scale(difference, 1 / (2 * delta))


def gradient_evaluations(method: str, inner_steps: int) -> int:
    """Count the gradients of one meta-gradient; a Hessian-vector product counts as two."""
    return inner_steps + 1 if method == "first-order" else 3 * inner_steps + 1


def _product(
    loss: Loss, method: str, delta: Scalar, batches: MetaBatches
) -> Callable[[Tree, Tree, Any], Tree] | None:
    if method not in METHODS:
        raise ConfigError(f"method={method!r} is not known; use one of {', '.join(METHODS)}")
    if method == "first-order":
        return None
    if len(batches.hessian) != len(batches.inner):
        raise ConfigError(
            f"method={method!r} with {len(batches.inner)} inner batches needs as many hessian "
            f"batches, got {len(batches.hessian)}"
        )
    if method == "exact":
        return lambda w, v, batch: exact_product(loss, w, v, batch)
    if not isinstance(delta, jax.core.Tracer) and not (delta > 0 and math.isfinite(delta)):
        raise ConfigError(
            f"delta={delta} must be positive and finite; the default is {DEFAULT_DELTA}"
        )
    return lambda w, v, batch: hessian_free_product(loss, w, v, batch, delta=delta)
