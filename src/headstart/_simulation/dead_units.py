r"""Measure whether a model still depends on its inputs, and on how many of its weights.

Steps that are too large leave a network with finite weights and dead units: units that give the
same output for every input. Hidden units of a model from outside cannot be seen, but what they do
to the outputs can. For outputs f(w, x_i) of n examples and random numbers v_i, the *influence* of a
weight is

    |∂/∂w_j  Σ_i ⟨v_i, f(w, x_i)⟩|   (root of the mean square over several draws of v),

which is zero for the weights into a dead unit and nowhere else. Weights that had no influence on
the untrained model either, such as those of a pixel that is always black, do not count.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from headstart.algorithms._contract import ModelParts
from headstart.data._federated import FederatedDataset
from headstart.models.objectives import Objective
from headstart.parts import merge_frozen
from headstart.trees import Tree

CLIENTS = 32
"""The most clients whose examples are looked at."""
EXAMPLES = 256
"""About as many examples are looked at."""
DRAWS = 4
NO_INFLUENCE = 1e-6
"""A weight is dead if its influence fell below this share of what it was before training."""
SAME_ANSWER = 1e-5
"""Outputs that vary less than this share of their size are equal, up to rounding."""


class Liveness(NamedTuple):
    """What is left of a model, compared with the untrained one."""

    same_answer: bool
    """Whether outputs are the same for every input; those of the untrained model were not."""
    dead_weights: float
    """Share of the weights that had an influence on outputs and have none now."""


class _Response(NamedTuple):
    """How a model's outputs respond to inputs and to weights."""

    variation: Float[Array, ""]
    """Largest standard deviation of an output over the examples, relative to the outputs' size."""
    influence: PyTree[Array]


def compare_with_untrained(
    objective: Objective,
    data: FederatedDataset,
    untrained: Tree,
    trained: Tree,
    parts: ModelParts | None = None,
) -> Liveness | None:
    """Return what is left of the trained model; None if it has no weights or one example."""
    if not jax.tree.leaves(eqx.filter(trained, eqx.is_inexact_array)):
        return None
    rows = sample_rows(data)
    if len(rows) < 2:
        return None
    x = jnp.asarray(data.x[rows])
    before = _measure_response(untrained, parts, x, objective=objective)
    after = _measure_response(trained, parts, x, objective=objective)
    had, dead = 0, 0
    pairs = zip(jax.tree.leaves(before.influence), jax.tree.leaves(after.influence), strict=True)
    for old, new in pairs:
        old, new = np.asarray(old), np.asarray(new)
        had += int(np.sum(old > 0))
        dead += int(np.sum((old > 0) & (new <= NO_INFLUENCE * old)))
    varied = float(before.variation) > SAME_ANSWER
    same = varied and float(after.variation) <= SAME_ANSWER
    return Liveness(same, dead / had if had else 0.0)


def sample_rows(data: FederatedDataset) -> np.ndarray:
    """Choose training examples of known clients, spread evenly over clients and their rows."""
    clients = _spread(data.known_clients, CLIENTS)
    each = EXAMPLES // len(clients)
    rows = [
        int(data.offsets[client]) + _spread(int(data.train_counts[client]), each)
        for client in clients
    ]
    return np.concatenate(rows)


def _spread(count: int, most: int) -> np.ndarray:
    """Return at most ``most`` of the numbers 0 … count − 1, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


@partial(jax.jit, static_argnames="objective")
def _measure_response(
    params: Tree, parts: ModelParts | None, x: Array, *, objective: Objective
) -> _Response:
    weights, fixed = eqx.partition(params, eqx.is_inexact_array)

    def outputs(weights: Tree) -> Array:
        return objective.outputs(merge_frozen(eqx.combine(weights, fixed), parts), x)

    values, pull_back = jax.vjp(outputs, weights)
    # Drawn while tracing: compiling a generator would take longer than all the rest.
    draws = np.random.default_rng(0).standard_normal((DRAWS, *values.shape))
    (gradients,) = jax.vmap(pull_back)(jnp.asarray(draws, values.dtype))
    influence = jax.tree.map(lambda g: jnp.sqrt(jnp.mean(jnp.square(g), axis=0)), gradients)
    size = jnp.sqrt(jnp.mean(jnp.square(values)))
    variation = jnp.max(jnp.std(values, axis=0)) / jnp.where(size > 0, size, 1)
    return _Response(variation, influence)
