r"""The meta-gradient of a network that begins with a dense layer, without adapting its weights.

The loss sees the first weights W only through W x, and on a batch of D examples (columns of x) its
gradient by W is Γ xᵀ, Γ the gradient by W x. So a client that has moved from W by −αΓxᵀ sees

    (W − αΓxᵀ) x′ = W x′ − αΓ (xᵀx′)

on the next batch. Neither Γxᵀ nor the moved weights are ever written out: D × D numbers replace a
matrix as large as W. The same holds for the direction of a Hessian-vector product. For images, W
has nearly all parameters and D is smaller than its number of rows; then this saves part of the
large products and most passes over the parameters. It is an identity: the result is that of
:mod:`headstart.meta` up to rounding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from headstart.trees import Scalar, Tree, add

Factors = tuple[tuple[Float[Array, "out batch"], Float[Array, "in batch"]], ...]
"""Σ Γ_j x_jᵀ, not written out: the pairs (Γ_j, x_j)."""


class KnownProduct(eqx.Module):
    """Weights of which only the product with one batch is known."""

    product: Float[Array, "out batch"]

    def __matmul__(self, _: Array) -> Float[Array, "out batch"]:
        """Return the known product."""
        return self.product


@dataclass(frozen=True)
class FirstLayer:
    """A dense layer, the only one that sees the input."""

    weight: Callable[[Tree], Any]
    """Returns its weights (out, in) from the parameters."""
    inputs: Callable[[Any], Float[Array, "in batch"]]
    """Returns its inputs from a batch, one example per column."""

    def pays(self, params: Tree, batches: Any) -> bool:
        """Return whether this is faster than writing the gradients out.

        With ν inner steps on batches of D it saves a product with W (out · in · D) for each inner
        step, and costs l products x_jᵀ x (in · D²) for the l-th point; Hessian-vector products
        save and cost about as much again. Measured: if W has more columns than rows, the rounds
        chosen here took 1 to 1.3 times as long when written out; with 64 inputs and 80 units,
        0.95 times.
        """
        moves = len(batches.inner)
        largest = max(self.inputs(b).shape[1] for b in (*batches.inner, batches.outer))
        outputs, inputs = self.weight(params).shape
        return moves > 0 and (moves + 1) / 2 * largest < outputs < inputs

    def value_and_gradient(
        self,
        loss: Callable[[Tree, Any], Array],
        params: Tree,
        batches: Any,
        *,
        inner_lr: Scalar,
        product: Callable[[Tree, Tree, Any], Tree] | None,
    ) -> tuple[Array, Tree]:
        """Compute the same as :func:`headstart.meta.meta_value_and_gradient`."""
        weight, rest = self.weight(params), self._without_weight(params)
        path: list[tuple[Tree, Factors]] = [(rest, ())]
        for batch in batches.inner:
            rest, moves = path[-1]
            gradient = jax.grad(loss)(self._view(rest, moves, batch, weight), batch)
            rest = add(rest, self._without_weight(gradient), -inner_lr)
            path.append((rest, (*moves, self._factor(gradient, batch, -inner_lr))))
        adapted = self._view(*path.pop(), batches.outer, weight)
        value, gradient = jax.value_and_grad(loss)(adapted, batches.outer)
        d = self._without_weight(gradient)
        parts: Factors = (self._factor(gradient, batches.outer),)
        if product is not None:
            for (rest, moves), batch in zip(reversed(path), reversed(batches.hessian), strict=True):
                point = self._view(rest, moves, batch, weight)
                change = product(point, self._view(d, parts, batch), batch)
                d = add(d, self._without_weight(change), -inner_lr)
                parts = (*parts, self._factor(change, batch, -inner_lr))
        return value, self._with_weight(d, _sum(gamma @ x.T for gamma, x in parts))

    def _view(self, rest: Tree, factors: Factors, batch: Any, base: Array | None = None) -> Tree:
        """Return the tree with the product (base + Σ Γ_j x_jᵀ) x for the first weights."""
        x = self.inputs(batch)
        seen = [] if base is None else [base @ x]
        seen += [gamma @ (at.T @ x) for gamma, at in factors]
        return self._with_weight(rest, KnownProduct(_sum(seen)))

    def _factor(self, gradient: Tree, batch: Any, scale: Scalar = 1.0) -> tuple[Array, Array]:
        """Return the part of a gradient that belongs to the first weights."""
        return scale * self.weight(gradient).product, self.inputs(batch)

    def _with_weight(self, rest: Tree, weight: Any) -> Tree:
        return eqx.tree_at(self.weight, rest, weight, is_leaf=lambda leaf: leaf is None)

    def _without_weight(self, tree: Tree) -> Tree:
        return eqx.tree_at(self.weight, tree, None)


def _sum(parts: Iterable[Array]) -> Array:
    return functools.reduce(operator.add, parts)
