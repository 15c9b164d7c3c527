"""Adapt the shared model to one client, with one compiled program for all clients of a run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from headstart.algorithms._contract import (
    Algorithm,
    Memory,
    ModelParts,
    State,
    Task,
    TaskObjective,
)
from headstart.errors import DivergedError
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
    count = len(examples[1])
    task = Task(
        objective,
        tuple(jnp.asarray(pad_to_power_of_two(np.asarray(array))) for array in examples),
        jnp.int32(0),
        jnp.int32(count),
        1 << (count - 1).bit_length(),
        parts,
    )
    params = _personalize(algorithm, state, memory, task, key, jnp.int32(steps))
    if not all_finite(params):
        raise DivergedError(
            f"the model is not finite after {steps} adaptation steps; "
            "use fewer steps, or train with a smaller algorithm.inner_lr"
        )
    return params


def pad_to_power_of_two(array: np.ndarray) -> np.ndarray:
    """Return the rows, followed by copies of the first one up to the next power of two.

    >>> pad_to_power_of_two(np.array([7, 8, 9])).tolist()
    [7, 8, 9, 7]
    """
    missing = (1 << (len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)])


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
