"""Many rounds in one compiled program (P Algorithm 1, G Algorithm 1).

The program takes the number of rounds as a value, so a run cut into pieces anywhere executes the
same instructions as an uncut one: its result is the same to the bit. Clients are processed in
groups; only the weighted sum of their replies is kept, so memory does not grow with their number.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from headstart.algorithms.contract import Algorithm, Memory, Reply, State
from headstart.simulation.federation import Federation, Keys
from headstart.simulation.sampling import choose_clients
from headstart.trees import add, all_finite, scale, where

GROUP = 16
"""Clients computed side by side; more are taken one group after the other."""
CAPACITY = 256
"""The most rounds one call of the program records."""
NOBODY = -1


class RoundLog(NamedTuple):
    """What happened in the rounds of one call."""

    done: Int[Array, ""]
    losses: Float[Array, " capacity"]
    """Mean training loss over the active clients, per round."""
    bad_client: Int[Array, ""]
    """The first client whose reply was not finite, or −1; its round was not carried out."""


class _Sums(NamedTuple):
    reply: Reply
    weight: Float[Array, ""]
    loss: Float[Array, ""]
    bad_client: Int[Array, ""]


@partial(jax.jit, static_argnames=("active", "group"))
def run_rounds(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    first: Int[Array, ""],
    count: Int[Array, ""],
    *,
    active: int,
    group: int = GROUP,
) -> tuple[State, Memory, RoundLog]:
    """Rounds first … first + count − 1 (at most CAPACITY), or until a client diverges."""

    def go_on(carry: tuple[State, Memory, RoundLog]) -> Bool[Array, ""]:
        log = carry[2]
        return (log.done < count) & (log.bad_client == NOBODY)

    def body(carry: tuple[State, Memory, RoundLog]) -> tuple[State, Memory, RoundLog]:
        state, memory, log = carry
        new_state, new_memory, loss, bad = one_round(
            algorithm, state, memory, federation, keys, first + log.done, active, group
        )
        fine = bad == NOBODY
        kept = (where(fine, new_state, state), where(fine, new_memory, memory))
        losses = log.losses.at[log.done].set(loss)
        return *kept, RoundLog(log.done + fine.astype(jnp.int32), losses, bad)

    log = RoundLog(jnp.int32(0), jnp.zeros((CAPACITY,)), jnp.int32(NOBODY))
    return jax.lax.while_loop(go_on, body, (state, memory, log))


def one_round(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    number: Int[Array, ""],
    active: int,
    group: int,
) -> tuple[State, Memory, Float[Array, ""], Int[Array, ""]]:
    """One round: choose clients, let each work, average, update. Also the loss and who diverged."""
    chosen = choose_clients(jax.random.fold_in(keys.sampling, number), federation.known, active)
    broadcast = algorithm.broadcast(state, jax.random.fold_in(keys.broadcast, number))
    round_key = jax.random.fold_in(keys.training, number)
    groups = in_groups(chosen, group, padding=federation.known)

    def work(client: Int[Array, ""]) -> tuple[Reply, Memory, Array, Array]:
        """One client; a number past the last known client is padding and counts nothing."""
        real = client < federation.known
        someone = jnp.where(real, client, 0)
        mine = jax.tree.map(lambda m: m[someone], memory)
        task = federation.training_task(someone)
        key = jax.random.fold_in(round_key, someone)
        reply, mine, info = algorithm.client_update(broadcast, mine, task, key)
        weight = jnp.where(real, algorithm.client_weight(task.count), 0.0)
        return reply, mine, weight, info["loss"]

    def add_group(
        carry: tuple[_Sums, Memory], clients: Int[Array, " group"]
    ) -> tuple[tuple[_Sums, Memory], None]:
        sums, memory = carry
        replies, memories, weights, losses = jax.vmap(work)(clients)
        real = clients < federation.known
        fine = jax.vmap(all_finite)((replies, memories, losses)) | ~real
        bad = jnp.where(jnp.all(fine), NOBODY, clients[jnp.argmin(fine)]).astype(jnp.int32)
        memory = jax.tree.map(lambda m, new: m.at[clients].set(new, mode="drop"), memory, memories)
        sums = _Sums(
            add(sums.reply, weighted_sum(replies, weights)),
            sums.weight + jnp.sum(weights),
            sums.loss + jnp.sum(jnp.where(real, losses, 0.0)),
            jnp.where(sums.bad_client == NOBODY, bad, sums.bad_client),
        )
        return (sums, memory), None

    reply = jax.eval_shape(work, chosen[0])[0]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), reply)
    start = _Sums(nothing, jnp.zeros(()), jnp.zeros(()), jnp.int32(NOBODY))
    (sums, memory), _ = jax.lax.scan(add_group, (start, memory), groups)
    state, _ = algorithm.server_update(state, scale(sums.reply, 1 / sums.weight))
    return state, memory, sums.loss / active, sums.bad_client


def in_groups(
    clients: Int[Array, " active"], group: int, *, padding: int
) -> Int[Array, "groups group"]:
    """The clients in equal groups of at most ``group``, the last filled up with ``padding``."""
    groups = math.ceil(len(clients) / group)
    size = math.ceil(len(clients) / groups)
    filled = jnp.pad(clients, (0, groups * size - len(clients)), constant_values=padding)
    return filled.reshape(groups, size)


def weighted_sum(trees: PyTree[Array], weights: Float[Array, " group"]) -> PyTree[Array]:
    """Σ_i weight_i · tree_i over the leading axis; weight 0 silences even NaN."""

    def total(leaf: Array) -> Array:
        factor = weights.reshape((-1,) + (1,) * (leaf.ndim - 1)).astype(leaf.dtype)
        return jnp.sum(jnp.where(factor > 0, factor * leaf, 0), axis=0)

    return jax.tree.map(total, trees)


def memory_for_all(algorithm: Algorithm, state: State, clients: int) -> Memory:
    """Every known client's memory before training, stacked."""
    one = algorithm.init_memory(state)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), one)
