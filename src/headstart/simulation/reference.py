"""The same rounds as plain loops, in the order of the papers: slow, readable, for tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from headstart.algorithms.contract import Algorithm, Memory, State
from headstart.simulation.federation import Federation, Keys
from headstart.simulation.sampling import choose_clients
from headstart.trees import Tree, add, scale


def run_rounds_slowly(
    algorithm: Algorithm,
    params: Tree,
    federation: Federation,
    keys: Keys,
    *,
    rounds: int,
    active: int,
) -> tuple[State, list[Memory]]:
    """Train from the first round; the final state and every known client's memory."""
    state = algorithm.init(params)
    memories = [algorithm.init_memory(state) for _ in range(federation.known)]
    client_update = jax.jit(algorithm.client_update)
    for k in range(rounds):
        chosen = choose_clients(jax.random.fold_in(keys.sampling, k), federation.known, active)
        broadcast = algorithm.broadcast(state, jax.random.fold_in(keys.broadcast, k))
        replies, weights = [], []
        for i in chosen.tolist():
            task = federation.training_task(jnp.asarray(i))
            key = jax.random.fold_in(jax.random.fold_in(keys.training, k), i)
            reply, memories[i], _ = client_update(broadcast, memories[i], task, key)
            replies.append(reply)
            weights.append(algorithm.client_weight(task.count))
        state, _ = algorithm.server_update(state, _mean(replies, weights))
    return state, memories


def _mean(replies: list[Tree], weights: list[jax.Array]) -> Tree:
    total = scale(replies[0], weights[0])
    for reply, weight in zip(replies[1:], weights[1:], strict=True):
        total = add(total, reply, weight)
    return scale(total, 1 / sum(weights))
