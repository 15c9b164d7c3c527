r"""The built-in steps of a chain.

    clip        u ← u · min(1, c / ‖u‖)                                at the client
    quantise    u ← integers, unbiased; mean ← mean · r / s             at both ends
    noise       mean ← mean + N(0, (σ / answered)²)                    at the server

They act on the update. Further parts of a reply (ARUBA's rates, a random iterate) pass unchanged.
"""

from __future__ import annotations

from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from headstart.aggregation._interfaces import AggregationStep, StepState
from headstart.algorithms._contract import Cohort, Reply
from headstart.errors import ConfigError
from headstart.options import require_positive
from headstart.trees import Tree, clip_norm, random_like, scale


@final
class Clip(AggregationStep):
    """Bound how far one client can move the model: its update has at most this norm."""

    name: ClassVar[str] = "clip"

    norm: float = 1.0
    """c."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(norm=self.norm)

    def at_client(self, state: StepState, reply: Reply, key: PRNGKeyArray) -> Reply:
        """Return u · min(1, c / ‖u‖)."""
        return reply._replace(update=clip_norm(reply.update, self.norm))


@final
class Quantise(AggregationStep):
    r"""Send integers of few bits (FedPAQ, Reisizadeh et al. 2020; QSGD, Alistarh et al. 2017).

    With b bits there are s = 2^{b−1} − 1 levels on each side of zero, r/s apart. A number within
    ±r is rounded up or down at random so that its expectation is itself; a larger one becomes ±r.
    All clients share r, so the server can add integers and decode their sum, as secure aggregation
    needs.
    """

    name: ClassVar[str] = "quantise"

    width: int = eqx.field(static=True, default=8)
    """b: bits per number, 2 to 16."""
    range: float = 1.0
    """r: the largest magnitude that is kept."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(range=self.range)
        if not 2 <= self.width <= 16:
            raise ConfigError(f"width={self.width} must lie between 2 and 16 bits")

    @property
    def levels(self) -> int:
        """s."""
        return int(2 ** (self.width - 1) - 1)

    @property
    def bits(self) -> int:
        """b."""
        return self.width

    @property
    def scale(self) -> float:
        """r / s."""
        return self.range / self.levels

    def at_client(self, state: StepState, reply: Reply, key: PRNGKeyArray) -> Reply:
        """Return ⌊u s / r + U[0, 1)⌋, within ±s."""

        def round_randomly(u: Array, dice: Array) -> Array:
            level = jnp.floor(u * (self.levels / self.range) + dice)
            return jnp.clip(level, -self.levels, self.levels).astype(u.dtype)

        dice = random_like(key, reply.update, jax.random.uniform)
        return reply._replace(update=jax.tree.map(round_randomly, reply.update, dice))

    def at_server(
        self, state: StepState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[Cohort, StepState]:
        """Return mean · r / s."""
        update: Tree = scale(cohort.update, self.scale)
        return cohort._replace(update=update), state


@final
class Noise(AggregationStep):
    """Add normal noise to the sum of the updates, and so its share to their mean."""

    name: ClassVar[str] = "noise"

    deviation: float = 1.0
    """σ: standard deviation of what is added to the sum, in every coordinate."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(deviation=self.deviation)

    def at_server(
        self, state: StepState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[Cohort, StepState]:
        """Return mean + N(0, (σ / answered)²)."""
        share = self.deviation / cohort.answered
        noise = random_like(key, cohort.update, jax.random.normal)
        update = jax.tree.map(lambda u, n: (u + share * n).astype(u.dtype), cohort.update, noise)
        return cohort._replace(update=update), state
