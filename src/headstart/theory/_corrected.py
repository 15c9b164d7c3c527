r"""Corrected bounds, where those of the papers are false.

**Similarity of the meta-gradients, ν ≥ 2** (in place of G Lemma 7). Let v_l be the trajectory of
the mean loss f and w_l^i that of client i, both starting at w. ‖·‖ over clients is the root mean
square.

    ‖w_l^i − v_l‖ ≤ ε_l = αγ_G Σ_{j<l} a^j         each step multiplies by a and adds αγ_G
    ‖∇f_i(w_ν^i) − ∇f(v_ν)‖ ≤ γ_G + Lε_ν = a^ν γ_G
    ‖Π_i − Π_f‖ ≤ αa^{ν−1}(νγ_H + ρ Σ_{l=1}^{ν−1} ε_l)   one factor at a time; the others ≤ a

The mean minimises the mean square, so the distance to Π_f ∇f(v_ν) bounds the distance to ∇F:

    γ_F ≤ Bαa^{ν−1}(νγ_H + ρ Σ_{l=1}^{ν−1} ε_l) + a^{2ν}γ_G.

For ν = 1 this is sharper than both papers' bounds; for α = 0 it equals γ_G.

**The theorem, r < 1 and τ > 1** (in addition to P Theorem 4.5 and G Theorem 8). Their proofs
treat the mean of the chosen clients' models as independent of the choice (P (99), (105)). That
holds for the first local step only. Let φ = (1−r)/(r(n−1)), w the mean over all clients and Δ the
gradients of the chosen clients minus those of all. Then E⟨∇F(w), Δ(w)⟩ = 0 and E‖Δ(w)‖² ≤ φγ_F²,
so the omitted term is at most L_F √(E‖w̄ − w‖² φγ_F²). With P (95) for the first factor, σ_T² gains

    7.1 φ βL_F √(τ(τ−1)) γ_F √(2σ_F² + γ_F²).
"""

from __future__ import annotations

import math

from headstart.theory._assumptions import Constants, check_inner_steps


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """γ_F² ≥ the mean over clients of ‖∇F_i − ∇F‖², for any ν and α."""
    nu = check_inner_steps(inner_lr, inner_steps)
    alpha, a = inner_lr, 1 + inner_lr * c.L
    distances = [alpha * c.gamma_G * sum(a**j for j in range(step)) for step in range(nu)]
    product_difference = alpha * a ** (nu - 1) * (nu * c.gamma_H + c.rho * sum(distances))
    return (c.B * product_difference + a ** (2 * nu) * c.gamma_G) ** 2


def client_choice_term(
    *, chosen: float, local_lr: float, local_steps: int, smoothness: float, variance: float,
    similarity: float,
) -> float:  # fmt: skip
    """Return the term missing from the papers' σ_T² for τ > 1 and r < 1; φ ↔ ``chosen``."""
    tau = local_steps
    spread = math.sqrt(similarity * (2 * variance + similarity))
    return 7.1 * chosen * local_lr * smoothness * math.sqrt(tau * (tau - 1)) * spread
