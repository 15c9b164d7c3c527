"""Replies that are all at hand, as the server sees them: for the readable and the real engine."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array

from headstart.algorithms.contract import Cohort, Part, Reply
from headstart.trees import Tree, add, mean, weighted


def cohort_of(replies: Sequence[Reply], *, asked: int, exist: int) -> Cohort:
    """Weighted means, summed in the order of the replies."""
    parts = {name: [reply.parts[name] for reply in replies] for name in replies[0].parts}
    return Cohort(
        weighted_mean([Part(reply.update, reply.weight) for reply in replies]),
        {name: weighted_mean(found) for name, found in parts.items()},
        answered=jnp.int32(len(replies)),
        asked=asked,
        exist=exist,
    )


def content_of(reply: Reply) -> dict[str, Tree]:
    """What a reply holds beside its weights: all that has to travel as arrays."""
    return {"update": reply.update, "parts": {name: p.value for name, p in reply.parts.items()}}


def weighted_mean(parts: Sequence[Part]) -> Tree:
    """Σ weight · value / Σ weight."""
    total: Tree = weighted(parts[0].value, parts[0].weight)
    weight: Array = jnp.asarray(parts[0].weight)
    for value, own in parts[1:]:
        total, weight = add(total, weighted(value, own)), weight + own
    return mean(total, weight)
