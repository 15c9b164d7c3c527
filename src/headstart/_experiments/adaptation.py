"""Adapt the shared model to one client, with one compiled program for all clients of a run."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart._metric import Metric
from headstart._simulation.step_choice import FEWEST, StepSums, choose_steps, cross_validate
from headstart.algorithms._contract import (
    Algorithm,
    Memory,
    ModelParts,
    State,
    Task,
    TaskObjective,
)
from headstart.errors import DivergedError
from headstart.models.objectives import Objective
from headstart.records import ChosenSteps
from headstart.trees import Tree, all_finite


def adapt_model(
    algorithm: Algorithm,
    objective: TaskObjective,
    parts: ModelParts | None,
    state: State,
    memory: Memory,
    examples: tuple[np.ndarray, np.ndarray],
    key: PRNGKeyArray,
    steps: int,
) -> Tree:
    """Return the client's parameters after ``steps`` adaptation steps on all the examples.

    Rows are padded to a power of two, so that clients of similar size share one program. Batches
    are drawn from the real rows alone.
    """
    task = make_task(objective, parts, examples)
    params = _personalize(algorithm, state, memory, task, key, jnp.int32(steps))
    if not all_finite(params):
        raise DivergedError(
            f"the model is not finite after {steps} adaptation steps; "
            "use fewer steps, or train with a smaller algorithm.inner_lr"
        )
    return params


def choose_own_steps(
    algorithm: Algorithm,
    objective: Objective,
    parts: ModelParts | None,
    state: State,
    memory: Memory,
    examples: tuple[np.ndarray, np.ndarray],
    key: PRNGKeyArray,
    most: int,
) -> ChosenSteps:
    """Return the number of adaptation steps, at most ``most``, that suits the examples best.

    The rule is that of the final evaluation, with the same draws.
    """
    task = make_task(objective, parts, examples)
    return choose_for_task(algorithm, objective, state, memory, task, key, most)


def choose_for_task(
    algorithm: Algorithm,
    objective: Objective,
    state: State,
    memory: Memory,
    task: Task,
    key: PRNGKeyArray,
    most: int,
) -> ChosenSteps:
    """Return the number of steps that a task's own examples speak for, and their scores."""
    count, metric = int(task.count), Metric(**objective.primary.to_table())  # type: ignore[arg-type]
    if count < FEWEST:
        return ChosenSteps(steps=most, examples=count, metric=metric)
    own = StepSums.from_table(_cross_validate(algorithm, state, memory, task, key, most=most))
    steps = int(choose_steps(own, np.asarray(count)))
    values = objective.values(own.scores[:, 1:-1], count)[metric.name]
    return ChosenSteps(
        steps=steps,
        examples=count,
        metric=metric,
        shared=float(values[0]),
        personal=float(values[steps]),
    )


def make_task(
    objective: TaskObjective, parts: ModelParts | None, examples: tuple[np.ndarray, np.ndarray]
) -> Task:
    """Return the task of a client with these examples, padded to a power of two."""
    count = len(examples[1])
    return Task(
        objective,
        tuple(jnp.asarray(pad_to_power_of_two(np.asarray(array))) for array in examples),
        jnp.int32(0),
        jnp.int32(count),
        1 << (count - 1).bit_length(),
        parts,
    )


def pad_to_power_of_two(array: np.ndarray) -> np.ndarray:
    """Return the rows, followed by copies of the first one up to the next power of two.

    >>> pad_to_power_of_two(np.array([7, 8, 9])).tolist()
    [7, 8, 9, 7]
    """
    missing = (1 << (len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)])


@partial(jax.jit, static_argnames="most")
def _cross_validate(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, key: PRNGKeyArray, *, most: int
) -> Float[Array, "steps+1 width+5"]:
    return cross_validate(algorithm, state, memory, task, key, most=most)


@jax.jit
def _personalize(
    algorithm: Algorithm,
    state: State,
    memory: Memory,
    task: Task,
    key: PRNGKeyArray,
    steps: Int[Array, ""],
) -> Tree:
    return algorithm.personalize(state, memory, task, key, steps)
