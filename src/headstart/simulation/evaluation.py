"""How good every client's own model is, before and after adaptation.

A client adapts on its training split and is scored on its held-out split, whatever the method, and
every method gets the same number of gradient evaluations. Adapting on held-out data (as paper P
did) exists only as ``adapt_on="test"`` and marks every number that comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from headstart.algorithms.contract import Algorithm, Memory, State, Task
from headstart.keys import Keys, adaptation_start, adaptation_step
from headstart.simulation.federation import Federation
from headstart.simulation.layout import Layout
from headstart.trees import Tree, where

AdaptOn = Literal["train", "test"]
BLOCK = 64
"""Held-out examples scored at a time."""


class Scores(NamedTuple):
    """Per client and number of adaptation steps 0 … most; NaN where not asked for or diverged."""

    clients: Int[np.ndarray, " clients"]
    """Whose the rows are."""
    loss: Float[np.ndarray, "clients steps+1"]
    accuracy: Float[np.ndarray, "clients steps+1"]
    diverged: Bool[np.ndarray, "clients steps+1"]


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
) -> Scores:
    """Scores of these clients after each number of adaptation steps in ``steps``.

    A client's key does not depend on the round or the algorithm: differences between evaluations
    come from the models, not from the draw of adaptation batches. ``most`` fixes the width of the
    result, so that evaluations of different ``steps`` share one compiled program.
    """
    most = max(steps) if most is None else most
    wanted = np.isin(np.arange(most + 1), steps)
    table = _evaluate(
        algorithm, state, memory, federation, keys, np.asarray(clients, np.int32), wanted,
        most=most, on_test=adapt_on == "test", layout=layout,
    )  # fmt: skip
    counts = np.asarray(federation.test_counts)[clients]
    return scores_from_sums(np.asarray(table, float), clients, counts, wanted)


def scores_from_sums(
    table: Float[np.ndarray, "clients steps+1 3"],
    clients: Int[np.ndarray, " clients"],
    counts: Int[np.ndarray, " clients"],
    wanted: Bool[np.ndarray, " steps+1"],
) -> Scores:
    """Means from sums over each client's held-out examples."""
    loss, correct, bad = np.moveaxis(table, -1, 0)
    per_client = np.asarray(counts, float)[:, None]
    asked = np.broadcast_to(wanted, loss.shape)
    finite = (bad == 0) & np.isfinite(loss)
    return Scores(
        np.asarray(clients),
        np.where(finite & asked, loss / per_client, np.nan),
        np.where(finite & asked, correct / per_client, np.nan),
        ~finite & asked,
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
    *,
    most: int,
    on_test: bool,
    layout: Layout,
) -> Float[Array, "clients steps+1 3"]:
    @layout.everywhere
    def program(
        algorithm: Algorithm,
        state: State,
        memory: Memory,
        federation: Federation,
        keys: Keys,
        clients: Array,
        wanted: Array,
    ) -> Array:
        one = _scorer(algorithm, state, memory, federation, keys, wanted, most, on_test)

        def group(clients: Int[Array, " group"]) -> Array:
            return jnp.concatenate(layout.together(one, clients))

        tables = jax.lax.map(group, layout.mine(clients, padding=0))
        return layout.gathered(tables, len(clients))

    return program(algorithm, state, memory, federation, keys, clients, wanted)


def _scorer(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    federation: Federation,
    keys: Keys,
    wanted: Bool[Array, " steps+1"],
    most: int,
    on_test: bool,
) -> Callable[[Int[Array, ""]], Float[Array, "steps+1 3"]]:
    """One client's sums after each wanted number of adaptation steps."""
    fresh = algorithm.init_memory(state)

    def one(client: Int[Array, ""]) -> Float[Array, "steps+1 3"]:
        known = client < federation.known
        row = jnp.where(known, client, 0)
        mine = where(known, jax.tree.map(lambda m: m[row], memory), fresh)
        held_out = federation.held_out_task(client)
        task = held_out if on_test else federation.training_task(client)
        own = keys.adaptation(client)
        return score_client(algorithm, state, mine, task, held_out, own, wanted, most=most)

    return one


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
) -> Float[Array, "steps+1 3"]:
    """Sums over one client's held-out examples after each wanted number of steps on its task."""
    last = jnp.max(jnp.where(wanted, jnp.arange(most + 1), 0))

    def scored(personal: Tree, step: Int[Array, ""]) -> Float[Array, " 3"]:
        model = algorithm.personal_model(personal)
        return jax.lax.cond(
            wanted[step], lambda: score_sums(held_out, model), lambda: jnp.zeros((3,))
        )

    def advance(step: Int[Array, ""], carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
        personal, table = carry
        personal = algorithm.personal_step(personal, task, adaptation_step(key, step))
        return personal, table.at[step + 1].set(scored(personal, step + 1))

    personal = algorithm.personal_start(state, memory, task, adaptation_start(key))
    table = jnp.zeros((most + 1, 3)).at[0].set(scored(personal, jnp.int32(0)))
    return jax.lax.fori_loop(0, last, advance, (personal, table))[1]


def score_sums(task: Task, params: Tree) -> Float[Array, " 3"]:
    """Over all the task's examples: sum of losses, how many are right, how many not finite."""
    block = jnp.arange(BLOCK)

    def add_block(b: Int[Array, ""], sums: Float[Array, " 3"]) -> Float[Array, " 3"]:
        place = b * BLOCK + block
        real = place < task.count
        rows = task.start + jnp.where(real, place, 0)
        batch = jax.tree.map(lambda a: a[rows], task.examples)
        score = task.objective.score(params, batch)  # type: ignore[attr-defined]
        new = [score.loss, score.correct, ~(score.finite & jnp.isfinite(score.loss))]
        return sums + jnp.stack([jnp.sum(jnp.where(real, v, 0).astype(float)) for v in new])

    blocks = (task.count + BLOCK - 1) // BLOCK
    return jax.lax.fori_loop(0, blocks, add_block, jnp.zeros((3,)))
