"""The same rounds as plain loops, in the order of the papers: slow, readable, for tests."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from headstart._keys import Keys
from headstart._simulation.federation import Federation
from headstart._simulation.sampling import choose_clients
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Algorithm, Info, Memory, Reply, Sent, State, Task
from headstart.trees import Tree

Arrays = TypeVar("Arrays")


def run_rounds_slowly(
    algorithm: Algorithm,
    params: Tree,
    federation: Federation,
    keys: Keys,
    *,
    rounds: int,
    active: int,
) -> tuple[State, list[Memory]]:
    """Train from the first round; return the final state and every known client's memory.

    All of it happens on one device: what is on several compiles again for each.
    """
    params, federation, keys = _copy_to_one_device((params, federation, keys))
    state = algorithm.init(params)
    memories = [algorithm.init_memory(state) for _ in range(federation.known)]
    for k in range(rounds):
        chosen = choose_clients(keys.sampling(k), federation.known, active)
        sent = algorithm.broadcast(state, keys.broadcast(k))
        replies = []
        for i in chosen.tolist():
            task = federation.training_task(jnp.asarray(i))
            key = keys.client(k, i)
            reply, memories[i], _ = _client_update(algorithm, sent, memories[i], task, key)
            replies.append(reply)
        cohort = build_cohort(replies, asked=active, exist=federation.known, rule=algorithm.rule)
        state, _ = algorithm.server_update(state, cohort, keys.server(k))
    return state, memories


@jax.jit
def _client_update(
    algorithm: Algorithm, sent: Sent, memory: Memory, task: Task, key: PRNGKeyArray
) -> tuple[Reply, Memory, Info]:
    return algorithm.client_update(sent, memory, task, key)


def _copy_to_one_device(tree: Arrays) -> Arrays:
    def copy(leaf: Array) -> Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = jnp.asarray(np.asarray(jax.random.key_data(leaf)))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        return jnp.asarray(np.asarray(leaf))

    return jax.tree.map(copy, tree)
