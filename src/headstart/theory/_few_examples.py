r"""What adaptation to few examples reaches with one rate, and with a rate for each coordinate.

Client i has examples y = ⟨θ_i, x⟩ + noise, with x ~ N(0, I_d) and noise of variance σ². The loss
½(y − ⟨w, x⟩)² has the mean ½‖w − θ_i‖² + σ²/2, so every client has the curvature I: a start other
than the mean of the θ_i cannot pay (:mod:`._quadratic_clients`), and full gradients multiply
‖w − θ_i‖² by (1 − α)² in every step. What can be learned is *which directions to move in*. If
θ_i = B v_i with v_i of k < d dimensions, only these k differ between clients.

**One step on n examples.** With u = w − θ_i the gradient of one example is x(⟨x, u⟩ − noise). By
the fourth moments of a normal distribution its mean is u and its covariance

    E[x xᵀu uᵀx xᵀ] − u uᵀ + σ² I = (‖u‖² + σ²) I + u uᵀ.

Averages of n examples have this divided by n. So after w ← w − r ∘ g, for any orthonormal basis,

    E‖w′ − θ_i‖² = Σ_j (1 − r_j)² s_j + (r_j²/n)(s + σ² + s_j),                              (1)

with s_j = u_j² and s = Σ s_j. This is linear in s_j: for clients at random s_j is their mean.

**The best rates.** (1) is a sum of parabolas. The best rate of coordinate j, and what remains, are

    r_j = n s_j / (n s_j + s + σ² + s_j),   s_j − r_j s_j.                                  (2)

Where clients do not differ (s_j = 0), the best rate is 0. For n → ∞ every other rate tends to 1.

**One α for m coordinates** in which a share p of s lies, 0 for the others: the same argument gives
α = np/(np + p + m(1+ρ)) with ρ = σ²/s, and what remains of s is (1 − p) + p(1 − α).

- All d coordinates (p = 1): the share (1 + d(1+ρ)) / (n + 1 + d(1+ρ)) remains.
- The k coordinates of the true subspace (p = 1): the same with k. To reach the same loss it needs
  (1 + k(1+ρ)) / (1 + d(1+ρ)) ≈ k/d of the examples. The difference is largest for
  n = √((1 + k(1+ρ))(1 + d(1+ρ))), and vanishes for n → 0 and n → ∞.
- k coordinates that miss a part (p < 1): equating what remains,
  m_d/(n + m_d) = (1 − p) + pM/(np + M) with m_d = 1 + d(1+ρ) and M = p + k(1+ρ), has besides n = 0
  the solution

      n* = (1+ρ)(p²d − k) / (p(1−p)) − 1.                                                   (3)

  With fewer examples than n* the subspace is ahead, with more it is behind. It never pays if
  p²d ≤ k, and always if p = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from headstart.errors import ConfigError
from headstart.options import require_at_least
from headstart.theory._assumptions import require_not_negative


def excess_loss(rates: ArrayLike, spread: ArrayLike, *, noise: float, examples: int) -> float:
    """Return the expected loss above σ²/2 after one step on n examples: half of equation (1).

    ``rates`` r is one number or one for each coordinate, ``spread`` s_j the mean of (w − θ_i)_j²,
    ``noise`` σ².

    >>> excess_loss(0.5, [1.0, 1.0], noise=0.0, examples=6)
    0.375
    """
    s = _check(spread, noise, examples)
    r = np.broadcast_to(np.asarray(rates, float), s.shape)
    total = (1 - r) ** 2 * s + r**2 / examples * (s.sum() + noise + s)
    return float(total.sum() / 2)


def best_rates(
    spread: ArrayLike, *, noise: float, examples: int
) -> Float[np.ndarray, " coordinates"]:
    """Return the rate of each coordinate that minimises :func:`excess_loss`, equation (2).

    >>> best_rates([1.0, 0.0], noise=1.0, examples=3).tolist()
    [0.5, 0.0]
    """
    s = _check(spread, noise, examples)
    return examples * s / np.maximum(examples * s + s.sum() + noise + s, np.finfo(float).tiny)


def best_rate(
    spread: ArrayLike,
    *,
    noise: float,
    examples: int,
    coordinates: Sequence[bool] | None = None,
) -> float:
    """Return the best α if only these coordinates move, by default all.

    >>> best_rate([1.0, 0.0], noise=1.0, examples=3)
    0.375
    """
    s = _check(spread, noise, examples)
    chosen = np.ones(len(s), bool) if coordinates is None else np.asarray(coordinates, bool)
    if chosen.shape != s.shape:
        raise ConfigError(f"coordinates are {len(chosen)}, but spread has {len(s)} numbers")
    moved = examples * s[chosen].sum()
    variance = np.sum(s.sum() + noise + s[chosen])
    return float(moved / (moved + variance)) if moved > 0 else 0.0


def largest_useful_examples(
    dimensions: int, subspace: int, *, share: float, noise_ratio: float
) -> float:
    """Return n*, equation (3): up to how many examples moving only k of d coordinates is better.

    ``share`` p is the share of the clients' squared distance from the start that lies in the
    subspace, ``noise_ratio`` ρ = σ² / Σ s_j.

    >>> largest_useful_examples(100, 5, share=0.5, noise_ratio=0.0)
    79.0
    """
    require_at_least(1, subspace=subspace, dimensions=dimensions)
    require_not_negative(noise_ratio=noise_ratio)
    if subspace > dimensions or not 0 < share <= 1:
        raise ConfigError(
            f"subspace={subspace} of dimensions={dimensions} with share={share}: the subspace "
            "cannot be larger than the space, and the share must be above 0 and at most 1"
        )
    ahead = share**2 * dimensions - subspace
    if share == 1:
        return math.inf if ahead > 0 else 0.0
    return max(0.0, (1 + noise_ratio) * ahead / (share * (1 - share)) - 1)


def _check(spread: ArrayLike, noise: float, examples: int) -> Float[np.ndarray, " coordinates"]:
    s = np.asarray(spread, float)
    if s.ndim != 1 or not np.all(np.isfinite(s)) or np.any(s < 0):
        raise ConfigError(f"spread={s.tolist()} must be a list of numbers of at least 0")
    require_not_negative(noise=noise)
    require_at_least(1, examples=examples)
    return s
