"""Paper P's bounds: one adaptation step, α ≤ 1/L. Often sharper than paper G's.

Batches are D_0 (adaptation), D_1 (outer) and D′_0 (Hessian); P calls them D, D′ and D″.
"""

from __future__ import annotations

import math
from typing import Any

from headstart.errors import ConfigError
from headstart.meta import DEFAULT_DELTA, Method
from headstart.theory._assumptions import (
    BatchSizes,
    Constants,
    MetaGradientStep,
    check_inner_steps,
    check_step,
)
from headstart.theory._convergence import ConvergenceBound, Lemmas, evaluate_theorem


def applies(c: Constants, *, inner_lr: float, inner_steps: int) -> bool:
    """Return whether ν = 1 and α ≤ 1/L."""
    return inner_steps == 1 and inner_lr * c.L <= 1


def smoothness(c: Constants, *, inner_lr: float, inner_steps: int = 1) -> float:
    """L_F = 4L + αρB (P Lemma 4.2)."""
    _require_one_step(c, inner_lr, inner_steps, "4.2", "smoothness")
    return 4 * c.L + inner_lr * c.rho * c.B


def gradient_bias(
    c: Constants,
    *,
    method: Method = "exact",
    inner_lr: float,
    inner_steps: int = 1,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None = None,
    delta: float = DEFAULT_DELTA,
) -> float:
    """m_F ≥ ‖E∇̃F_i − ∇F_i‖ (P Lemmas 4.3, H.1, H.2).

    exact         2αLσ_G/√D
    first-order   αL(σ_G/√D + B)
    hessian-free  α(2Lσ_G/√D + Lσ_G/√D′ + ρδB²)
    """
    _require_one_step(c, inner_lr, inner_steps, _LEMMAS[_check_method(method)], "gradient_bias")
    step = check_step(
        method=method, inner_lr=inner_lr, inner_steps=inner_steps, batch_sizes=batch_sizes,
        hessian_batch_sizes=hessian_batch_sizes, delta=delta,
    )  # fmt: skip
    inner, outer = (c.sigma_G / math.sqrt(size) for size in step.D)
    if method == "exact":
        return 2 * inner_lr * c.L * inner
    if method == "first-order":
        return inner_lr * c.L * (inner + c.B)
    return inner_lr * (2 * c.L * inner + c.L * outer + c.rho * delta * c.B**2)


def gradient_variance(
    c: Constants,
    *,
    method: Method = "exact",
    inner_lr: float,
    inner_steps: int = 1,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None = None,
    delta: float = DEFAULT_DELTA,
) -> float:
    """σ_F² ≥ E‖∇̃F_i − ∇F_i‖² (P Lemmas 4.3, H.1, H.2).

    exact         12[B² + σ_G²(1/D′ + (αL)²/D)][1 + σ_H²α²/(4D″)] − 12B²
    first-order   2σ_G²(1/D′ + (αL)²/D) + 2(αLB)²
    hessian-free  6σ_G²(2(αL)²/D + 2/D′ + α²/(2δ²D″)) + 2(αρδ)²B⁴
    """
    _require_one_step(c, inner_lr, inner_steps, _LEMMAS[_check_method(method)], "gradient_variance")
    step = check_step(
        method=method, inner_lr=inner_lr, inner_steps=inner_steps, batch_sizes=batch_sizes,
        hessian_batch_sizes=hessian_batch_sizes, delta=delta,
    )  # fmt: skip
    return _variance(c, step)


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int = 1) -> float:
    """γ_F² = 3B²α²γ_H² + 192γ_G² (P Lemma 4.4)."""
    _require_one_step(c, inner_lr, inner_steps, "4.4", "meta_similarity")
    return 3 * (c.B * inner_lr * c.gamma_H) ** 2 + 192 * c.gamma_G**2


def stationarity(c: Constants, **arguments: Any) -> ConvergenceBound:
    """Return P Theorem 4.5 term by term, with the largest β it allows.

    Takes the arguments of :func:`headstart.theory._convergence.evaluate_theorem`.
    """
    lemmas = Lemmas(smoothness, gradient_bias, gradient_variance, meta_similarity)
    return evaluate_theorem(lemmas, c, **arguments)


_LEMMAS = {"exact": "4.3", "first-order": "H.1", "hessian-free": "H.2"}


def _variance(c: Constants, step: MetaGradientStep) -> float:
    alpha, (inner, outer), (hessian,) = step.alpha, step.D, step.D_hessian
    noise = c.sigma_G**2 * (1 / outer + (alpha * c.L) ** 2 / inner)
    if step.method == "exact":
        # 12[B² + n][1 + s] − 12B² without the cancellation of two large numbers.
        s = (c.sigma_H * alpha) ** 2 / (4 * hessian)
        return 12 * (noise + s * (c.B**2 + noise))
    if step.method == "first-order":
        return 2 * noise + 2 * (alpha * c.L * c.B) ** 2
    difference = alpha**2 / (2 * step.delta**2 * hessian)
    terms = 2 * (alpha * c.L) ** 2 / inner + 2 / outer + difference
    return 6 * c.sigma_G**2 * terms + 2 * (alpha * c.rho * step.delta) ** 2 * c.B**4


def _check_method(method: str) -> str:
    if method not in _LEMMAS:
        raise ConfigError(f"method={method!r} is not known; use one of {', '.join(_LEMMAS)}")
    return method


def _require_one_step(
    c: Constants, inner_lr: float, inner_steps: int, lemma: str, name: str
) -> None:
    check_inner_steps(inner_lr, inner_steps)
    alternative = f"headstart.theory.bounds.{name} holds for any number of steps and any step size"
    if inner_steps != 1:
        raise ConfigError(
            f"inner_steps={inner_steps}: Lemma {lemma} of paper P is for one step; {alternative}"
        )
    if not applies(c, inner_lr=inner_lr, inner_steps=inner_steps):
        raise ConfigError(
            f"inner_lr={inner_lr:g} is above 1/L = {1 / c.L:g}, the largest value for which Lemma "
            f"{lemma} of paper P holds; {alternative}"
        )
