r"""Bounds of our own where the papers' do not hold.

**Similarity of the meta-gradients, ν ≥ 2** (in place of G Lemma 7). Let v_l be the trajectory of
the mean loss f and w_l^i that of client i, both from w, and ‖·‖ over clients the root of the
mean square.

    ‖w_l^i − v_l‖ ≤ ε_l = αγ_G Σ_{j<l} a^j         since w_l^i − v_l grows by a and by αγ_G a step
    ‖∇f_i(w_ν^i) − ∇f(v_ν)‖ ≤ γ_G + Lε_ν = a^ν γ_G
    ‖Π_i − Π_f‖ ≤ αa^{ν−1}(νγ_H + ρ Σ_{l=1}^{ν−1} ε_l)   one factor after the other; the rest ≤ a

A mean minimises the mean square, so that the distance to Π_f ∇f(v_ν) bounds the one to ∇F:

    γ_F ≤ Bαa^{ν−1}(νγ_H + ρ Σ_{l=1}^{ν−1} ε_l) + a^{2ν}γ_G.

For ν = 1 it is sharper than both papers' bounds, and for α = 0 it is γ_G.

**The theorem, r < 1 and τ > 1** (in addition to P Theorem 4.5 and G Theorem 8). Their proofs
take the mean of the chosen clients' models to be independent of who was chosen (P (99), (105)),
which holds for the first local step only. With φ = (1−r)/(r(n−1)), w the mean over all clients
and Δ the gradients of the chosen minus those of all, E⟨∇F(w), Δ(w)⟩ = 0 and E‖Δ(w)‖² ≤ φγ_F², so
that what was left out is at most L_F √(E‖w̄ − w‖² φγ_F²); with P (95) for the first factor σ_T²
gains

    7.1 φ βL_F √(τ(τ−1)) γ_F √(2σ_F² + γ_F²).

"""

from __future__ import annotations

import math

from headstart.theory.assumptions import Constants, checked_steps


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """γ_F² ≥ the mean over clients of ‖∇F_i − ∇F‖², for any ν and α."""
    nu = checked_steps(inner_lr, inner_steps)
    alpha, a = inner_lr, 1 + inner_lr * c.L
    apart = [alpha * c.gamma_G * sum(a**j for j in range(step)) for step in range(nu)]
    turned = alpha * a ** (nu - 1) * (nu * c.gamma_H + c.rho * sum(apart))
    return (c.B * turned + a ** (2 * nu) * c.gamma_G) ** 2


def choice_of_clients(
    *, chosen: float, local_lr: float, local_steps: int, smoothness: float, variance: float,
    similarity: float,
) -> float:  # fmt: skip
    """What σ_T² lacks when only some clients take several local steps; ``chosen`` is φ."""
    tau = local_steps
    spread = math.sqrt(similarity * (2 * variance + similarity))
    return 7.1 * chosen * local_lr * smoothness * math.sqrt(tau * (tau - 1)) * spread
