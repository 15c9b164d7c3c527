r"""Plan training for an accuracy ε: rounds, local steps, step size, batch sizes.

P Corollary 4.6 and G Remark 9 give the growth as ε falls: τ ~ ε^{−1/2}, K ~ ε^{−3/2}, β ~ ε,
D ~ ε^{−1}. That holds if all clients participate; otherwise K ~ ε^{−2}, see ``corrected``. With
known constants we can compute the numbers: the fewest rounds K for which the theorem's right-hand
side is at most ε. For given τ and β all terms but the first are fixed, so

    K = 4(F(w_0) − F*) / (βτ (ε − drift − noise − bias − choice)).

We search over β and τ; among almost equal numbers of rounds the fewest local steps win. Batches are
doubled until the bias, which more rounds do not reduce, takes at most half of ε.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.errors import ConfigError
from headstart.meta import DEFAULT_DELTA, Method
from headstart.options import require_positive
from headstart.theory import _sharpest as sharpest
from headstart.theory._assumptions import Constants, require_not_negative
from headstart.theory._convergence import SAFETY, ConvergenceBound

LARGEST_BATCH = 2**40
GOOD_ENOUGH = 1.1
"""More local steps with a smaller β save fewer and fewer rounds: choose the fewest local steps
whose rounds are within ten percent of the fewest."""
LOCAL_STEPS = [*range(1, 11), *(round(10 * 1.25**power) for power in range(1, 60))]


@dataclass(frozen=True)
class FederationProfile:
    """The federation that the plan is for."""

    clients: int
    participation: float
    initial_gap: float
    """F(w_0) − F*: the possible improvement; the initial loss is an upper bound."""


@dataclass(frozen=True)
class Plan:
    """The fewest rounds for which the theorem guarantees ε."""

    epsilon: float
    method: str
    inner_lr: float
    inner_steps: int
    batch_size: int
    local_steps: int
    local_lr: float
    rounds: int
    promised: ConvergenceBound

    @property
    def gradients_per_client(self) -> float:
        """Gradients of single examples for a client that is always chosen; to compare plans."""
        return float(self.rounds) * self.local_steps * self.batch_size

    def advice(self) -> str:
        """Return which term is largest, and what would reduce it."""
        return ADVICE[self.promised.dominant]


MEANING: Mapping[str, str] = {
    "start": "remaining distance from the initial model",
    "drift": "clients drift apart during their local steps",
    "noise": "batches, and the choice of clients",
    "bias": "adaptation on batches; more rounds do not reduce it",
    "choice": "several local steps on some clients only; not in the papers' theorem",
}
ADVICE: Mapping[str, str] = {
    "start": "the start is the largest term: use more rounds or a better initial model",
    "drift": "drift is the largest term: use fewer local steps or a smaller local_lr",
    "noise": "noise is the largest term: use larger batches or a smaller local_lr",
    "bias": "bias is the largest term, and more rounds do not reduce it: use larger batches or "
    "a smaller inner_lr",
    "choice": "the choice of clients is the largest term: use a higher participation",
}


def make_plan(
    c: Constants,
    federation: FederationProfile,
    *,
    epsilon: float,
    inner_lr: float,
    inner_steps: int = 1,
    method: Method = "exact",
    delta: float = DEFAULT_DELTA,
) -> Plan:
    """Return the plan with the fewest rounds for which the mean of E‖∇F‖² over iterates is ≤ ε."""
    require_positive(epsilon=epsilon)
    require_not_negative(initial_gap=federation.initial_gap)
    step: dict[str, Any] = {
        "method": method, "inner_lr": inner_lr, "inner_steps": inner_steps, "delta": delta,
    }  # fmt: skip
    batch = _choose_batch_size(c, step, epsilon)
    candidates = [
        _find_fewest_rounds(c, federation, {**step, "batch_sizes": batch}, epsilon, tau)
        for tau in LOCAL_STEPS
    ]
    possible = [option for option in candidates if option is not None]
    fewest = min(option[0] for option in possible)
    rounds, tau, beta = next(option for option in possible if option[0] <= GOOD_ENOUGH * fewest)
    promised = sharpest.stationarity(
        c, **step, batch_sizes=batch, local_lr=beta, local_steps=tau, rounds=rounds,
        participation=federation.participation, clients=federation.clients,
        initial_gap=federation.initial_gap,
    )  # fmt: skip
    return Plan(epsilon, method, inner_lr, inner_steps, batch, tau, beta, rounds, promised)


def _choose_batch_size(c: Constants, step: Mapping[str, Any], epsilon: float) -> int:
    """Return the smallest power of two whose bias takes at most half of ε."""
    size = 1
    while 4 * sharpest.gradient_bias(c, **step, batch_sizes=size) ** 2 > epsilon / 2:
        size *= 2
        if size > LARGEST_BATCH:
            raise ConfigError(
                f"epsilon={epsilon:g} cannot be guaranteed with method={step['method']!r}: its "
                "bias does not vanish with larger batches; use a smaller inner_lr or method='exact'"
            )
    return size


def _find_fewest_rounds(
    c: Constants, federation: FederationProfile, step: Mapping[str, Any], epsilon: float, tau: int
) -> tuple[int, int, float] | None:
    """Return (K, τ, β) for this τ, with β from a fine grid below the theorem's limit."""
    adaptation = {"inner_lr": step["inner_lr"], "inner_steps": step["inner_steps"]}
    L_F = sharpest.smoothness(c, **adaptation)
    limit = 1 / (SAFETY * tau * L_F) if L_F else 1.0
    best: tuple[int, int, float] | None = None
    for power in range(240):
        beta = limit * 10 ** (-power / 20)
        terms = sharpest.stationarity(
            c, **step, local_lr=beta, local_steps=tau, rounds=1,
            participation=federation.participation, clients=federation.clients,
            initial_gap=federation.initial_gap,
        )  # fmt: skip
        remaining = epsilon - sum(v for name, v in terms.terms.items() if name != "start")
        if remaining <= 0:
            continue
        rounds = max(1, math.ceil(terms.start / remaining))
        if best is None or rounds < best[0]:
            best = (rounds, tau, beta)
        elif rounds > 2 * best[0]:
            break
    return best
