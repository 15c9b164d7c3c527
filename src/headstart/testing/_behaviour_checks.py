"""What an algorithm computes: repeatable, from the client's own rows, as both engines do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart._keys import adaptation_start, adaptation_step
from headstart._simulation.reference import run_rounds_slowly
from headstart._simulation.simulation import Progress
from headstart.algorithms._contract import Algorithm, Task
from headstart.errors import DivergedError
from headstart.testing._bench import Bench, run_client
from headstart.testing._gradient_counting import CountingObjective, Counts
from headstart.testing._problems import Problem, are_identical, find_largest_gap, find_not_finite
from headstart.trees import Tree

ROUNDS, PIECES = 4, (1, 2, 1)
STEPS = 2
ROUNDING = 1e-4
"""Two programs for one formula may differ by this much after a few rounds in float32."""
KEY, OTHER_KEY = 3, 4
SMALL, LARGE = 0, 3
"""Clients whose gradients are counted."""


def reply_problems(bench: Bench, *, draws: bool) -> Iterator[Problem]:
    """Numbers, keys and rows of one client's round."""
    algorithm, params, task = bench.algorithm, bench.params, bench.task()
    key, other_key = jax.random.key(KEY), jax.random.key(OTHER_KEY)
    run = _compiled(run_client)
    first = run(algorithm, params, task, key)
    reply, memory, info = first
    parts = {"reply": reply, "memory": memory, "info": info}
    broken = next(
        (f"{name}.{find_not_finite(p)}" for name, p in parts.items() if find_not_finite(p)), ""
    )
    if broken:
        yield Problem(
            "client_update",
            f"{broken} is not finite on small, well-scaled data",
            "look for a division by zero or a step size that is too large",
        )
        return
    weight = float(algorithm.weight_of(task.count))
    if not np.isclose(float(reply.weight), weight):
        yield Problem(
            "client_update",
            f"the weight is {float(reply.weight):g}, but weight_of({int(task.count)}) is "
            f"{weight:g}, and a server refuses a reply with another weight",
            "reply with self.weight_of(task.count)",
        )
    again = _compiled(run_client)(algorithm, params, task, key)
    if not are_identical(first, again):
        yield Problem(
            "client_update",
            "two calls with the same arguments differ",
            "take all randomness from the key, and keep nothing outside of state and memory",
        )
    if draws and are_identical(first[:2], run(algorithm, params, task, other_key)[:2]):
        yield Problem(
            "client_update",
            "another key gives the same reply and memory",
            "draw batches with the key (task.batch, task.draw_rows); if every step uses all rows, "
            "call check_algorithm(…, draws=False)",
        )
    alone = run(algorithm, params, bench.alone(), key)
    if not are_identical(first, alone):
        yield Problem(
            "client_update",
            "the result changes with the rows of other clients",
            "take examples only through task.batch, task.batches, task.take and task.shuffle_rows",
        )


def personal_problems(bench: Bench) -> Iterator[Problem]:
    """The model of a client that was never in training."""
    algorithm, params, client = bench.algorithm, bench.params, bench.new_client
    key = jax.random.key(KEY)
    run = _compiled(_personal_models)
    asked, by_hand = run(algorithm, params, bench.task(client), key)
    broken = find_not_finite(asked)
    if broken:
        yield Problem(
            "personal_model",
            f"the model of a new client is not finite (after {broken.partition('.')[0]} steps)",
            "personal_start must serve a client with the memory that init_memory gives",
        )
        return
    if find_largest_gap(asked[0], asked[STEPS])[1] == 0:
        yield Problem(
            "personal_step",
            "adaptation does not change the model of a new client",
            "move the model by a gradient step on the client's examples",
        )
    if find_largest_gap(asked, by_hand)[1] > ROUNDING:
        yield Problem(
            "personalize",
            "it differs from personal_start followed by personal_step",
            "do not replace it: the engines take the steps themselves",
        )
    if not are_identical(asked, run(algorithm, params, bench.alone(client), key)[0]):
        yield Problem(
            "personal_step",
            "the result changes with the rows of other clients",
            "take examples only through task.batch, task.batches, task.take and task.shuffle_rows",
        )


def cost_problems(bench: Bench) -> Iterator[Problem]:
    """Gradients as declared."""
    algorithm, (updates, step) = bench.algorithm, count_gradients(bench)
    for examples, counts in updates.items():
        declared = algorithm.gradients_per_update(examples)
        if declared not in _accepted(counts):
            yield _miscounted(
                f"gradients_per_update({examples})", "client_update", declared, counts
            )
    if algorithm.gradients_per_step not in _accepted(step):
        declared = algorithm.gradients_per_step
        yield _miscounted("gradients_per_step", "personal_step", declared, step)


def count_gradients(bench: Bench) -> tuple[dict[int, Counts], Counts]:
    """Gradients of ``client_update`` by the client's examples, and of ``personal_step``."""
    algorithm, params = bench.algorithm, bench.params
    objective = CountingObjective(bench.federation.objective)
    update, step = _compiled(run_client), _compiled(_one_step)
    key, updates = jax.random.key(KEY), {}
    for client in (SMALL, LARGE):
        task = bench.task_with(objective, client)
        updates[int(task.count)] = objective.count(
            lambda task=task: update(algorithm, params, task, key)  # type: ignore[misc]
        )
    task = bench.task_with(objective, SMALL)
    # What personal_start computes does not count.
    start = objective.count(lambda: _compiled(_start)(algorithm, params, task, key))
    both = objective.count(lambda: step(algorithm, params, task, key))
    return updates, Counts(*(b - s for b, s in zip(both, start, strict=True)))


def engine_problems(bench: Bench) -> Iterator[Problem]:
    """Both engines, and a run that is interrupted."""
    engine = bench.engine
    try:
        whole = engine.advance(engine.start(), ROUNDS)
    except DivergedError as error:
        yield Problem("client_update", str(error), "the step sizes may be too large by default")
        return
    state, memories = run_rounds_slowly(
        engine.algorithm,
        engine.model.init(engine.keys.init, engine.data.schema),
        engine.federation,
        engine.keys,
        rounds=ROUNDS,
        active=engine.active,
    )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories)
    for what, fast, slow in (("state", whole.state, state), ("memory", whole.memory, stacked)):
        leaf, gap = find_largest_gap(fast, slow)
        if gap > ROUNDING:
            yield Problem(
                "rounds",
                f"the compiled engine and plain loops differ by {gap:.1g} in {leaf} of the {what} "
                f"after {ROUNDS} rounds",
                "results must depend on the arguments alone: look for Python values that change "
                "between calls, or for code that treats one client unlike another",
            )
    pieces = engine.start()
    for count in PIECES:
        pieces = engine.advance(_stored(pieces), count)
    if not are_identical((whole.state, whole.memory), (pieces.state, pieces.memory)):
        yield Problem(
            "rounds",
            f"{ROUNDS} rounds in pieces of {', '.join(map(str, PIECES))} differ from {ROUNDS} "
            "rounds at once, so a run cannot be resumed",
            "keep everything that later rounds need in the state or in a client's memory",
        )


def _stored(progress: Progress) -> Progress:
    """As a checkpoint would give it back."""
    state, memory = jax.tree.map(np.asarray, (progress.state, progress.memory))
    return progress._replace(state=state, memory=memory)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Traced and compiled for its own: what was decided while tracing is decided again."""
    return jax.jit(lambda *args: function(*args))


def _personal_models(
    algorithm: Algorithm, params: Tree, task: Task, key: Any
) -> tuple[list[Tree], list[Tree]]:
    """A new client's model after 0 … STEPS steps: by ``personalize``, and step by step."""
    state = algorithm.init(params)
    memory = algorithm.init_memory(state)
    asked = [algorithm.personalize(state, memory, task, key, n) for n in range(STEPS + 1)]
    own, by_hand = algorithm.personal_start(state, memory, task, adaptation_start(key)), []
    for step in range(STEPS + 1):
        by_hand.append(algorithm.personal_model(own))
        own = algorithm.personal_step(own, task.for_adaptation(), adaptation_step(key, step))
    return asked, by_hand


def _start(algorithm: Algorithm, params: Tree, task: Task, key: Any) -> Any:
    state = algorithm.init(params)
    return algorithm.personal_start(state, algorithm.init_memory(state), task, key)


def _one_step(algorithm: Algorithm, params: Tree, task: Task, key: Any) -> Any:
    return algorithm.personal_step(_start(algorithm, params, task, key), task, key)


def _accepted(counts: Counts) -> tuple[int, int]:
    """Declared numbers that fit a count.

    Differentiating through a gradient step takes that gradient and a product with its Hessian at
    once; an algorithm that declares the two separately is right as well.
    """
    return counts.evaluations, counts.evaluations + counts.products


def _miscounted(where: str, method: str, declared: int, counts: Counts) -> Problem:
    return Problem(
        where,
        f"says {declared}, but {method} computed {counts.evaluations} ({counts})",
        "declare what is computed; budgets and comparisons at equal cost rely on it",
    )
