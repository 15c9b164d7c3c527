"""Choose the clients of a round."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from headstart.errors import ConfigError


def count_active_clients(participation: float, clients: int) -> int:
    """Return the number of clients in a round: rn, rounded to the nearest whole number."""
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation} must be above 0 and at most 1")
    active = round(participation * clients)
    if active < 1:
        raise ConfigError(
            f"participation={participation} of {clients} clients selects none; "
            f"use at least {1 / clients:.3g}"
        )
    return active


@partial(jax.jit, static_argnames=("clients", "active"), inline=True)
def choose_clients(key: PRNGKeyArray, clients: int, active: int) -> Int[Array, " active"]:
    """Draw a uniformly random set of ``active`` of ``clients`` numbers, without repetition.

    Floyd's algorithm: for j = n−m … n−1 draw t from 0 … j and take t, or j if t is taken already.
    Its cost grows with the number of chosen clients; that of a permutation, with all clients.
    """
    last = jnp.arange(clients - active, clients)
    drawn = jax.random.randint(key, (active,), 0, last + 1)

    def take(chosen: Int[Array, " active"], i: Int[Array, ""]) -> tuple[Array, None]:
        taken = jnp.any(chosen == drawn[i])
        return chosen.at[i].set(jnp.where(taken, last[i], drawn[i])), None

    none_yet = jnp.full((active,), -1, last.dtype)
    return jax.lax.scan(take, none_yet, jnp.arange(active))[0]
