"""One client's own model, by one compiled program for all clients of a run."""

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


def adapted_model(
    algorithm: Algorithm,
    objective: TaskObjective,
    parts: ModelParts | None,
    state: State,
    memory: Memory,
    examples: tuple[np.ndarray, np.ndarray],
    key: PRNGKeyArray,
    steps: int,
) -> Tree:
    """The client's parameters after ``steps`` adaptation steps on all the examples.

    Rows are filled up to a power of two, so that clients of nearly equal size share one program;
    batches are drawn from the real rows alone.
    """
    count = len(examples[1])
    task = Task(
        objective,
        tuple(jnp.asarray(filled_up(np.asarray(array))) for array in examples),
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


def filled_up(array: np.ndarray) -> np.ndarray:
    """The rows, and copies of the first one up to the next power of two.

    >>> filled_up(np.array([7, 8, 9])).tolist()
    [7, 8, 9, 7]
    """
    more = (1 << (len(array) - 1).bit_length()) - len(array)
    return np.concatenate([array, np.repeat(array[:1], more, axis=0)])


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
