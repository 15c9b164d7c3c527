"""Turn replies that are all in memory into a cohort, for the reference engine and Flower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from headstart.algorithms._contract import Cohort, CombiningRule, Part, Reply
from headstart.trees import Tree, add, apply_weight, divide_by_weight


def build_cohort(
    replies: Sequence[Reply], *, asked: int, exist: int, rule: CombiningRule | None = None
) -> Cohort:
    """Return weighted means, summed in the order of the replies, or the result of the rule."""
    answered = jnp.int32(len(replies))
    if rule is not None:
        stacked: Reply = jax.tree.map(lambda *leaves: jnp.stack(leaves), *replies)
        return combine_replies(stacked, rule, answered=answered, asked=asked, exist=exist)
    parts = {name: [reply.parts[name] for reply in replies] for name in replies[0].parts}
    return Cohort(
        weighted_mean([Part(reply.update, reply.weight) for reply in replies]),
        {name: weighted_mean(values) for name, values in parts.items()},
        answered,
        asked,
        exist,
    )


def combine_replies(
    replies: Reply, rule: CombiningRule, *, answered: Int[Array, ""], asked: int, exist: int
) -> Cohort:
    """Apply a rule to replies that are stacked along the first axis of every leaf."""
    parts = {name: rule.combine(*part) for name, part in replies.parts.items()}
    return Cohort(rule.combine(replies.update, replies.weight), parts, answered, asked, exist)


def reply_arrays(reply: Reply) -> dict[str, Tree]:
    """Return what a reply contains besides its weights: everything that is sent as arrays."""
    return {"update": reply.update, "parts": {name: p.value for name, p in reply.parts.items()}}


def pack_update(content: dict[str, Tree], bits: int) -> dict[str, Tree]:
    """Return the content with the update's whole numbers in as few bytes as they need."""
    kind = packed_dtype(bits)
    if kind is None:
        return content
    return {**content, "update": jax.tree.map(lambda a: a.astype(kind), content["update"])}


def packed_dtype(bits: int) -> Any:
    """Return the type of whole numbers of this many bits; None if numbers are not whole."""
    if bits >= 32:
        return None
    return jnp.int8 if bits <= 8 else jnp.int16


def weighted_mean(parts: Sequence[Part]) -> Tree:
    """Return Σ weight · value / Σ weight, as the compiled rounds compute it without the list."""
    total: Tree = apply_weight(parts[0].value, parts[0].weight)
    weight: Array = jnp.asarray(parts[0].weight)
    for value, own in parts[1:]:
        total, weight = add(total, apply_weight(value, own)), weight + own
    return divide_by_weight(total, weight)
