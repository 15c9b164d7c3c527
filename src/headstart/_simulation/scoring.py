"""Score every client's own model, before and after adaptation.

With every method, a client adapts on its training split and is scored on its held-out split, and
every method gets the same number of gradient evaluations. Adapting on held-out data (as paper P
did) exists only as ``adapt_on="test"``, and every number that results from it is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from headstart._keys import Keys, adaptation_start, adaptation_step, example_order
from headstart._simulation.federation import Federation
from headstart._simulation.layout import Layout
from headstart.algorithms._contract import Algorithm, ExampleScores, Memory, State, Task
from headstart.models.objectives import Measure, Objective
from headstart.trees import Tree, where

AdaptOn = Literal["train", "test"]
BLOCK = 64
"""Held-out examples scored at a time."""
MOST_SUMS = 1 << 25
"""The most numbers in the sums of clients that are scored together."""


class Scores(NamedTuple):
    """Per client and number of adaptation steps 0 … most; NaN where not requested or diverged."""

    clients: Int[np.ndarray, " clients"]
    """The client of each row."""
    loss: Float[np.ndarray, "clients steps+1"]
    diverged: Bool[np.ndarray, "clients steps+1"]
    values: Mapping[str, Float[np.ndarray, "clients steps+1"]]
    """Every metric by its name; also NaN where a client's examples do not define it."""
    measures: tuple[Measure, ...]
    """The metrics, the primary one first."""

    @property
    def metric(self) -> Measure:
        """The primary metric."""
        return self.measures[0]

    @property
    def primary(self) -> Float[np.ndarray, "clients steps+1"]:
        """The values of the primary metric."""
        return self.values[self.metric.name]


def evaluate(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    *,
    clients: Int[np.ndarray, " clients"],
    steps: list[int],
    layout: Layout,
    adapt_on: AdaptOn = "train",
    most: int | None = None,
    shots: int | None = None,
) -> Scores:
    """Score these clients after each number of adaptation steps in ``steps``.

    A client's key does not depend on the round or the algorithm: differences between evaluations
    come from the models, not from the draw of adaptation batches. ``most`` fixes the width of the
    result, so that evaluations of different ``steps`` share one compiled program. With ``shots``, a
    client adapts only to that many of its examples, the first in a random order that is its own;
    one with fewer adapts to all it has.
    """
    most = max(steps) if most is None else most
    wanted = np.isin(np.arange(most + 1), steps)
    objective = federation.objective
    counts = np.asarray(federation.test_counts)
    parts = []
    for group in split_clients(clients, most + 1, objective.width + 2):
        table = _evaluate(
            algorithm, state, memory, federation, keys, group.astype(np.int32), wanted,
            None if shots is None else np.int32(shots), most=most, on_test=adapt_on == "test",
            layout=layout,
        )  # fmt: skip
        parts.append(
            scores_from_sums(objective, np.asarray(table, float), group, counts[group], wanted)
        )
    return join_scores(parts)


def split_clients(clients: np.ndarray, steps: int, width: int) -> list[np.ndarray]:
    """Split clients into groups to score together, whose sums fit into ``MOST_SUMS`` numbers.

    >>> [len(group) for group in split_clients(np.arange(5), 1, MOST_SUMS // 2)]
    [2, 2, 1]
    """
    clients, size = np.asarray(clients), max(1, MOST_SUMS // (steps * width))
    return np.split(clients, range(size, len(clients), size))


def join_scores(parts: Sequence[Scores]) -> Scores:
    """Return the scores of all parts' clients as one."""
    return Scores(
        np.concatenate([part.clients for part in parts]),
        np.concatenate([part.loss for part in parts]),
        np.concatenate([part.diverged for part in parts]),
        {name: np.concatenate([p.values[name] for p in parts]) for name in parts[0].values},
        parts[0].measures,
    )


def scores_from_sums(
    objective: Objective,
    table: Float[np.ndarray, "clients steps+1 width+2"],
    clients: Int[np.ndarray, " clients"],
    counts: Int[np.ndarray, " clients"],
    wanted: Bool[np.ndarray, " steps+1"],
) -> Scores:
    """Return the scores from sums over each client's held-out examples."""
    loss, bad = table[..., 0], table[..., -1]
    per_client = np.asarray(counts, float)[:, None]
    requested = np.broadcast_to(wanted, loss.shape)
    finite = (bad == 0) & np.isfinite(loss)
    values = {
        name: np.where(finite & requested, value, np.nan)
        for name, value in objective.values(table[..., 1:-1], per_client).items()
    }
    return Scores(
        np.asarray(clients),
        np.where(finite & requested, loss / per_client, np.nan),
        ~finite & requested,
        values,
        objective.measures,
    )


@partial(jax.jit, static_argnames=("most", "on_test", "layout"))
def _evaluate(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    clients: Int[Array, " clients"],
    wanted: Bool[Array, " steps+1"],
    shots: Int[Array, ""] | None,
    *,
    most: int,
    on_test: bool,
    layout: Layout,
) -> Float[Array, "clients steps+1 width+2"]:
    @layout.on_all_devices
    def program(
        algorithm: Algorithm,
        state: State,
        memory: Memory,
        federation: Federation,
        keys: Keys,
        clients: Array,
        wanted: Array,
        shots: Array | None,
    ) -> Array:
        score_one = _make_scorer(
            algorithm, state, memory, federation, keys, wanted, shots, most, on_test
        )

        def score_group(clients: Int[Array, " group"]) -> Array:
            return jnp.concatenate(layout.compute_group(score_one, clients))

        tables = jax.lax.map(score_group, layout.take_share(clients, padding=0))
        return layout.gather(tables, len(clients))

    return program(algorithm, state, memory, federation, keys, clients, wanted, shots)


def _make_scorer(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    wanted: Bool[Array, " steps+1"],
    shots: Int[Array, ""] | None,
    most: int,
    on_test: bool,
) -> Callable[[Int[Array, ""]], Float[Array, "steps+1 width+2"]]:
    """Return a function that computes one client's sums after each wanted number of steps."""
    memory_of = make_memory_lookup(algorithm, state, memory, federation)

    def score_one(client: Int[Array, ""]) -> Float[Array, "steps+1 width+2"]:
        own_memory = memory_of(client)
        held_out = federation.held_out_task(client)
        task = held_out if on_test else federation.training_task(client)
        key = keys.adaptation(client)
        if shots is not None:
            task = take_first(task, shots, key)
        return score_client(algorithm, state, own_memory, task, held_out, key, wanted, most=most)

    return score_one


def make_memory_lookup(
    algorithm: Algorithm, state: State, memory: Memory, federation: Federation
) -> Callable[[Int[Array, ""]], Memory]:
    """Return a function that looks up a client's memory; a new client's is a fresh one."""
    fresh = algorithm.init_memory(state)

    def memory_of(client: Int[Array, ""]) -> Memory:
        known = client < federation.known
        row = jnp.where(known, client, 0)
        return where(known, jax.tree.map(lambda m: m[row], memory), fresh)

    return memory_of


def order_examples(task: Task, key: PRNGKeyArray) -> Int[Array, " most"]:
    """Return the places of the task's examples in a random order: the first ``count`` of these.

    The number of a place is drawn from its own key. So the order depends on the client's key and
    number of examples alone, not on how far its arrays are padded: simulation, personalisation and
    a federation's site agree.
    """
    place, root = jnp.arange(task.most), example_order(key)
    draws = jax.vmap(lambda at: jax.random.bits(jax.random.fold_in(root, at)))(place)
    return jnp.lexsort((draws, place >= task.count))


def take_first(task: Task, shots: Int[Array, ""], key: PRNGKeyArray) -> Task:
    """Return the first examples of a random order; a task with no more stays as it is."""
    order = jnp.where(shots < task.count, order_examples(task, key), jnp.arange(task.most))
    return task.subset(order, jnp.minimum(shots, task.count))


def score_client(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    task: Task,
    held_out: Task,
    key: PRNGKeyArray,
    wanted: Bool[Array, " steps+1"],
    *,
    most: int,
) -> Float[Array, "steps+1 width+2"]:
    """Return sums over a client's held-out examples after each wanted number of steps."""
    last = jnp.max(jnp.where(wanted, jnp.arange(most + 1), 0))
    task = task.for_adaptation()
    width = sums_width(held_out)

    def score_step(personal: Tree, step: Int[Array, ""]) -> Float[Array, " width+2"]:
        model = algorithm.personal_model(personal)
        return jax.lax.cond(
            wanted[step], lambda: sum_scores(held_out, model), lambda: jnp.zeros((width,))
        )

    def advance(step: Int[Array, ""], carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
        personal, table = carry
        personal = algorithm.personal_step(personal, task, adaptation_step(key, step))
        return personal, table.at[step + 1].set(score_step(personal, step + 1))

    personal = algorithm.personal_start(state, memory, task, adaptation_start(key))
    table = jnp.zeros((most + 1, width)).at[0].set(score_step(personal, jnp.int32(0)))
    return jax.lax.fori_loop(0, last, advance, (personal, table))[1]


def sums_width(task: Task) -> int:
    """Return the length of a client's sums: loss, the metrics' statistics, non-finite examples."""
    return task.objective.width + 2


def sum_scores(task: Task, params: Tree) -> Float[Array, " width+2"]:
    """Sum over all examples of the task: losses, the metrics' statistics, non-finite examples."""

    def add_block(b: Int[Array, ""], sums: Float[Array, " width+2"]) -> Float[Array, " width+2"]:
        return sums + sum_block(*score_block(task, params, b))

    return jax.lax.fori_loop(0, count_blocks(task), add_block, jnp.zeros((sums_width(task),)))


def count_blocks(task: Task) -> Int[Array, ""]:
    """Return how many blocks hold the task's examples."""
    return (task.count + BLOCK - 1) // BLOCK


def score_block(
    task: Task, params: Tree, block: Int[Array, ""]
) -> tuple[Bool[Array, " block"], ExampleScores]:
    """Return which examples of a block are the task's, and the scores of all."""
    place = block * BLOCK + jnp.arange(BLOCK)
    real = place < task.count
    rows = task.rows_at(jnp.where(real, place, 0))
    batch = jax.tree.map(lambda a: a[rows], task.examples)
    return real, task.objective.score(task.merge_frozen(params), batch)


def sum_block(real: Bool[Array, " block"], score: ExampleScores) -> Float[Array, " width+2"]:
    """Return the sums of one block."""
    bad = is_bad(score)
    ends = [jnp.sum(jnp.where(real, v, 0).astype(float)) for v in (score.loss, bad)]
    middle = jnp.sum(jnp.where(real[:, None], score.statistics, 0).astype(float), axis=0)
    return jnp.concatenate([ends[0][None], middle, ends[1][None]])


def is_bad(score: ExampleScores) -> Bool[Array, " block"]:
    """Return where a model's outputs or its loss are not finite."""
    return ~(score.finite & jnp.isfinite(score.loss))
