r"""From a wished accuracy to a plan: rounds, local steps, step size, batch sizes.

P Corollary 4.6 and G Remark 9 say how they grow as ε falls (τ ~ ε^{−1/2}, K ~ ε^{−3/2}, β ~ ε,
D ~ ε^{−1}); that holds if all clients take part, and else K ~ ε^{−2}, see ``mended``. With the
constants at hand the best numbers can be found instead: the fewest rounds K for which the theorem's
right-hand side is at most ε. For given τ and β all terms but the first are fixed, so that

    K = 4(F(w_0) − F*) / (βτ (ε − drift − noise − bias − choice)),

and β and τ are searched for; among almost equal numbers of rounds the fewest local steps win.
Batches are doubled until the bias, which no round removes, takes at most half of ε.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.errors import ConfigError
from headstart.meta import DEFAULT_DELTA, Method
from headstart.options import require_positive
from headstart.theory import best
from headstart.theory.assumptions import Constants, require_not_negative
from headstart.theory.stationarity import SAFETY, Stationarity

LARGEST_BATCH = 2**40
GOOD_ENOUGH = 1.1
"""Ever more local steps with ever smaller β save ever fewer rounds: the fewest steps are taken
whose rounds are within ten percent of the fewest."""
LOCAL_STEPS = [*range(1, 11), *(round(10 * 1.25**power) for power in range(1, 60))]


@dataclass(frozen=True)
class Federation:
    """Whom the plan is for."""

    clients: int
    participation: float
    initial_gap: float
    """F(w_0) − F*: how much there is to gain; the loss at the start is an upper bound."""


@dataclass(frozen=True)
class Plan:
    """The fewest rounds with which the theorem promises ε."""

    epsilon: float
    method: str
    inner_lr: float
    inner_steps: int
    batch_size: int
    local_steps: int
    local_lr: float
    rounds: int
    promised: Stationarity

    @property
    def gradients_per_client(self) -> float:
        """Examples' gradients of a client that is always chosen; for comparing plans."""
        return float(self.rounds) * self.local_steps * self.batch_size

    def advice(self) -> str:
        """Which term is largest, and what would make it smaller."""
        return ADVICE[self.promised.dominant]


MEANING: Mapping[str, str] = {
    "start": "what is left of the distance from the initial model",
    "drift": "clients move apart during their local steps",
    "noise": "batches, and which clients are chosen",
    "bias": "adaptation on batches; no round removes it",
    "choice": "several steps of some clients only; not in the papers' theorem",
}
ADVICE: Mapping[str, str] = {
    "start": "most of ε is left to the start: more rounds, or a better initial model, help",
    "drift": "clients moving apart costs most: fewer local steps, or a smaller local_lr, help",
    "noise": "batches and the choice of clients cost most: larger batches, or a smaller local_lr",
    "bias": "the bias costs most, and no round removes it: larger batches, or a smaller inner_lr",
    "choice": "that only some clients are chosen costs most: a higher participation helps",
}


def plan(
    c: Constants,
    federation: Federation,
    *,
    epsilon: float,
    inner_lr: float,
    inner_steps: int = 1,
    method: Method = "exact",
    delta: float = DEFAULT_DELTA,
) -> Plan:
    """The fewest rounds for which the mean of E‖∇F‖² over all iterates is at most ε."""
    require_positive(epsilon=epsilon)
    require_not_negative(initial_gap=federation.initial_gap)
    step: dict[str, Any] = {
        "method": method, "inner_lr": inner_lr, "inner_steps": inner_steps, "delta": delta,
    }  # fmt: skip
    batch = _batch_size(c, step, epsilon)
    found = [
        _fewest_rounds(c, federation, {**step, "batch_sizes": batch}, epsilon, tau)
        for tau in LOCAL_STEPS
    ]
    possible = [option for option in found if option is not None]
    fewest = min(option[0] for option in possible)
    rounds, tau, beta = next(option for option in possible if option[0] <= GOOD_ENOUGH * fewest)
    promised = best.stationarity(
        c, **step, batch_sizes=batch, local_lr=beta, local_steps=tau, rounds=rounds,
        participation=federation.participation, clients=federation.clients,
        initial_gap=federation.initial_gap,
    )  # fmt: skip
    return Plan(epsilon, method, inner_lr, inner_steps, batch, tau, beta, rounds, promised)


def _batch_size(c: Constants, step: Mapping[str, Any], epsilon: float) -> int:
    """The smallest power of two whose bias takes at most half of ε."""
    size = 1
    while 4 * best.gradient_bias(c, **step, batch_sizes=size) ** 2 > epsilon / 2:
        size *= 2
        if size > LARGEST_BATCH:
            raise ConfigError(
                f"epsilon={epsilon:g} cannot be promised with method={step['method']!r}: its bias "
                "does not vanish with larger batches; use a smaller inner_lr or method='exact'"
            )
    return size


def _fewest_rounds(
    c: Constants, federation: Federation, step: Mapping[str, Any], epsilon: float, tau: int
) -> tuple[int, int, float] | None:
    """(K, τ, β) for this τ: β from a fine grid below the theorem's limit."""
    adaptation = {"inner_lr": step["inner_lr"], "inner_steps": step["inner_steps"]}
    L_F = best.smoothness(c, **adaptation)
    limit = 1 / (SAFETY * tau * L_F) if L_F else 1.0
    chosen: tuple[int, int, float] | None = None
    for power in range(240):
        beta = limit * 10 ** (-power / 20)
        terms = best.stationarity(
            c, **step, local_lr=beta, local_steps=tau, rounds=1,
            participation=federation.participation, clients=federation.clients,
            initial_gap=federation.initial_gap,
        )  # fmt: skip
        left = epsilon - sum(v for name, v in terms.terms.items() if name != "start")
        if left <= 0:
            continue
        rounds = max(1, math.ceil(terms.start / left))
        if chosen is None or rounds < chosen[0]:
            chosen = (rounds, tau, beta)
        elif rounds > 2 * chosen[0]:
            break
    return chosen
