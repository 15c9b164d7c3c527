"""A loss that counts its gradients and Hessian-vector products while they are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from headstart.algorithms._contract import Batch, ExampleScores, TaskObjective
from headstart.trees import Tree, dot


class Counts(NamedTuple):
    """Number of gradients computed, and how many of them were differentiated again."""

    gradients: int
    products: int

    @property
    def evaluations(self) -> int:
        """Gradient evaluations, where a Hessian-vector product counts as 2."""
        return self.gradients + self.products

    def __str__(self) -> str:
        """Describe the counts in words."""
        plain = f"{self.gradients - self.products} gradients"
        if not self.products:
            return plain
        return f"{plain} and {self.products} Hessian-vector products, which count 2 each"


class CountingObjective:
    """An objective that counts its gradients.

    A custom derivative rule runs whenever JAX differentiates the loss, and its callback whenever
    the compiled program does: in loops and under ``vmap`` once for each evaluation.
    """

    first_layer = None

    def __init__(self, objective: TaskObjective) -> None:
        self._gradients: list[None] = []
        self._products: list[None] = []
        self._objective = objective
        self._loss = _add_counting(objective.loss, self._gradients, self._products)

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Return the objective's loss; its gradients are counted."""
        return self._loss(params, batch)

    def losses(self, params: Tree, batch: Batch) -> Float[Array, " batch"]:
        """Return the objective's losses; they are not counted."""
        return self._objective.losses(params, batch)

    def score(self, params: Tree, batch: Batch) -> ExampleScores:
        """Return the objective's scores; they are not counted."""
        return self._objective.score(params, batch)

    @property
    def width(self) -> int:
        """Width of the objective's statistics."""
        return self._objective.width

    def count(self, program: Callable[[], Any]) -> Counts:
        """Run the program and count the gradients it computes."""
        self._gradients.clear()
        self._products.clear()
        jax.block_until_ready(program())
        jax.effects_barrier()
        return Counts(len(self._gradients), len(self._products))


def _add_counting(
    loss: Callable[..., Any], gradients: list[None], products: list[None]
) -> Callable[..., Any]:
    def record_call(calls: list[None], params: Tree) -> None:
        # The argument makes the callback run once per member of a vmapped batch.
        jax.debug.callback(lambda _: calls.append(None), jnp.sum(jax.tree.leaves(params)[0]))

    @jax.custom_jvp
    def value_and_gradient(params: Tree, batch: Batch) -> Any:
        return jax.value_and_grad(loss)(params, batch)

    @value_and_gradient.defjvp
    def second(primals: Any, tangents: Any) -> Any:
        params, batch = primals
        record_call(products, params)
        first = jax.value_and_grad(loss)
        return jax.jvp(lambda w: first(w, batch), (params,), (tangents[0],))

    @jax.custom_jvp
    def counted(params: Tree, batch: Batch) -> Any:
        return loss(params, batch)

    @counted.defjvp
    def first(primals: Any, tangents: Any) -> Any:
        params, batch = primals
        record_call(gradients, params)
        value, gradient = value_and_gradient(params, batch)
        return value, dot(gradient, tangents[0]).astype(value.dtype)

    return counted
