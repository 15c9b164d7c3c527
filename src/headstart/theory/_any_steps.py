r"""Paper G's bounds: any number ν of adaptation steps, any α.

Each function is named for the quantity it bounds. The letters are the papers' (docs/notation.md);
below, a = 1 + αL. :mod:`one_step` has paper P's versions for ν = 1 and α ≤ 1/L under the same
names, and :mod:`sharpest` returns the smallest bound that applies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from headstart.meta import DEFAULT_DELTA, Method
from headstart.theory._assumptions import (
    BatchSizes,
    Constants,
    MetaGradientStep,
    check_inner_steps,
    check_step,
    require_not_negative,
)
from headstart.theory._convergence import ConvergenceBound, Lemmas, evaluate_theorem


class AdaptedModelError(NamedTuple):
    """The distance of the adapted model w̃_l from the exact one, for l = 0 … ν."""

    mean: tuple[float, ...]
    """h_l ≥ E‖w̃_l − w_l‖."""
    square: tuple[float, ...]
    """h′_l ≥ E‖w̃_l − w_l‖²."""
    fourth: tuple[float, ...]
    """h″_l ≥ E‖w̃_l − w_l‖⁴."""


def smoothness(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """L_F: the Lipschitz constant of ∇F_i (G Lemma 4).

    L_F = L a^{2ν} + Bαρ a^{ν−1} Σ_{l=0}^{ν−1} a^l
    """
    nu = check_inner_steps(inner_lr, inner_steps)
    a = 1 + inner_lr * c.L
    series = sum(a**power for power in range(nu))
    return c.L * a ** (2 * nu) + c.B * inner_lr * c.rho * a ** (nu - 1) * series


def adapted_model_error(
    c: Constants, *, inner_lr: float, batch_sizes: Sequence[int]
) -> AdaptedModelError:
    """h, h′, h″: the error that batches D_0 … D_{ν−1} cause in the adapted model (G Lemma 5).

    h_l = a h_{l−1} + ασ_G/√D_{l−1}
    h′_1 = α²σ_G²/D_0,   h′_l = 2(1+α²L²) h′_{l−1} + 2α²σ_G²/D_{l−1}
    h″_1 = α⁴q(D_0),     h″_l = 8(1+8α⁴L⁴) h″_{l−1} + 64α⁴q(D_{l−1})
    """
    require_not_negative(inner_lr=inner_lr)
    alpha, a = inner_lr, 1 + inner_lr * c.L
    h, square, fourth = [0.0], [0.0], [0.0]
    for step, D in enumerate(batch_sizes):
        noise, q = c.sigma_G**2 / D, fourth_moment(c.kappa_G, c.sigma_G, D)
        h.append(a * h[-1] + alpha * math.sqrt(noise))
        if step == 0:
            square.append(alpha**2 * noise)
            fourth.append(alpha**4 * q)
            continue
        square.append(2 * (1 + (alpha * c.L) ** 2) * square[-1] + 2 * alpha**2 * noise)
        fourth.append(8 * (1 + 8 * (alpha * c.L) ** 4) * fourth[-1] + 64 * alpha**4 * q)
    return AdaptedModelError(tuple(h), tuple(square), tuple(fourth))


def gradient_bias(
    c: Constants,
    *,
    method: Method = "exact",
    inner_lr: float,
    inner_steps: int,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None = None,
    delta: float = DEFAULT_DELTA,
) -> float:
    """μ_F ≥ ‖E∇̃F_i − ∇F_i‖ (G Lemmas 6, 10, 11)."""
    step = check_step(
        method=method, inner_lr=inner_lr, inner_steps=inner_steps, batch_sizes=batch_sizes,
        hessian_batch_sizes=hessian_batch_sizes, delta=delta,
    )  # fmt: skip
    return {"exact": _exact_bias, "first-order": _first_order_bias, "hessian-free": _free_bias}[
        method
    ](c, step)


def gradient_variance(
    c: Constants,
    *,
    method: Method = "exact",
    inner_lr: float,
    inner_steps: int,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None = None,
    delta: float = DEFAULT_DELTA,
) -> float:
    """σ_F² ≥ E‖∇̃F_i − ∇F_i‖² (G Lemmas 6, 10, 11): the mean squared error, bias included."""
    step = check_step(
        method=method, inner_lr=inner_lr, inner_steps=inner_steps, batch_sizes=batch_sizes,
        hessian_batch_sizes=hessian_batch_sizes, delta=delta,
    )  # fmt: skip
    return {
        "exact": _exact_variance,
        "first-order": _first_order_variance,
        "hessian-free": _free_variance,
    }[method](c, step)


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """γ_F² ≥ the mean over clients of ‖∇F_i − ∇F‖², as G Lemma 7 states it.

    γ_F² = 15B² g_ν + 6γ_G² a^{2ν}(1+α²L²),   g_ν = α²γ_H² a^{2ν−2}(2^{ν−1} + Σ_{l=1}^{ν−1} 2^l)

    **For ν ≥ 2 the lemma is false.** Its proof assumes that w_{ν−1} is the same for all clients,
    but each client adapts on its own data; the missing ρ shows it. A test has two clients whose
    meta-gradients differ by 44 times the bound. :func:`headstart.theory._corrected.meta_similarity`
    is true for all ν, and ``sharpest`` uses it.
    """
    nu = check_inner_steps(inner_lr, inner_steps)
    a = 1 + inner_lr * c.L
    growth = 2 ** (nu - 1) + sum(2**power for power in range(1, nu))
    g = (inner_lr * c.gamma_H) ** 2 * a ** (2 * nu - 2) * growth
    spread = c.gamma_G**2 * a ** (2 * nu) * (1 + (inner_lr * c.L) ** 2)
    return 15 * c.B**2 * g + 6 * spread


def stationarity(c: Constants, **arguments: Any) -> ConvergenceBound:
    """Return G Theorem 8 term by term, with the largest β it allows.

    Takes the arguments of :func:`headstart.theory._convergence.evaluate_theorem`.
    """
    lemmas = Lemmas(smoothness, gradient_bias, gradient_variance, meta_similarity)
    return evaluate_theorem(lemmas, c, **arguments)


def fourth_moment(kappa: float, sigma: float, D: int) -> float:
    """q(D) = (κ + 3(D−1)σ⁴)/D³: the fourth moment of a mean of D independent errors.

    This holds for vectors; an average of random matrices can have a larger spectral norm. The
    lemmas need it only for matrices applied to a vector that does not depend on them.
    """
    return (kappa + 3 * (D - 1) * sigma**4) / D**3


class _HessianError(NamedTuple):
    """d_ν and d′_ν: the error that batches D′_0 … D′_{ν−1} cause in the matrix product (G Lemma 6).

    For the product applied to a vector that does not depend on these batches.
    """

    square: float
    fourth: float


def _hessian_error(c: Constants, step: MetaGradientStep, h: AdaptedModelError) -> _HessianError:
    """Compute the recursions of G Lemma 6.

    d_1 = α²σ_H²/D′_0,  d_l = 2d_{l−1}(a + ασ_H/√D′_{l−1})²
                               + 2α²a^{2l−2}(σ_H²/D′_{l−1} + ρ²h′_{l−1})
    d′_1 = α⁴q_H(D′_0), d′_l = 64d′_{l−1}(a⁴ + α⁴q_H(D′_{l−1}))
                               + 64α⁴a^{4l−4}(ρ⁴h″_{l−1} + q_H(D′_{l−1}))
    """
    alpha, a = step.alpha, 1 + step.alpha * c.L
    d = fourth = 0.0
    for l, D in enumerate(step.D_hessian, start=1):  # noqa: E741 (the papers' letter)
        noise, q = c.sigma_H**2 / D, fourth_moment(c.kappa_H, c.sigma_H, D)
        if l == 1:
            d, fourth = alpha**2 * noise, alpha**4 * q
            continue
        drift = c.rho**2 * h.square[l - 1]
        d = 2 * d * (a + alpha * math.sqrt(noise)) ** 2 + 2 * alpha**2 * a ** (2 * l - 2) * (
            noise + drift
        )
        fourth = 64 * fourth * (a**4 + alpha**4 * q) + 64 * alpha**4 * a ** (4 * l - 4) * (
            c.rho**4 * h.fourth[l - 1] + q
        )
    return _HessianError(d, fourth)


def _outer_noise(c: Constants, step: MetaGradientStep, h: AdaptedModelError) -> tuple[float, float]:
    """Error of ∇̃f(w̃_ν, D_ν): σ_G/√D_ν + Lh_ν, and σ_G²/D_ν + L²h′_ν."""
    noise = c.sigma_G**2 / step.D[-1]
    return math.sqrt(noise) + c.L * h.mean[-1], noise + c.L**2 * h.square[-1]


def _adaptation_errors(c: Constants, step: MetaGradientStep) -> AdaptedModelError:
    return adapted_model_error(c, inner_lr=step.alpha, batch_sizes=step.D[:-1])


def _exact_bias(c: Constants, step: MetaGradientStep) -> float:
    """μ_F = a^ν(σ_G/√D_ν + Lh_ν) + Bαρ a^{ν−1} Σ_{j=1}^{ν−1} h_j + √(d_ν(σ_G²/D_ν + L²h′_ν))."""
    h, a = _adaptation_errors(c, step), 1 + step.alpha * c.L
    first, second = _outer_noise(c, step, h)
    d, _ = _hessian_error(c, step, h)
    moved = c.B * step.alpha * c.rho * a ** (step.nu - 1) * sum(h.mean[1 : step.nu])
    return a**step.nu * first + moved + math.sqrt(d * second)


def _exact_variance(c: Constants, step: MetaGradientStep) -> float:
    """σ_F² = 3a^{2ν}(σ_G²/D_ν + L²h′_ν) + 3B²d_ν + 6√(2d′_ν(q(D_ν) + L⁴h″_ν))."""
    h, a = _adaptation_errors(c, step), 1 + step.alpha * c.L
    _, second = _outer_noise(c, step, h)
    d, fourth = _hessian_error(c, step, h)
    outer = fourth_moment(c.kappa_G, c.sigma_G, step.D[-1]) + c.L**4 * h.fourth[-1]
    return 3 * a ** (2 * step.nu) * second + 3 * c.B**2 * d + 6 * math.sqrt(2 * fourth * outer)


def _first_order_bias(c: Constants, step: MetaGradientStep) -> float:
    """μ_F = σ_G/√D_ν + Lh_ν + B(a^ν + 1)."""
    first, _ = _outer_noise(c, step, _adaptation_errors(c, step))
    return first + c.B * ((1 + step.alpha * c.L) ** step.nu + 1)


def _first_order_variance(c: Constants, step: MetaGradientStep) -> float:
    """σ_F² = 2σ_G²/D_ν + 2L²h′_ν + 2B²(a^ν + 1)²."""
    _, second = _outer_noise(c, step, _adaptation_errors(c, step))
    return 2 * second + 2 * c.B**2 * ((1 + step.alpha * c.L) ** step.nu + 1) ** 2


def _free_bias(c: Constants, step: MetaGradientStep) -> float:
    """μ_F = p_ν + q_ν,  p_l = a p_{l−1} + (α/δ)(σ_G/√D′_{ν−l} + Lh_{ν−l}),  p_0 as in Lemma 10."""
    h, a = _adaptation_errors(c, step), 1 + step.alpha * c.L
    p, _ = _outer_noise(c, step, h)
    for back in range(step.nu - 1, -1, -1):
        noise = c.sigma_G / math.sqrt(step.D_hessian[back]) + c.L * h.mean[back]
        p = a * p + step.alpha / step.delta * noise
    return p + _difference_error(c, step)


def _free_variance(c: Constants, step: MetaGradientStep) -> float:
    """σ_F² = 2p′_ν + 2q_ν²,

    p′_l = 3p′_{l−1}(1+α²L²) + (3α²/2δ²)(σ_G²/D′_{ν−l} + 2L²h′_{ν−l})
    """
    h, alpha = _adaptation_errors(c, step), step.alpha
    _, p = _outer_noise(c, step, h)
    for back in range(step.nu - 1, -1, -1):
        noise = c.sigma_G**2 / step.D_hessian[back] + 2 * c.L**2 * h.square[back]
        p = 3 * p * (1 + (alpha * c.L) ** 2) + 3 * alpha**2 / (2 * step.delta**2) * noise
    return 2 * p + 2 * _difference_error(c, step) ** 2


def _difference_error(c: Constants, step: MetaGradientStep) -> float:
    """q_ν = αρδB² Σ_{i=0}^{ν−1} a^{ν+i−1}: the error of the central difference."""
    a = 1 + step.alpha * c.L
    series = sum(a ** (step.nu + i - 1) for i in range(step.nu))
    return step.alpha * c.rho * step.delta * c.B**2 * series
