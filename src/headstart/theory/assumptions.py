"""The constants the papers' theorems are about, and checks of what the bounds are asked for."""

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

    An estimate from data can only find lower values: see :mod:`headstart.theory.constants`.
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
        """Refuse what cannot be a bound."""
        for field in fields(self):
            require_not_negative(**{field.name: getattr(self, field.name)})


def require_not_negative(**values: float) -> None:
    """Finite and at least 0, or one clear line."""
    for name, value in values.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ConfigError(f"{name}={value} must be a finite number of at least 0")


@dataclass(frozen=True)
class Step:
    """A stochastic meta-gradient: method, α, ν, δ and the sizes of its independent batches."""

    method: Method
    alpha: float
    nu: int
    D: tuple[int, ...]
    """D_0 … D_{ν−1} of the adaptation steps and D_ν of the outer gradient."""
    D_hessian: tuple[int, ...]
    """D′_0 … D′_{ν−1} of the Hessian-vector products."""
    delta: float


def checked_step(
    *,
    method: Method,
    inner_lr: float,
    inner_steps: int,
    batch_sizes: BatchSizes,
    hessian_batch_sizes: BatchSizes | None,
    delta: float,
) -> Step:
    """The arguments of a bound, each named in one clear line if it is impossible."""
    require_one_of(METHODS, method=method)
    nu = checked_steps(inner_lr, inner_steps)
    hessian = batch_sizes if hessian_batch_sizes is None else hessian_batch_sizes
    if hessian_batch_sizes is None and not isinstance(batch_sizes, int):
        raise ConfigError("hessian_batch_sizes is needed when batch_sizes is a list")
    if not (math.isfinite(delta) and delta > 0):
        raise ConfigError(f"delta={delta} must be positive and finite")
    return Step(
        method,
        inner_lr,
        nu,
        _sizes("batch_sizes", batch_sizes, nu + 1, "D_0 … D_ν"),
        _sizes("hessian_batch_sizes", hessian, nu, "D′_0 … D′_{ν−1}"),
        delta,
    )


def checked_steps(inner_lr: float, inner_steps: int) -> int:
    """ν, if it and α are possible."""
    require_not_negative(inner_lr=inner_lr)
    if not isinstance(inner_steps, int) or inner_steps < 1:
        raise ConfigError(
            f"inner_steps={inner_steps} must be at least 1; without adaptation steps (FedAvg) use "
            "inner_lr=0"
        )
    return inner_steps


def _sizes(name: str, given: BatchSizes, count: int, meaning: str) -> tuple[int, ...]:
    sizes = (given,) * count if isinstance(given, int) else tuple(given)
    if len(sizes) != count:
        raise ConfigError(
            f"{name} has {len(sizes)} numbers; {meaning} are {count}, or give one for all"
        )
    if any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ConfigError(f"{name}={given} must be whole numbers of at least 1")
    return sizes
