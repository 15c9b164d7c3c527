"""The convergence theorem: how close to a stationary point training comes (P 4.5, G 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headstart.errors import ConfigError
from headstart.options import require_at_least
from headstart.theory._assumptions import Constants, require_not_negative
from headstart.theory._corrected import client_choice_term

SAFETY = 10
"""β ≤ 1/(10τL_F)."""


@dataclass(frozen=True)
class ConvergenceBound:
    """A bound on (1/τK) Σ_k Σ_t E‖∇F(w̄_{k+1,t})‖², term by term."""

    start: float
    """4(F(w_0) − F*)/(βτK): the remaining effect of the start."""
    drift: float
    """4 · 280(βL_F)²τ(τ−1)(2σ_F² + γ_F²): clients drift apart during τ local steps."""
    noise: float
    """4βL_F(2σ_F² + γ_F²(1−r)/(r(n−1))): batches, and the choice of clients."""
    bias: float
    """4μ_F²: more rounds do not reduce it."""
    choice: float
    """What the papers omit when only some clients take several local steps, see ``corrected``."""
    largest_local_lr: float
    """1/(10τL_F): the largest β the theorem allows."""

    @property
    def total(self) -> float:
        """The right-hand side of the theorem."""
        return sum(self.terms.values())

    @property
    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return {name: getattr(self, name) for name in ("start", "drift", "noise", "bias", "choice")}

    @property
    def dominant(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


class Lemmas(NamedTuple):
    """The quantities in the theorem: L_F, μ_F, σ_F² and γ_F²."""

    smoothness: Callable[..., float]
    gradient_bias: Callable[..., float]
    gradient_variance: Callable[..., float]
    meta_similarity: Callable[..., float]


def evaluate_theorem(
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
    corrected: bool = False,
    **step: Any,
) -> ConvergenceBound:
    """Return the theorem's terms, with L_F, σ_F², γ_F² and μ_F from the given lemmas.

    F(w_0) − F* ↔ ``initial_gap``, β ↔ ``local_lr``, τ ↔ ``local_steps``, K ↔ ``rounds``,
    r ↔ ``participation``, n ↔ ``clients``. With ``corrected``, the term that
    the papers omit is added.
    """
    require_at_least(1, local_steps=local_steps, clients=clients)
    if rounds < 1:  # no upper limit: the theory may ask for any number
        raise ConfigError(f"rounds={rounds} must be at least 1")
    require_not_negative(initial_gap=initial_gap)
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation} must be above 0 and at most 1")
    adaptation = {"inner_lr": inner_lr, "inner_steps": inner_steps}
    L_F = lemmas.smoothness(c, **adaptation)
    largest = math.inf if L_F == 0 else 1 / (SAFETY * local_steps * L_F)
    if not 0 < local_lr <= largest * (1 + 1e-9):
        raise ConfigError(
            f"local_lr={local_lr:g} must be positive and at most 1/(10τL_F) = {largest:.3g} for "
            "the theorem to hold"
        )
    variance = lemmas.gradient_variance(c, **adaptation, **step)
    similarity = lemmas.meta_similarity(c, **adaptation)
    bias = lemmas.gradient_bias(c, **adaptation, **step)
    r = participation
    if r * clients < 1 - 1e-9:
        raise ConfigError(f"participation={r} of {clients} clients is less than one client")
    sampling = 0.0 if r == 1 or clients == 1 else (1 - r) / (r * (clients - 1))
    omitted = client_choice_term(
        chosen=sampling, local_lr=local_lr, local_steps=local_steps, smoothness=L_F,
        variance=variance, similarity=similarity,
    )  # fmt: skip
    drift = 280 * (local_lr * L_F) ** 2 * local_steps * (local_steps - 1)
    return ConvergenceBound(
        start=4 * initial_gap / (local_lr * local_steps * rounds),
        drift=4 * drift * (2 * variance + similarity),
        noise=4 * local_lr * L_F * (2 * variance + similarity * sampling),
        bias=4 * bias**2,
        choice=4 * omitted if corrected else 0.0,
        largest_local_lr=largest,
    )
