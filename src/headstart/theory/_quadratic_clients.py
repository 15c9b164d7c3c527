r"""Where training ends for quadratic clients, and what that start is worth after adaptation.

Client i has f_i(w) = ½ (w − c_i)ᵀ A_i (w − c_i) with A_i symmetric and positive definite, and every
gradient uses all of its data. Then ∇f_i(w) = A_i (w − c_i), so a step of α multiplies w − c_i by
M_i = I − αA_i, and

    f_i(w_ν) = ½ (w − c_i)ᵀ V_i (w − c_i),   V_i = A_i M_i^{2ν}.                            (1)

**Fixed points.** Let the direction of a local step be D_i (w − c_i). τ local steps of β move w by
W_i (c_i − w) with

    W_i = I − (I − βD_i)^τ,                                                                 (2)

so the server's mean update vanishes at the weighted mean w* = (Σ p_i W_i)⁻¹ Σ p_i W_i c_i. The
directions follow from the recursions of :mod:`headstart.meta`, where A_i and M_i commute:

    FedAvg                   D_i = A_i
    Per-FedAvg, first-order  D_i = A_i M_i^ν
    Per-FedAvg, exact        D_i = A_i M_i^{2ν} = V_i
    with earlier losses c    D_i = A_i [M_i^{hν} + c Σ_{l<ν} M_i^{hl}] / (1 + cν)

with h = 1 for first-order and h = 2 for exact. For τ = 1, or β → 0, W_i is proportional to D_i, and
exact Per-FedAvg ends at the minimum of the mean of (1): no start is better.

**Equal curvature: nothing to gain.** If all A_i are equal, so are all W_i, and they cancel: every
method ends at Σ p_i c_i, however far apart the c_i are. Meta-learning pays for clients that differ
in how curved their losses are, not in where their optima are.

**How much a difference in curvature matters.** In one dimension the start is
w* = c̄ + Cov(W_i, c_i) / Σ p_i W_i with W_i = W(a_i). For curvatures a(1 + εs_i) with Σ p_i s_i = 0,
W(a_i) = W(a) (1 + e εs_i) + O(ε²), where e = a W′(a) / W(a) is the *elasticity* of the weight. So

    w* = c̄ + e ε Cov(s, c) + O(ε²),
    excess over the best start = ½ V(a) (e − e*)² ε² Cov(s, c)² + O(ε³),                    (3)

where e* belongs to V. The gain grows with the square of the spread of curvature, and vanishes to
this order if curvature and optimum are uncorrelated. For βa and αa below 1 the elasticities are

    FedAvg       τβa (1 − βa)^{τ−1} / (1 − (1 − βa)^τ)     falls from 1 (τ = 1) to 0
    Per-FedAvg   1 − hναa / (1 − αa)                       h as above

FedAvg with one local step leans towards curved clients, which adaptation would bring home anyway. A
meta-learned start leans towards flat clients, which move slowly. Many local steps make FedAvg's
weights independent of curvature.

**Local steps imitate meta-learning.** For small αA and βA, by expanding both to second order,

    W_i / (τβ) = A_i − ½ (τ−1) β A_i² + …     D_i = A_i − hν α A_i² + …

so FedAvg with τ = 1 + 2hνα/β local steps has the weights of Per-FedAvg to second order in the
curvature: 1 + 4ν local steps for exact and 1 + 2ν for first-order, if β = α. With c > 0, hν becomes
h(ν + cν(ν−1)/2)/(1 + cν). One case is exact, for every loss: first-order with c = 1 averages the
gradients at w_0 … w_ν, whose sum is (w_0 − w_{ν+1})/α. It is FedAvg with ν + 1 local steps of α.

**Learned rates.** Let all clients have the curvature diag(a). Rates r_j = 1/a_j bring every client
to its optimum in one step. One α for all coordinates multiplies the loss by (1 − αa_j)^{2ν} along
coordinate j; the largest of these is least for α = 2/(a_min + a_max), where it is
((κ−1)/(κ+1))^{2ν} with κ = a_max/a_min. If each of the ν steps has its own α, the factor is p(a_j)²
for a polynomial p of degree ν with p(0) = 1, and the least maximum over [a_min, a_max] is
T_ν((κ+1)/(κ−1))⁻² (Chebyshev).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from headstart.errors import ConfigError
from headstart.meta import Method
from headstart.options import require_at_least, require_one_of, require_positive
from headstart.theory._assumptions import require_not_negative

Matrices = Float[np.ndarray, "clients d d"]


@dataclass(frozen=True)
class QuadraticClients:
    """Clients with losses ½ (w − c_i)ᵀ A_i (w − c_i), A_i ↔ ``curvatures``, c_i ↔ ``optima``.

    >>> clients = QuadraticClients(curvatures=[[[2.0]], [[2.0]]], optima=[[0.0], [4.0]])
    >>> clients.start(clients.curvatures).tolist(), clients.mean_loss([2.0])
    ([2.0], 4.0)
    """

    curvatures: Matrices
    optima: Float[np.ndarray, "clients d"]
    shares: Float[np.ndarray, " clients"] = field(default_factory=lambda: np.zeros(0))
    """p_i: how much each client counts, with the sum 1; by default all the same."""

    def __post_init__(self) -> None:
        """Convert to arrays, and check shapes and symmetry."""
        a, c = np.asarray(self.curvatures, float), np.asarray(self.optima, float)
        if c.ndim != 2 or a.shape != (*c.shape, c.shape[-1]):
            raise ConfigError(
                f"curvatures have shape {a.shape} and optima {c.shape}; "
                "give (clients, d, d) and (clients, d)"
            )
        if not np.allclose(a, a.swapaxes(-1, -2)):
            raise ConfigError("curvatures must be symmetric matrices")
        clients = len(c)
        p = (
            np.asarray(self.shares, float)
            if np.size(self.shares)
            else np.full(clients, 1 / clients)
        )
        if p.shape != (clients,) or np.any(p < 0) or not math.isclose(p.sum(), 1):
            raise ConfigError(f"shares={p.tolist()} must be {clients} numbers ≥ 0 with sum 1")
        for name, value in (("curvatures", a), ("optima", c), ("shares", p)):
            object.__setattr__(self, name, value)

    def start(self, weights: Matrices) -> Float[np.ndarray, " d"]:
        """Return where training with these weights ends, (Σ p_i W_i)⁻¹ Σ p_i W_i c_i."""
        left = np.einsum("n,nij->ij", self.shares, weights)
        right = np.einsum("n,nij,nj->i", self.shares, weights, self.optima)
        try:
            return np.linalg.solve(left, right)
        except np.linalg.LinAlgError:
            raise ConfigError("the mean of the weights is singular: no single start") from None

    def mean_loss(
        self, start: ArrayLike, *, inner_lr: ArrayLike = 0.0, inner_steps: int = 0
    ) -> float:
        """Return the clients' mean loss after ν adaptation steps from a start, equation (1).

        ``inner_lr`` is one α, or one rate for each coordinate.
        """
        require_at_least(0, inner_steps=inner_steps)
        step = np.eye(self.optima.shape[1]) - _scaled(self.curvatures, inner_lr)
        moved = np.linalg.matrix_power(step, inner_steps)
        u = np.einsum("nij,nj->ni", moved, np.asarray(start, float)[None, :] - self.optima)
        return float(0.5 * np.einsum("n,ni,nij,nj->", self.shares, u, self.curvatures, u))


def fedavg_weights(curvatures: Matrices, *, local_lr: float, local_steps: int) -> Matrices:
    """Return I − (I − βA_i)^τ, equation (2).

    Of :func:`meta_weights` instead of curvatures: the weights of τ local steps of Per-FedAvg.
    """
    require_positive(local_lr=local_lr)
    require_at_least(1, local_steps=local_steps)
    one = np.eye(np.shape(curvatures)[-1])
    return one - np.linalg.matrix_power(one - local_lr * np.asarray(curvatures), local_steps)


def meta_weights(
    curvatures: Matrices,
    *,
    inner_lr: ArrayLike,
    inner_steps: int,
    method: Method = "exact",
    earlier_losses: float = 0.0,
) -> Matrices:
    """Return the weights D_i of Per-FedAvg's meta-gradient, D_i (w − c_i).

    ``inner_lr`` is one α, or one rate for each coordinate: then M_i = I − diag(r) A_i and exact has
    (M_iᵀ)^ν A_i M_i^ν. ``hessian-free`` is exact, because a difference of gradients is.
    """
    require_at_least(0, inner_steps=inner_steps)
    require_one_of(("exact", "first-order", "hessian-free"), method=method)
    require_not_negative(earlier_losses=earlier_losses)
    a = np.asarray(curvatures, float)
    step = np.eye(a.shape[-1]) - _scaled(a, inner_lr)
    transposed = step.swapaxes(-1, -2)
    counts = [earlier_losses] * inner_steps + [1.0]
    total = np.zeros_like(a)
    for steps, count in enumerate(counts):
        moved = a @ np.linalg.matrix_power(step, steps)
        if method != "first-order":
            moved = np.linalg.matrix_power(transposed, steps) @ moved
        total = total + count * moved
    return total / sum(counts)


def _scaled(curvatures: Matrices, rates: ArrayLike) -> Matrices:
    """Return diag(r) A_i."""
    r = np.broadcast_to(np.asarray(rates, float), curvatures.shape[-1:])
    return r[:, None] * curvatures


def fedavg_elasticity(curvature: float, *, local_lr: float, local_steps: int) -> float:
    """Return by how many percent FedAvg's weight grows with 1 % of curvature, equation (3).

    >>> [round(fedavg_elasticity(1.0, local_lr=0.1, local_steps=n), 2) for n in (1, 5, 20, 50)]
    [1.0, 0.8, 0.31, 0.03]
    """
    kept = 1 - local_lr * curvature
    return local_steps * (1 - kept) * kept ** (local_steps - 1) / (1 - kept**local_steps)


def meta_elasticity(
    curvature: float, *, inner_lr: float, inner_steps: int, method: Method = "exact"
) -> float:
    """Return by how many percent Per-FedAvg's weight grows with 1 % of curvature, equation (3).

    >>> round(meta_elasticity(1.0, inner_lr=0.1, inner_steps=3), 2)
    0.33
    """
    halves = 1 if method == "first-order" else 2
    step = inner_lr * curvature
    return 1 - halves * inner_steps * step / (1 - step)


def matching_local_steps(
    *,
    inner_lr: float,
    inner_steps: int,
    local_lr: float,
    method: Method = "exact",
    earlier_losses: float = 0.0,
) -> float:
    """Return the τ for which FedAvg's weights are Per-FedAvg's to second order in the curvature.

    >>> matching_local_steps(inner_lr=0.5, inner_steps=3, local_lr=0.5)
    13.0
    """
    require_positive(local_lr=local_lr)
    nu, c = inner_steps, earlier_losses
    halves = 1 if method == "first-order" else 2
    steps = halves * (nu + c * nu * (nu - 1) / 2) / (1 + c * nu)
    return 1 + 2 * steps * inner_lr / local_lr


def one_rate_contraction(condition: float, *, steps: int, rate_per_step: bool = False) -> float:
    """Return the best factor on the loss that one α can guarantee for condition number κ.

    ((κ−1)/(κ+1))^{2ν}; with its own α in every step T_ν((κ+1)/(κ−1))⁻². Learned rates for each
    coordinate reach 0 in one step.

    >>> [round(one_rate_contraction(k, steps=3), 3) for k in (1, 2, 10, 100)]
    [0.0, 0.001, 0.3, 0.887]
    """
    if condition < 1:
        raise ConfigError(f"condition={condition} must be at least 1")
    require_at_least(1, steps=steps)
    if condition == 1:
        return 0.0
    ratio = (condition + 1) / (condition - 1)
    if not rate_per_step:
        return float(ratio ** (-2 * steps))
    return math.cosh(steps * math.acosh(ratio)) ** -2
