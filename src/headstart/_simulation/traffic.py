"""Compute how many bytes a client receives and sends in a round."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from headstart.algorithms._contract import Algorithm, Memory, State, Task
from headstart.trees import Tree, size

WEIGHT = 4
"""Bytes of a weight."""


class Traffic(NamedTuple):
    """Bytes of one client in one round."""

    down: int
    up: int

    def times(self, count: int) -> Traffic:
        """Return the bytes of ``count`` exchanges."""
        return Traffic(count * self.down, count * self.up)


def compute_traffic(algorithm: Algorithm, state: State, memory: Memory, task: Task) -> Traffic:
    """Return the traffic of one client, from shapes alone.

    A number of the update takes as many bits as the aggregation leaves it.
    """
    key = jax.random.key(0)

    def exchange(state: State, memory: Memory, task: Task) -> tuple[Tree, Tree]:
        sent = algorithm.broadcast(state, key)
        return sent, algorithm.client_update(sent, memory, task, key)[0]

    sent, reply = jax.eval_shape(exchange, state, memory, task)
    update = -(-size(reply.update) * algorithm.bits_per_number // 8)
    parts = [_count_bytes(part.value) + WEIGHT for part in reply.parts.values()]
    return Traffic(down=_count_bytes(sent), up=update + WEIGHT + sum(parts))


def _count_bytes(tree: Tree) -> int:
    return sum(leaf.size * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))
