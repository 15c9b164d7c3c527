"""Check what an algorithm computes: repeatable, from the client's rows, equal in both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
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
"""Largest difference in float32 of two programs for one formula after a few rounds."""
KEY, OTHER_KEY = 3, 4
SMALL, LARGE = 0, 3
"""Clients whose gradients are counted."""


def reply_problems(bench: Bench, *, draws: bool) -> Iterator[Problem]:
    """Check the numbers, keys and rows of one client's round."""
    algorithm, params, task = bench.algorithm, bench.params, bench.task()
    key, other_key = jax.random.key(KEY), jax.random.key(OTHER_KEY)
    run = _compile(run_client)
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
    repeated = _compile(run_client)(algorithm, params, task, key)
    if not are_identical(first, repeated):
        yield Problem(
            "client_update",
            "two calls with the same arguments differ",
            "take all randomness from the key, and keep nothing outside state and memory",
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
    """Check the model of a client that was not in training."""
    algorithm, params, client = bench.algorithm, bench.params, bench.new_client
    key = jax.random.key(KEY)
    run = _compile(_personal_models)
    models, by_steps = run(algorithm, params, bench.task(client), key)
    broken = find_not_finite(models)
    if broken:
        yield Problem(
            "personal_model",
            f"the model of a new client is not finite (after {broken.partition('.')[0]} steps)",
            "personal_start must serve a client with the memory that init_memory gives",
        )
        return
    if find_largest_gap(models[0], models[STEPS])[1] == 0:
        yield Problem(
            "personal_step",
            "adaptation does not change the model of a new client",
            "move the model by a gradient step on the client's examples",
        )
    if find_largest_gap(models, by_steps)[1] > ROUNDING:
        yield Problem(
            "personalize",
            "it differs from personal_start followed by personal_step",
            "do not replace it: the engines take the steps themselves",
        )
    if not are_identical(models, run(algorithm, params, bench.alone(client), key)[0]):
        yield Problem(
            "personal_step",
            "the result changes with the rows of other clients",
            "take examples only through task.batch, task.batches, task.take and task.shuffle_rows",
        )


def cost_problems(bench: Bench) -> Iterator[Problem]:
    """Check that the algorithm declares the gradients it computes."""
    algorithm, (updates, step) = bench.algorithm, count_gradients(bench)
    for examples, counts in updates.items():
        declared = algorithm.gradients_per_update(examples)
        if declared not in _accepted_counts(counts):
            yield _report_count(
                f"gradients_per_update({examples})", "client_update", declared, counts
            )
    if algorithm.gradients_per_step not in _accepted_counts(step):
        declared = algorithm.gradients_per_step
        yield _report_count("gradients_per_step", "personal_step", declared, step)


def count_gradients(bench: Bench) -> tuple[dict[int, Counts], Counts]:
    """Count the gradients of ``client_update``, by number of examples, and of ``personal_step``."""
    algorithm, params = bench.algorithm, bench.params
    objective = CountingObjective(bench.federation.objective)
    update, step = _compile(run_client), _compile(_start_and_step)
    key, updates = jax.random.key(KEY), {}
    for client in (SMALL, LARGE):
        task = bench.task_with(objective, client)
        updates[int(task.count)] = objective.count(
            lambda task=task: update(algorithm, params, task, key)  # type: ignore[misc]
        )
    task = bench.task_with(objective, SMALL)
    # Gradients in personal_start are not counted.
    start = objective.count(lambda: _compile(_start)(algorithm, params, task, key))
    both = objective.count(lambda: step(algorithm, params, task, key))
    return updates, Counts(*(b - s for b, s in zip(both, start, strict=True)))


def engine_problems(bench: Bench) -> Iterator[Problem]:
    """Check that both engines agree, and that an interrupted run can be resumed."""
    engine = bench.engine
    try:
        progress = engine.advance(engine.start(), ROUNDS)
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
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *memories)
    for what, fast, slow in (
        ("state", progress.state, state),
        ("memory", progress.memory, stacked),
    ):
        leaf, gap = find_largest_gap(fast, slow)
        if gap > ROUNDING:
            yield Problem(
                "rounds",
                f"the compiled engine and plain loops differ by {gap:.1g} in {leaf} of the {what} "
                f"after {ROUNDS} rounds",
                "results must depend on the arguments alone: look for Python values that change "
                "between calls, or for code that treats clients differently",
            )
    resumed = engine.start()
    for count in PIECES:
        resumed = engine.advance(_restore(resumed), count)
    if not are_identical((progress.state, progress.memory), (resumed.state, resumed.memory)):
        yield Problem(
            "rounds",
            f"{ROUNDS} rounds in pieces of {', '.join(map(str, PIECES))} differ from {ROUNDS} "
            "rounds at once, so a run cannot be resumed",
            "keep everything that later rounds need in the state or in a client's memory",
        )


def _restore(progress: Progress) -> Progress:
    """Return the progress as it would be read from a checkpoint."""
    state, memory = jax.tree.map(np.asarray, (progress.state, progress.memory))
    return progress._replace(state=state, memory=memory)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the function without sharing a trace, so that Python code in it runs again."""
    return jax.jit(lambda *args: function(*args))


def _personal_models(
    algorithm: Algorithm, params: Tree, task: Task, key: Any
) -> tuple[list[Tree], list[Tree]]:
    """Return a new client's models after 0 … STEPS steps, by ``personalize`` and step by step."""
    state = algorithm.init(params)
    memory = algorithm.init_memory(state)
    models = [algorithm.personalize(state, memory, task, key, n) for n in range(STEPS + 1)]
    carry, by_steps = algorithm.personal_start(state, memory, task, adaptation_start(key)), []
    for step in range(STEPS + 1):
        by_steps.append(algorithm.personal_model(carry))
        carry = algorithm.personal_step(carry, task.for_adaptation(), adaptation_step(key, step))
    return models, by_steps


def _start(algorithm: Algorithm, params: Tree, task: Task, key: Any) -> Any:
    state = algorithm.init(params)
    return algorithm.personal_start(state, algorithm.init_memory(state), task, key)


def _start_and_step(algorithm: Algorithm, params: Tree, task: Task, key: Any) -> Any:
    return algorithm.personal_step(_start(algorithm, params, task, key), task, key)


def _accepted_counts(counts: Counts) -> tuple[int, int]:
    """Return the declared numbers that match a count.

    Differentiating through a gradient step computes that gradient and a Hessian-vector product at
    once; an algorithm may also declare the two separately.
    """
    return counts.evaluations, counts.evaluations + counts.products


def _report_count(where: str, method: str, declared: int, counts: Counts) -> Problem:
    return Problem(
        where,
        f"says {declared}, but {method} computed {counts.evaluations} ({counts})",
        "declare the number computed; budgets and comparisons at equal cost rely on it",
    )
