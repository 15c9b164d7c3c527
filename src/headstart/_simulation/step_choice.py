"""Choose how many adaptation steps a client takes, from its own training examples alone.

Adaptation helps most clients and hurts some. A client can find out which it is without held-out
data: it adapts on four fifths of its training examples, scores the remaining fifth after 0, 1, 2 …
steps, repeats this for every fifth, and compares the numbers of steps by the sums.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from headstart._keys import Keys, adaptation_start, adaptation_step, fold_adaptation
from headstart._simulation.federation import Federation
from headstart._simulation.layout import Layout
from headstart._simulation.scoring import (
    BLOCK,
    count_blocks,
    is_bad,
    make_memory_lookup,
    order_examples,
    score_block,
    split_clients,
    sum_block,
    sums_width,
)
from headstart.algorithms._contract import Algorithm, Memory, State, Task
from headstart.trees import Tree

FOLDS = 5
"""Parts of a client's examples, each scored once. With fewer examples, each is a part."""
FEWEST = 2
"""Examples that a cross-validation needs; with fewer a client takes the configured steps."""
MARGIN = 0.05
"""How much more loss than with 0 steps, as a share, speaks against the configured number."""
COMPARED = 3
"""Columns that a comparison adds to the sums: outcome, examples better and worse than at first."""


class StepSums(NamedTuple):
    """Sums over a client's examples after 0, 1, 2 … steps, with a comparison to 0 steps."""

    scores: Float[np.ndarray, "... steps+1 width+2"]
    """Loss, the metrics' statistics, non-finite examples."""
    outcome: Float[np.ndarray, "... steps+1"]
    better: Float[np.ndarray, "... steps+1"]
    """Examples that are answered better than after 0 steps."""
    worse: Float[np.ndarray, "... steps+1"]

    @classmethod
    def from_table(cls, table: Array | np.ndarray) -> StepSums:
        """Read the table of :func:`compare_steps`, or several stacked."""
        table = np.asarray(table, float)
        return cls(table[..., :-COMPARED], *np.moveaxis(table[..., -COMPARED:], -1, 0))


class Comparison(NamedTuple):
    """Every client's numbers of steps compared: on its own training examples, and held out."""

    own: StepSums
    """By cross-validation within the training examples."""
    held_out: StepSums


class Choices(NamedTuple):
    """What each client chose, and how many held-out examples it answers better and worse for it."""

    clients: Int[np.ndarray, " clients"]
    steps: Int[np.ndarray, " clients"]
    fixed: Int[np.ndarray, "clients 2"]
    """Held-out examples better and worse than with 0 steps, after the configured number."""
    chosen: Int[np.ndarray, "clients 2"]
    """The same after the chosen number."""


def make_choices(
    comparison: Comparison,
    clients: Int[np.ndarray, " clients"],
    counts: Int[np.ndarray, " clients"],
) -> Choices:
    """Choose every client's number of steps; ``counts`` are their training examples."""
    steps = choose_steps(comparison.own, counts)
    pairs = np.stack([comparison.held_out.better, comparison.held_out.worse], axis=-1).astype(int)
    return Choices(np.asarray(clients), steps, pairs[:, -1], pairs[np.arange(len(steps)), steps])


def choose_steps(own: StepSums, counts: Int[np.ndarray, " *n"]) -> Int[np.ndarray, " *n"]:
    """Return each client's number of steps from its cross-validation.

    The last number is the configured one, and a client keeps it unless its loss is more than 5 %
    above that of 0 steps. Only then does it take the number with the lowest loss, 0 included. A
    number of steps after which outputs are not finite is never chosen.

    Why the loss: few examples decide, and right answers are a coarse count of them. Why not always
    the lowest loss: small differences are noise, and the configured number is good for most. This
    rule and its margin were selected from about twenty by held-out accuracy, so the figures of that
    selection flatter it; docs/experiments.md has figures of other seeds. A client whose loss falls
    while its right answers become fewer is not protected.
    """
    usable = own.scores[..., -1] == 0
    loss = np.where(usable, own.scores[..., 0], np.inf)
    start, configured = loss[..., 0], loss[..., -1]
    with np.errstate(invalid="ignore"):
        hurts = (configured > start + MARGIN * np.abs(start)) | ~usable[..., -1]
    best = np.argmin(loss, axis=-1)
    return np.where(hurts & (np.asarray(counts) >= FEWEST), best, loss.shape[-1] - 1)


def compare_clients(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    *,
    clients: Int[np.ndarray, " clients"],
    most: int,
    layout: Layout,
) -> Comparison:
    """Compare 0 … ``most`` adaptation steps for each of these clients."""
    width = federation.objective.width + 2 + COMPARED
    tables = [
        _compare(
            algorithm, state, memory, federation, keys, group.astype(np.int32),
            most=most, layout=layout,
        )
        for group in split_clients(clients, 2 * (most + 1), width)
    ]  # fmt: skip
    joined = np.concatenate([np.asarray(table) for table in tables])
    return Comparison(*(StepSums.from_table(joined[:, part]) for part in (0, 1)))


@partial(jax.jit, static_argnames=("most", "layout"))
def _compare(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    clients: Int[Array, " clients"],
    *,
    most: int,
    layout: Layout,
) -> Float[Array, "clients 2 steps+1 width+5"]:
    @layout.on_all_devices
    def program(
        algorithm: Algorithm,
        state: State,
        memory: Memory,
        federation: Federation,
        keys: Keys,
        clients: Array,
    ) -> Array:
        memory_of = make_memory_lookup(algorithm, state, memory, federation)

        def compare_one(client: Int[Array, ""]) -> Float[Array, "2 steps+1 width+5"]:
            return compare_client(
                algorithm, state, memory_of(client), federation.training_task(client),
                federation.held_out_task(client), keys.adaptation(client), most=most,
            )  # fmt: skip

        def compare_group(clients: Int[Array, " group"]) -> Array:
            return jnp.concatenate(layout.compute_group(compare_one, clients))

        tables = jax.lax.map(compare_group, layout.take_share(clients, padding=0))
        return layout.gather(tables, len(clients))

    return program(algorithm, state, memory, federation, keys, clients)


def compare_client(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    task: Task,
    held_out: Task,
    key: PRNGKeyArray,
    *,
    most: int,
) -> Float[Array, "2 steps+1 width+5"]:
    """Return the sums of a cross-validation within the task, and those of held-out examples.

    The last pass of the loop is the adaptation of an ordinary evaluation: to all examples of the
    task, scored on those held out, which must be in the same arrays. One loop compiles in half the
    time of two.
    """
    order = order_examples(task, key)

    def add_pass(number: Int[Array, ""], tables: Array) -> Array:
        last = number == FOLDS
        rest, fold = split_fold(task, order, number)
        table = compare_steps(
            algorithm,
            state,
            memory,
            _either(last, task, rest, task.start),
            _either(last, held_out, fold, task.start),
            jnp.where(last, key, fold_adaptation(key, number)),
            most=most,
        )
        return tables.at[last.astype(int)].add(table)

    empty = jnp.zeros((2, most + 1, sums_width(task) + COMPARED))
    return jax.lax.fori_loop(0, FOLDS + 1, add_pass, empty)


def cross_validate(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    task: Task,
    key: PRNGKeyArray,
    *,
    most: int,
) -> Float[Array, "steps+1 width+5"]:
    """Return sums over all the task's examples, each scored by models adapted without it."""
    order = order_examples(task, key)

    def add_fold(number: Int[Array, ""], table: Array) -> Array:
        rest, fold = split_fold(task, order, number)
        own_key = fold_adaptation(key, number)
        return table + compare_steps(algorithm, state, memory, rest, fold, own_key, most=most)

    empty = jnp.zeros((most + 1, sums_width(task) + COMPARED))
    return jax.lax.fori_loop(0, FOLDS, add_fold, empty)


def split_fold(task: Task, order: Int[Array, " most"], fold: Int[Array, ""]) -> tuple[Task, Task]:
    """Return the task without one fold, and the fold: places ⌊kn/K⌋ … ⌊(k+1)n/K⌋ − 1 of the order.

    With fewer examples than folds, every example is a fold, and the other folds are empty.
    """
    place, n = jnp.arange(task.most), task.count
    begin, end = _fold_bound(n, fold), _fold_bound(n, fold + 1)
    rest, scored = order[(end + place) % n], order[(begin + place) % n]
    return task.subset(rest, n - (end - begin)), task.subset(scored, end - begin)


def compare_steps(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    task: Task,
    scored: Task,
    key: PRNGKeyArray,
    *,
    most: int,
) -> Float[Array, "steps+1 width+5"]:
    """Adapt to the task, and sum over the scored examples after each of 0 … ``most`` steps.

    Every row holds the sums of an evaluation, the sum of outcomes, and the numbers of examples with
    a better and with a worse outcome than after 0 steps.
    """
    task = task.for_adaptation()
    start = algorithm.personal_start(state, memory, task, adaptation_start(key))
    outcomes = jnp.zeros((-(-scored.most // BLOCK) * BLOCK,))
    table = jnp.zeros((most + 1, sums_width(scored) + COMPARED))

    def advance(
        step: Int[Array, ""], carry: tuple[Tree, Array, Array]
    ) -> tuple[Tree, Array, Array]:
        # A step and a score occur once in the program, which halves the time it takes to compile.
        personal, at_first, table = carry
        personal = jax.lax.cond(
            step > 0,
            lambda: algorithm.personal_step(personal, task, adaptation_step(key, step - 1)),
            lambda: personal,
        )
        sums, at_first = sum_compared(
            scored, algorithm.personal_model(personal), at_first, first=step == 0
        )
        return personal, at_first, table.at[step].set(sums)

    return jax.lax.fori_loop(0, most + 1, advance, (start, outcomes, table))[2]


def sum_compared(
    task: Task, params: Tree, at_first: Float[Array, " padded"], *, first: Bool[Array, ""]
) -> tuple[Float[Array, " width+5"], Float[Array, " padded"]]:
    """Sum over the task's examples: scores, outcomes, and how many are better and worse.

    They are compared with ``at_first``, the outcomes after 0 steps, which the first call fills in.
    """

    def add_block(block: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        sums, at_first = carry
        real, score = score_block(task, params, block)
        outcome = jnp.where(is_bad(score), -jnp.inf, score.outcome).astype(float)
        before = jax.lax.dynamic_slice(at_first, (block * BLOCK,), (BLOCK,))
        before = jnp.where(first, outcome, before)
        finite = jnp.where(jnp.isfinite(outcome), outcome, 0)
        columns = jnp.stack([finite, outcome > before, outcome < before])
        compared = jnp.sum(jnp.where(real, columns, 0), axis=1)
        at_first = jax.lax.dynamic_update_slice(at_first, before, (block * BLOCK,))
        return sums + jnp.concatenate([sum_block(real, score), compared]), at_first

    empty = jnp.zeros((sums_width(task) + COMPARED,))
    return jax.lax.fori_loop(0, count_blocks(task), add_block, (empty, at_first))


def _fold_bound(count: Int[Array, ""], fold: Int[Array, ""]) -> Int[Array, ""]:
    """Return ⌊kn/K⌋, in parts that 32-bit integers can hold."""
    return fold * (count // FOLDS) + fold * (count % FOLDS) // FOLDS


def _either(first: Bool[Array, ""], one: Task, other: Task, start: Int[Array, ""]) -> Task:
    """Return one of two tasks on the same arrays, with rows counted from ``start``."""
    place = jnp.arange(other.most)
    order = jnp.where(first, one.rows_at(place), other.rows_at(place)) - start
    count = jnp.where(first, one.count, other.count)
    fields = (other.objective, other.examples, start, count, other.most, other.parts)
    return Task(*fields, order=order)
