"""Many rounds in one compiled program (P Algorithm 1, G Algorithm 1).

The number of rounds is an argument of the program, so a run cut into pieces anywhere executes the
same instructions as an uncut one: its result is the same to the bit. A round's clients are
distributed over the devices; each device processes its share in groups and keeps only the weighted
sum of the replies, so memory does not grow with their number. The weighted mean has the same three
steps as :func:`headstart.algorithms._cohort.weighted_mean`, which needs all replies in memory:
``apply_weight``, ``add`` and ``divide_by_weight`` of :mod:`headstart.trees`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from headstart._keys import Keys
from headstart._simulation.federation import Federation
from headstart._simulation.layout import AXIS, Layout
from headstart._simulation.sampling import choose_clients
from headstart.algorithms._cohort import combine_replies
from headstart.algorithms._contract import Algorithm, Cohort, Info, Memory, Part, Reply, State
from headstart.trees import Tree, add, all_finite, apply_weight, divide_by_weight

CAPACITY = 256
"""The most rounds one call of the program records."""
NO_CLIENT = jnp.iinfo(jnp.int32).max
trace_once = partial(jax.jit, inline=True)
"""Makes JAX reuse the trace of a function that a program uses several times, to learn the shapes of
its result and to compute it; the program stays the same."""


class RoundLog(NamedTuple):
    """What happened in the rounds of one call."""

    done: Int[Array, ""]
    clients: dict[str, Float[Array, " capacity"]]
    """What the active clients report, averaged over them, per round; includes ``loss``."""
    server: dict[str, Float[Array, " capacity"]]
    """What the server reports, per round."""
    bad_client: Int[Array, ""]
    """The lowest client whose reply was not finite, or NO_CLIENT; its round does not count as done,
    and state and memory are then meaningless."""


class _Answer(NamedTuple):
    reply: Reply
    info: Info
    real: Bool[Array, ""]
    bad_client: Int[Array, ""]


class _Sums(NamedTuple):
    update: Tree
    weight: Float[Array, ""]
    parts: dict[str, Part]
    """Weighted sums, and the sums of their weights."""
    info: Info
    bad_client: Int[Array, ""]


class _Outcome(NamedTuple):
    state: State
    memory: Memory
    clients: Info
    server: Info
    bad_client: Int[Array, ""]


@partial(jax.jit, static_argnames=("active", "layout"))
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
    layout: Layout,
) -> tuple[State, Memory, RoundLog]:
    """Run rounds first … first + count − 1 (at most CAPACITY), or until a client diverges."""

    @layout.on_all_devices
    def program(
        algorithm: Algorithm,
        state: State,
        memory: Memory,
        federation: Federation,
        keys: Keys,
        first: Array,
        count: Array,
    ) -> tuple[State, Memory, RoundLog]:
        def should_continue(carry: tuple[State, Memory, RoundLog]) -> Bool[Array, ""]:
            log = carry[2]
            return (log.done < count) & (log.bad_client == NO_CLIENT)

        @trace_once
        def round(state: State, memory: Memory, number: Array) -> _Outcome:
            return run_round(algorithm, state, memory, federation, keys, number, active, layout)

        def body(carry: tuple[State, Memory, RoundLog]) -> tuple[State, Memory, RoundLog]:
            state, memory, log = carry
            now = round(state, memory, first + log.done)
            done = log.done + (now.bad_client == NO_CLIENT).astype(jnp.int32)
            clients, server = (
                jax.tree.map(lambda all, one: all.at[log.done].set(one), *pair)
                for pair in ((log.clients, now.clients), (log.server, now.server))
            )
            return now.state, now.memory, RoundLog(done, clients, server, now.bad_client)

        shape = jax.eval_shape(round, state, memory, first)
        empty = partial(jax.tree.map, lambda leaf: jnp.zeros((CAPACITY,), leaf.dtype))
        log = RoundLog(
            jnp.int32(0), empty(shape.clients), empty(shape.server), jnp.int32(NO_CLIENT)
        )
        return jax.lax.while_loop(should_continue, body, (state, memory, log))

    return program(algorithm, state, memory, federation, keys, first, count)


def run_round(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    number: Int[Array, ""],
    active: int,
    layout: Layout,
) -> _Outcome:
    """Run one round: choose clients, compute their replies, average them, update the state."""
    chosen = choose_clients(keys.sampling(number), federation.known, active)
    sent = algorithm.broadcast(state, keys.broadcast(number))

    @trace_once
    def compute_answer(client: Int[Array, ""]) -> tuple[_Answer, Memory]:
        """Compute the answer of one client; numbers past the last known client are padding."""
        real = client < federation.known
        row = jnp.where(real, client, 0)
        own = jax.tree.map(lambda m: m[row], memory)
        task = federation.training_task(row)
        reply, own, info = algorithm.client_update(sent, own, task, keys.client(number, row))
        fine = all_finite((reply, own, info["loss"])) | ~real
        bad = jnp.where(fine, NO_CLIENT, client).astype(jnp.int32)
        return _Answer(reply, info, real, bad), own

    groups = layout.take_share(chosen, padding=federation.known)
    if algorithm.rule is None:
        sums, memory = _sum_answers(compute_answer, memory, groups, layout)
        cohort = Cohort(
            divide_by_weight(sums.update, sums.weight),
            {name: divide_by_weight(*part) for name, part in sums.parts.items()},
            jnp.int32(active), active, federation.known,
        )  # fmt: skip
        clients = {name: value / active for name, value in sums.info.items()}
        bad = sums.bad_client
    else:
        answers, memory = _stack_answers(compute_answer, memory, groups, layout, active)
        cohort = combine_replies(
            answers.reply, algorithm.rule, answered=jnp.int32(active), asked=active,
            exist=federation.known,
        )  # fmt: skip
        clients = {name: jnp.mean(values) for name, values in answers.info.items()}
        bad = jnp.min(answers.bad_client)
    state, server = algorithm.server_update(state, cohort, keys.server(number))
    return _Outcome(state, memory, clients, server, bad)


ComputeAnswer = Callable[[Int[Array, ""]], tuple[_Answer, Memory]]


def _sum_answers(
    compute_answer: ComputeAnswer,
    memory: Memory,
    groups: Int[Array, "groups group"],
    layout: Layout,
) -> tuple[_Sums, Memory]:
    """Return the weighted sums of all answers; nothing but sums is ever held."""

    def weigh_answer(client: Int[Array, ""]) -> tuple[_Sums, Memory]:
        (reply, info, real, bad), own_memory = compute_answer(client)
        weight = jnp.where(real, reply.weight, 0.0)
        parts = {n: Part(p.value, jnp.where(real, p.weight, 0.0)) for n, p in reply.parts.items()}
        return _Sums(
            apply_weight(reply.update, weight),
            weight,
            {name: Part(apply_weight(value, own), own) for name, (value, own) in parts.items()},
            {name: jnp.where(real, value, 0.0) for name, value in info.items()},
            bad,
        ), own_memory

    def add_group(
        carry: tuple[_Sums, Memory], clients: Int[Array, " group"]
    ) -> tuple[tuple[_Sums, Memory], None]:
        sums, memory = carry
        results = layout.compute_group(weigh_answer, clients)
        for part, _ in results:
            sums = _add_sums(sums, _sum_group(part))
        return (sums, _update_memory(memory, clients, [own for _, own in results])), None

    shape = jax.eval_shape(weigh_answer, groups[0, 0])[0]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    start = zeros._replace(bad_client=jnp.int32(NO_CLIENT))
    (sums, memory), _ = jax.lax.scan(add_group, (start, memory), groups)
    return _sum_over_devices(sums, layout), memory


def _stack_answers(
    compute_answer: ComputeAnswer,
    memory: Memory,
    groups: Int[Array, "groups group"],
    layout: Layout,
    active: int,
) -> tuple[_Answer, Memory]:
    """Return all answers on every device, each leaf with a leading axis of active clients."""

    def take_group(memory: Memory, clients: Int[Array, " group"]) -> tuple[Memory, _Answer]:
        results = layout.compute_group(compute_answer, clients)
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *[row for row, _ in results])
        return _update_memory(memory, clients, [own for _, own in results]), rows

    memory, rows = jax.lax.scan(take_group, memory, groups)
    return layout.gather(rows, active), memory


def _sum_group(group: _Sums) -> _Sums:
    """Sum over the clients of a group, which are on the leading axis."""
    sums = jax.tree.map(partial(jnp.sum, axis=0), group[:4])
    return _Sums(sums[0], sums[1], sums[2], sums[3], jnp.min(group.bad_client))


def _add_sums(a: _Sums, b: _Sums) -> _Sums:
    sums = add(a[:4], b[:4])
    bad = jnp.minimum(a.bad_client, b.bad_client)
    return _Sums(sums[0], sums[1], sums[2], sums[3], bad)


def _sum_over_devices(sums: _Sums, layout: Layout) -> _Sums:
    """Add up the sums of all devices in one collective: with small networks each one costs time.

    Every device writes its bad client into its row of a table of zeros, and the rows are added.
    """
    row = split_number(sums.bad_client)
    table = jnp.zeros((layout.devices, 2), jnp.float32).at[jax.lax.axis_index(AXIS)].set(row)
    packed, unpack = ravel_pytree((sums[:4], table))
    totals, table = unpack(jax.lax.psum(packed, AXIS))
    bad = jnp.min(join_number(table))
    return _Sums(totals[0], totals[1], totals[2], totals[3], bad)


# One collective carries numbers of one type, here floats. A float32 holds integers exactly only up
# to 2**24, and an integer's bits read as a float would not survive an addition: small integers are
# subnormal floats, which may be flushed to zero, and NO_CLIENT is a NaN. Two halves of 16 bits are
# exact on every back end.


def split_number(number: Int[Array, "*shape"]) -> Float[Array, "*shape 2"]:
    """Split a number of 0 … 2³¹ − 1 into its high and low 16 bits, as floats."""
    return jnp.stack([number >> 16, number & 0xFFFF], axis=-1).astype(jnp.float32)


def join_number(halves: Float[Array, "*shape 2"]) -> Int[Array, "*shape"]:
    """Return the number that :func:`split_number` has split."""
    whole = halves.astype(jnp.int32)
    return (whole[..., 0] << 16) | whole[..., 1]


def _update_memory(memory: Memory, clients: Int[Array, " group"], parts: list[Memory]) -> Memory:
    """Return every client's memory, updated with the new memories of all devices' groups."""
    if not jax.tree.leaves(memory):
        return memory
    own = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    places, rows = jax.lax.all_gather((clients, own), AXIS)
    return jax.tree.map(lambda m, new: m.at[places].set(new, mode="drop"), memory, rows)


def init_memories(algorithm: Algorithm, state: State, clients: int) -> Memory:
    """Return every known client's memory before training, stacked."""
    one = algorithm.init_memory(state)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), one)
