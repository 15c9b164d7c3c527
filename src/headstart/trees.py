"""Arithmetic on parameter trees: a tree of arrays is a vector, leaf by leaf."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

__all__ = [
    "add",
    "all_finite",
    "apply_weight",
    "choose_leaves",
    "clip_norm",
    "divide_by_weight",
    "dot",
    "leaf_names",
    "mix",
    "norm",
    "random_like",
    "scale",
    "select_leaves",
    "size",
    "subtract",
    "where",
    "zeros_like",
]

Tree: TypeAlias = PyTree[Array]
Scalar: TypeAlias = Any  # a Python number or a traced scalar


def add(a: Tree, b: Tree, scale: Scalar = 1.0) -> Tree:
    """Return a + scale · b, in the number types of a."""
    return jax.tree.map(lambda u, v: (u + scale * v).astype(u.dtype), a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    """Return a − b."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(a: Tree, factor: Scalar) -> Tree:
    """Return factor · a, in the number types of a."""
    return jax.tree.map(lambda u: (factor * u).astype(u.dtype), a)


def apply_weight(a: Tree, weight: Scalar) -> Tree:
    """Return weight · a, in the number types of a; weight 0 gives 0 even for NaN."""
    return jax.tree.map(lambda u: jnp.where(weight > 0, weight * u, 0).astype(u.dtype), a)


def divide_by_weight(total: Tree, weight: Scalar) -> Tree:
    """Divide a weighted sum by the sum of the weights; zero if the weights sum to zero."""
    return scale(total, jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0))


def mix(a: Tree, b: Tree, share: Scalar) -> Tree:
    """Return share · a + (1 − share) · b, in the number types of a."""
    return jax.tree.map(lambda u, v: (share * u + (1 - share) * v).astype(u.dtype), a, b)


def dot(a: Tree, b: Tree) -> Array:
    """Return ⟨a, b⟩ over all leaves."""
    products = jax.tree.map(lambda u, v: jnp.sum(u * v), a, b)
    leaves = jax.tree.leaves(products)
    return functools.reduce(jnp.add, leaves) if leaves else jnp.zeros(())


def clip_norm(tree: Tree, longest: Scalar) -> Tree:
    """Scale a tree that is longer than ``longest`` down to this norm; keep its direction."""
    factor = longest / jnp.maximum(norm(tree), longest)
    return jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), tree)


def norm(a: Tree) -> Array:
    """Return ‖a‖₂ over all leaves."""
    return jnp.sqrt(dot(a, a))


def choose_leaves(chosen: Sequence[bool], a: Tree, b: Tree) -> Tree:
    """Return a tree with the chosen leaves of a and the other leaves of b."""
    leaves, structure = jax.tree.flatten(a)
    pairs = zip(leaves, jax.tree.leaves(b), chosen, strict=True)
    return jax.tree.unflatten(structure, [u if first else v for u, v, first in pairs])


def select_leaves(a: Tree, chosen: Sequence[bool]) -> Tree:
    """Replace leaves that are not chosen by None; ``eqx.combine`` merges such trees."""
    leaves, structure = jax.tree.flatten(a)
    kept = [leaf if keep else None for leaf, keep in zip(leaves, chosen, strict=True)]
    return jax.tree.unflatten(structure, kept)


def random_like(key: PRNGKeyArray, a: Tree, draw: Callable[..., Array]) -> Tree:
    """Draw a random tree of the same shape, each leaf independently."""
    leaves, structure = jax.tree.flatten(a)
    keys = jax.random.split(key, max(1, len(leaves)))
    drawn = [draw(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=False)]
    return jax.tree.unflatten(structure, drawn)


def zeros_like(a: Tree) -> Tree:
    """Return the zero vector of the same shape."""
    return jax.tree.map(jnp.zeros_like, a)


def where(condition: Any, a: Tree, b: Tree) -> Tree:
    """Return a if the scalar condition holds, else b, without branching."""
    return jax.tree.map(lambda u, v: jnp.where(condition, u, v), a, b)


def all_finite(a: Tree) -> Array:
    """Return whether every number in the tree is finite."""
    checks = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(a)]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def size(a: Tree) -> int:
    """Return how many numbers the tree has."""
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def leaf_names(a: Tree) -> list[str]:
    """Return a readable, unique name for every leaf, as in model files: ``layers.0.weight``."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(a)]
    short = [jax.tree_util.keystr(path, simple=True, separator=".") or "value" for path in paths]
    unique = len(set(short)) == len(short)
    return short if unique else [jax.tree_util.keystr(path) for path in paths]
