"""The constants in the papers' assumptions, and checks of the arguments of every bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from headstart.errors import ConfigError
from headstart.meta import METHODS, Method
from headstart.options import require_one_of

BatchSizes = int | Sequence[int]


@dataclass(frozen=True)
class Constants:
    """Suprema over w and over clients i (P and G, Assumptions 1 to 5); matrix norms are spectral.

    Estimates from data are never larger than these: see :mod:`headstart.theory._estimation`.
    """

    B: float
    """‖∇f_i(w)‖ ≤ B."""
    L: float
    """‖∇²f_i(w)‖ ≤ L: gradients are L-Lipschitz."""
    rho: float
    """ρ: Hessians are ρ-Lipschitz."""
    sigma_G: float
    """σ_G² bounds the variance of the gradient of one example."""
    sigma_H: float
    """σ_H² bounds the variance of the Hessian of one example."""
    kappa_G: float
    """κ_G bounds the fourth central moment of the gradient of one example."""
    kappa_H: float
    """κ_H bounds the fourth central moment of the Hessian of one example."""
    gamma_G: float
    """γ_G² bounds the mean over clients of ‖∇f_i − ∇f‖²."""
    gamma_H: float
    """γ_H² bounds the mean over clients of ‖∇²f_i − ∇²f‖²."""

    def __post_init__(self) -> None:
        """Reject negative and infinite values."""
        for field in fields(self):
            require_not_negative(**{field.name: getattr(self, field.name)})


def require_not_negative(**values: float) -> None:
    """Raise unless every value is finite and at least 0."""
    for name, value in values.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ConfigError(f"{name}={value} must be a finite number of at least 0")


@dataclass(frozen=True)
class MetaGradientStep:
    """A stochastic meta-gradient: method, α, ν, δ and the sizes of its independent batches."""

    method: Method
    alpha: float
    nu: int
    D: tuple[int, ...]
    """D_0 … D_{ν−1} for the adaptation steps and D_ν for the outer gradient."""
    D_hessian: tuple[int, ...]
    """D′_0 … D′_{ν−1} for the Hessian-vector products."""
    delta: float


def check_step(
    *,
    method: Method,
    inner_lr: float,
    inner_steps: int,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None,
    delta: float,
) -> MetaGradientStep:
    """Check the arguments of a bound and return them as one step."""
    require_one_of(METHODS, method=method)
    nu = check_inner_steps(inner_lr, inner_steps)
    hessian = batch_sizes if hessian_batch_sizes is None else hessian_batch_sizes
    if hessian_batch_sizes is None and not isinstance(batch_sizes, int):
        raise ConfigError("hessian_batch_sizes is needed when batch_sizes is a list")
    if not (math.isfinite(delta) and delta > 0):
        raise ConfigError(f"delta={delta} must be positive and finite")
    return MetaGradientStep(
        method,
        inner_lr,
        nu,
        _check_sizes("batch_sizes", batch_sizes, nu + 1, "D_0 … D_ν"),
        _check_sizes("hessian_batch_sizes", hessian, nu, "D′_0 … D′_{ν−1}"),
        delta,
    )


def check_inner_steps(inner_lr: float, inner_steps: int) -> int:
    """Check α and ν, and return ν."""
    require_not_negative(inner_lr=inner_lr)
    if not isinstance(inner_steps, int) or inner_steps < 1:
        raise ConfigError(
            f"inner_steps={inner_steps} must be at least 1; without adaptation steps (FedAvg) use "
            "inner_lr=0"
        )
    return inner_steps


def _check_sizes(name: str, given: BatchSizes, count: int, meaning: str) -> tuple[int, ...]:
    sizes = (given,) * count if isinstance(given, int) else tuple(given)
    if len(sizes) != count:
        raise ConfigError(
            f"{name} has {len(sizes)} numbers; give {count} ({meaning}), or one for all"
        )
    if any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ConfigError(f"{name}={given} must be whole numbers of at least 1")
    return sizes
