"""The same rounds as plain loops, in the order of the papers: slow, readable, for tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from headstart._keys import Keys
from headstart._simulation.federation import Federation
from headstart._simulation.sampling import choose_clients
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Algorithm, Memory, State
from headstart.trees import Tree


def run_rounds_slowly(
    algorithm: Algorithm,
    params: Tree,
    federation: Federation,
    keys: Keys,
    *,
    rounds: int,
    active: int,
) -> tuple[State, list[Memory]]:
    """Train from the first round; return the final state and every known client's memory."""
    state = algorithm.init(params)
    memories = [algorithm.init_memory(state) for _ in range(federation.known)]
    client_update = jax.jit(algorithm.client_update)
    for k in range(rounds):
        chosen = choose_clients(keys.sampling(k), federation.known, active)
        sent = algorithm.broadcast(state, keys.broadcast(k))
        replies = []
        for i in chosen.tolist():
            task = federation.training_task(jnp.asarray(i))
            reply, memories[i], _ = client_update(sent, memories[i], task, keys.client(k, i))
            replies.append(reply)
        cohort = build_cohort(replies, asked=active, exist=federation.known, rule=algorithm.rule)
        state, _ = algorithm.server_update(state, cohort, keys.server(k))
    return state, memories
