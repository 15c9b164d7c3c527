"""How close to a stationary point the algorithm provably comes (P Theorem 4.5, G Theorem 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headstart.errors import ConfigError
from headstart.options import require_at_least
from headstart.theory.assumptions import Constants, require_not_negative
from headstart.theory.mended import choice_of_clients

SAFETY = 10
"""β ≤ 1/(10τL_F)."""


@dataclass(frozen=True)
class Stationarity:
    """A bound on (1/τK) Σ_k Σ_t E‖∇F(w̄_{k+1,t})‖², term by term."""

    start: float
    """4(F(w_0) − F*)/(βτK): what is left of the start."""
    drift: float
    """4 · 280(βL_F)²τ(τ−1)(2σ_F² + γ_F²): clients move apart during τ local steps."""
    noise: float
    """4βL_F(2σ_F² + γ_F²(1−r)/(r(n−1))): batches, and which clients are chosen."""
    bias: float
    """4μ_F²: what more rounds cannot remove."""
    choice: float
    """What the theorem lacks if only some clients take several local steps, see ``mended``."""
    largest_local_lr: float
    """1/(10τL_F): the largest β the theorem allows."""

    @property
    def total(self) -> float:
        """The right-hand side of the theorem."""
        return sum(self.terms.values())

    @property
    def terms(self) -> dict[str, float]:
        """By name."""
        return {name: getattr(self, name) for name in ("start", "drift", "noise", "bias", "choice")}

    @property
    def dominant(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


class Lemmas(NamedTuple):
    """What the theorem is made of: L_F, μ_F, σ_F² and γ_F²."""

    smoothness: Callable[..., float]
    gradient_bias: Callable[..., float]
    gradient_variance: Callable[..., float]
    meta_similarity: Callable[..., float]


def bound(
    lemmas: Lemmas,
    c: Constants,
    *,
    local_lr: float,
    local_steps: int,
    rounds: int,
    participation: float,
    clients: int,
    initial_gap: float,
    inner_lr: float,
    inner_steps: int,
    mended: bool = False,
    **step: Any,
) -> Stationarity:
    """The theorem with L_F, σ_F², γ_F² and μ_F of the given lemmas.

    F(w_0) − F* ↔ ``initial_gap``, β ↔ ``local_lr``, τ ↔ ``local_steps``, K ↔ ``rounds``,
    r ↔ ``participation``, n ↔ ``clients``. As the papers state it, or ``mended``.
    """
    require_at_least(1, local_steps=local_steps, clients=clients)
    if rounds < 1:  # and as many as the theory asks for
        raise ConfigError(f"rounds={rounds} must be at least 1")
    require_not_negative(initial_gap=initial_gap)
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation} must lie above 0 and at most at 1")
    adaptation = {"inner_lr": inner_lr, "inner_steps": inner_steps}
    L_F = lemmas.smoothness(c, **adaptation)
    largest = math.inf if L_F == 0 else 1 / (SAFETY * local_steps * L_F)
    if not 0 < local_lr <= largest * (1 + 1e-9):
        raise ConfigError(
            f"local_lr={local_lr:g} must be positive and at most 1/(10τL_F) = {largest:.3g} for "
            "the theorem to hold"
        )
    variance = lemmas.gradient_variance(c, **adaptation, **step)
    spread = lemmas.meta_similarity(c, **adaptation)
    bias = lemmas.gradient_bias(c, **adaptation, **step)
    r = participation
    if r * clients < 1 - 1e-9:
        raise ConfigError(f"participation={r} of {clients} clients is less than one client")
    sampling = 0.0 if r == 1 or clients == 1 else (1 - r) / (r * (clients - 1))
    lacking = choice_of_clients(
        chosen=sampling, local_lr=local_lr, local_steps=local_steps, smoothness=L_F,
        variance=variance, similarity=spread,
    )  # fmt: skip
    drift = 280 * (local_lr * L_F) ** 2 * local_steps * (local_steps - 1)
    return Stationarity(
        start=4 * initial_gap / (local_lr * local_steps * rounds),
        drift=4 * drift * (2 * variance + spread),
        noise=4 * local_lr * L_F * (2 * variance + spread * sampling),
        bias=4 * bias**2,
        choice=4 * lacking if mended else 0.0,
        largest_local_lr=largest,
    )
