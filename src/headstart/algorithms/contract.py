"""What a federated algorithm is: pure functions, one shape for all.

    state                = algorithm.init(params)                                  server, once
    broadcast            = algorithm.broadcast(state, key)                         each round
    reply, memory, info  = algorithm.client_update(broadcast, memory, task, key)   on one client
    state, info          = algorithm.server_update(state, mean_reply)              server
    params               = algorithm.personalize(state, memory, task, key, steps)  on one client

The server sees only the weighted mean of the replies: that keeps memory flat in the number of
clients and fits secure aggregation. ``memory`` is what a client keeps between rounds, ``()`` for
most; ``init_memory`` is also what a client gets who was never in training. Randomness comes in as
keys: the same keys give the same numbers in every engine.

An algorithm is a frozen Equinox module. Its step sizes are leaves, so that changing one does not
compile anew; what changes the program (step counts, names) is declared static. Every class is
either abstract or final: nothing is overridden.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from headstart.trees import Tree

Batch: TypeAlias = Any
State: TypeAlias = PyTree
Memory: TypeAlias = PyTree
Reply: TypeAlias = PyTree
Broadcast: TypeAlias = PyTree
Personal: TypeAlias = PyTree
Info = dict[str, Float[Array, ""]]
Weights = Literal["uniform", "examples"]


class Objective(Protocol):
    """What a client minimises."""

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Mean loss of the parameters on a batch."""


class Task(eqx.Module):
    """One client's loss and data: rows ``start … start + count − 1`` of arrays it may share.

    The arrays are a tree with one leading axis, usually ``(x, y)``. In a simulation they hold all
    clients' rows and only ``start`` and ``count`` differ, so nothing is copied per client.
    """

    objective: Objective = eqx.field(static=True)
    examples: PyTree[Array]
    start: Int[Array, ""]
    count: Int[Array, ""]

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Mean loss on a batch."""
        return self.objective.loss(params, batch)

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        """Examples drawn uniformly with replacement from the client's rows."""
        return self.batches(key, [size])[0]

    def batches(self, key: PRNGKeyArray, sizes: Sequence[int]) -> list[Batch]:
        """Several independent batches from one draw, which compiles faster than one draw each.

        The first is what :meth:`batch` draws with the same key.
        """
        return self.take(self._draw(key, sum(sizes)), sizes)

    def draws(self, key: PRNGKeyArray, steps: int, size: int) -> Int[Array, "steps size"]:
        """Rows for many steps at once: step t draws from ``fold_in(key, t)``.

        :meth:`take` turns one step's rows into the batches that :meth:`batches` draws with that
        key. One call of the generator costs the same for one step as for all of them.
        """
        return jax.vmap(lambda t: self._draw(jax.random.fold_in(key, t), size))(jnp.arange(steps))

    def take(self, rows: Int[Array, " size"], sizes: Sequence[int]) -> list[Batch]:
        """The examples in these rows, cut into batches."""
        ends = list(itertools.accumulate(sizes))
        return [self._rows(rows[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def _draw(self, key: PRNGKeyArray, size: int) -> Int[Array, " size"]:
        return self.start + jax.random.randint(key, (size,), 0, self.count)

    def _rows(self, rows: Int[Array, " size"]) -> Batch:
        # Rows are the client's own: no need to have the compiled program check each of them.
        return jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), self.examples)


class Algorithm(eqx.Module):
    """The contract. See docs/adding-an-algorithm.md for a skeleton."""

    name: ClassVar[str]
    """How the algorithm is called in an experiment file."""
    needs_memory: ClassVar[bool] = False
    """Whether a client keeps anything between rounds."""

    weights: eqx.AbstractVar[Weights]
    """Whether the server's mean counts clients equally or by their training examples."""

    @abstractmethod
    def init(self, params: Tree) -> State:
        """The server's state before the first round."""

    @abstractmethod
    def init_memory(self, state: State) -> Memory:
        """What a client remembers who has not taken part yet; ``()`` if nothing."""

    @abstractmethod
    def broadcast(self, state: State, key: PRNGKeyArray) -> Broadcast:
        """What the server sends to every client of a round."""

    @abstractmethod
    def client_update(
        self, broadcast: Broadcast, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Memory, Info]:
        """One client's work in a round; ``info["loss"]`` is the mean training loss it saw."""

    @abstractmethod
    def server_update(self, state: State, mean_reply: Reply) -> tuple[State, Info]:
        """The next state from the weighted mean of the replies."""

    @abstractmethod
    def model(self, state: State) -> Tree:
        """The shared initial model."""

    @abstractmethod
    def personal_start(self, state: State, memory: Memory) -> Personal:
        """What a client's own model starts from, before any adaptation step."""

    @abstractmethod
    def personal_step(self, personal: Personal, task: Task, key: PRNGKeyArray) -> Personal:
        """One adaptation step on the client's data."""

    @abstractmethod
    def personal_model(self, personal: Personal) -> Tree:
        """The parameters the client would use."""

    @property
    @abstractmethod
    def gradients_per_update(self) -> int:
        """Gradient evaluations of one ``client_update``; a Hessian-vector product counts 2."""

    @property
    @abstractmethod
    def gradients_per_step(self) -> int:
        """Gradient evaluations of one ``personal_step``."""

    @property
    @abstractmethod
    def largest_batch(self) -> int:
        """The largest batch the algorithm draws from a client."""

    def client_weight(self, examples: Int[Array, ""]) -> Float[Array, ""]:
        """The client's weight in the server's mean."""
        size = examples.astype(float)
        return size if self.weights == "examples" else jnp.ones_like(size)

    def personalize(
        self,
        state: State,
        memory: Memory,
        task: Task,
        key: PRNGKeyArray,
        steps: int | Int[Array, ""],
    ) -> Tree:
        """This client's own model after so many adaptation steps."""

        def advance(step: Int[Array, ""], personal: Personal) -> Personal:
            return self.personal_step(personal, task, jax.random.fold_in(key, step))

        start = self.personal_start(state, memory)
        return self.personal_model(jax.lax.fori_loop(0, steps, advance, start))
