"""Many rounds in one compiled program (P Algorithm 1, G Algorithm 1).

The number of rounds is an argument of the program, so a run cut into pieces anywhere executes the
same instructions as an uncut one: its result is the same to the bit. A round's clients are
distributed over the devices; each device processes its share in groups and keeps only the weighted
sum of the replies, so memory does not grow with their number.
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
NOBODY = jnp.iinfo(jnp.int32).max


class RoundLog(NamedTuple):
    """What happened in the rounds of one call."""

    done: Int[Array, ""]
    clients: dict[str, Float[Array, " capacity"]]
    """What the active clients report, its mean over them, per round; ``loss`` among it."""
    server: dict[str, Float[Array, " capacity"]]
    """What the server reports, per round."""
    bad_client: Int[Array, ""]
    """The lowest client whose reply was not finite, or NOBODY; its round does not count as done,
    and state and memory are then of no use."""


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
    """Rounds first … first + count − 1 (at most CAPACITY), or until a client diverges."""

    @layout.everywhere
    def program(
        algorithm: Algorithm,
        state: State,
        memory: Memory,
        federation: Federation,
        keys: Keys,
        first: Array,
        count: Array,
    ) -> tuple[State, Memory, RoundLog]:
        def go_on(carry: tuple[State, Memory, RoundLog]) -> Bool[Array, ""]:
            log = carry[2]
            return (log.done < count) & (log.bad_client == NOBODY)

        def round(state: State, memory: Memory, number: Array) -> _Outcome:
            return one_round(algorithm, state, memory, federation, keys, number, active, layout)

        def body(carry: tuple[State, Memory, RoundLog]) -> tuple[State, Memory, RoundLog]:
            state, memory, log = carry
            now = round(state, memory, first + log.done)
            done = log.done + (now.bad_client == NOBODY).astype(jnp.int32)
            clients, server = (
                jax.tree.map(lambda all, one: all.at[log.done].set(one), *pair)
                for pair in ((log.clients, now.clients), (log.server, now.server))
            )
            return now.state, now.memory, RoundLog(done, clients, server, now.bad_client)

        shape = jax.eval_shape(round, state, memory, first)
        empty = partial(jax.tree.map, lambda leaf: jnp.zeros((CAPACITY,), leaf.dtype))
        log = RoundLog(jnp.int32(0), empty(shape.clients), empty(shape.server), jnp.int32(NOBODY))
        return jax.lax.while_loop(go_on, body, (state, memory, log))

    return program(algorithm, state, memory, federation, keys, first, count)


def one_round(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    number: Int[Array, ""],
    active: int,
    layout: Layout,
) -> _Outcome:
    """One round: choose clients, let each work, average, update."""
    chosen = choose_clients(keys.sampling(number), federation.known, active)
    sent = algorithm.broadcast(state, keys.broadcast(number))

    def answer(client: Int[Array, ""]) -> tuple[_Answer, Memory]:
        """One client; a number past the last known client is padding and counts nothing."""
        real = client < federation.known
        someone = jnp.where(real, client, 0)
        mine = jax.tree.map(lambda m: m[someone], memory)
        task = federation.training_task(someone)
        reply, mine, info = algorithm.client_update(sent, mine, task, keys.client(number, someone))
        fine = all_finite((reply, mine, info["loss"])) | ~real
        bad = jnp.where(fine, NOBODY, client).astype(jnp.int32)
        return _Answer(reply, info, real, bad), mine

    groups = layout.mine(chosen, padding=federation.known)
    if algorithm.rule is None:
        sums, memory = _summed(answer, memory, groups, layout)
        cohort = Cohort(
            divide_by_weight(sums.update, sums.weight),
            {name: divide_by_weight(*part) for name, part in sums.parts.items()},
            jnp.int32(active), active, federation.known,
        )  # fmt: skip
        clients = {name: value / active for name, value in sums.info.items()}
        bad = sums.bad_client
    else:
        answers, memory = _side_by_side(answer, memory, groups, layout, active)
        cohort = combine_replies(
            answers.reply, algorithm.rule, answered=jnp.int32(active), asked=active,
            exist=federation.known,
        )  # fmt: skip
        clients = {name: jnp.mean(values) for name, values in answers.info.items()}
        bad = jnp.min(answers.bad_client)
    state, server = algorithm.server_update(state, cohort, keys.server(number))
    return _Outcome(state, memory, clients, server, bad)


Work = Callable[[Int[Array, ""]], tuple[_Answer, Memory]]


def _summed(
    answer: Work, memory: Memory, groups: Int[Array, "groups group"], layout: Layout
) -> tuple[_Sums, Memory]:
    """The weighted sums of all answers; only sums are ever held."""

    def work(client: Int[Array, ""]) -> tuple[_Sums, Memory]:
        (reply, info, real, bad), mine = answer(client)
        weight = jnp.where(real, reply.weight, 0.0)
        parts = {n: Part(p.value, jnp.where(real, p.weight, 0.0)) for n, p in reply.parts.items()}
        return _Sums(
            apply_weight(reply.update, weight),
            weight,
            {name: Part(apply_weight(value, own), own) for name, (value, own) in parts.items()},
            {name: jnp.where(real, value, 0.0) for name, value in info.items()},
            bad,
        ), mine

    def add_group(
        carry: tuple[_Sums, Memory], clients: Int[Array, " group"]
    ) -> tuple[tuple[_Sums, Memory], None]:
        sums, memory = carry
        results = layout.together(work, clients)
        for part, _ in results:
            sums = _joined(sums, _added_up(part))
        return (sums, _kept(memory, clients, [mine for _, mine in results])), None

    shape = jax.eval_shape(work, groups[0, 0])[0]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    start = nothing._replace(bad_client=jnp.int32(NOBODY))
    (sums, memory), _ = jax.lax.scan(add_group, (start, memory), groups)
    return _over_devices(sums, layout), memory


def _side_by_side(
    answer: Work, memory: Memory, groups: Int[Array, "groups group"], layout: Layout, active: int
) -> tuple[_Answer, Memory]:
    """All answers, each leaf with a leading axis of active clients, on every device."""

    def take_group(memory: Memory, clients: Int[Array, " group"]) -> tuple[Memory, _Answer]:
        results = layout.together(answer, clients)
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *[row for row, _ in results])
        return _kept(memory, clients, [mine for _, mine in results]), rows

    memory, rows = jax.lax.scan(take_group, memory, groups)
    return layout.gathered(rows, active), memory


def _added_up(group: _Sums) -> _Sums:
    """The sums of a group's clients, who stand on the leading axis."""
    sums = jax.tree.map(partial(jnp.sum, axis=0), group[:4])
    return _Sums(sums[0], sums[1], sums[2], sums[3], jnp.min(group.bad_client))


def _joined(a: _Sums, b: _Sums) -> _Sums:
    sums = add(a[:4], b[:4])
    bad = jnp.minimum(a.bad_client, b.bad_client)
    return _Sums(sums[0], sums[1], sums[2], sums[3], bad)


def _over_devices(sums: _Sums, layout: Layout) -> _Sums:
    """The sums of all devices, in one exchange: for small networks each one is felt.

    Client numbers travel in halves of 16 bits, which a 32-bit float holds exactly.
    """
    halves = jnp.stack([sums.bad_client >> 16, sums.bad_client & 0xFFFF]).astype(jnp.float32)
    bad = jnp.zeros((layout.devices, 2), jnp.float32).at[jax.lax.axis_index(AXIS)].set(halves)
    packed, unpack = ravel_pytree((sums[:4], bad))
    totals, bad = unpack(jax.lax.psum(packed, AXIS))
    high, low = bad.astype(jnp.int32).T
    return _Sums(totals[0], totals[1], totals[2], totals[3], jnp.min((high << 16) | low))


def _kept(memory: Memory, clients: Int[Array, " group"], parts: list[Memory]) -> Memory:
    """Every client's memory, with what the groups of all devices learned written into it."""
    if not jax.tree.leaves(memory):
        return memory
    mine = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    everyone, rows = jax.lax.all_gather((clients, mine), AXIS, tiled=True)
    return jax.tree.map(lambda m, new: m.at[everyone].set(new, mode="drop"), memory, rows)


def memory_for_all(algorithm: Algorithm, state: State, clients: int) -> Memory:
    """Every known client's memory before training, stacked."""
    one = algorithm.init_memory(state)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), one)
