"""Local training: every client trains alone, from a common random start. No communication.

The server takes no step, so there are no options for one. A local optimiser starts again in every
round, as in the other algorithms: a client's memory is its model, without the optimiser's state.
With ``local_lr_decay``, the clients need to know the round: the server sends β_k, and nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import Batch, Cohort, Info, Reply, Sent, Task
from headstart.algorithms._local_training import LocalOptimization, PlainAdaptation
from headstart.trees import Tree


class LocalState(NamedTuple):
    """The server keeps the common start and counts rounds."""

    params: Tree
    round: Int[Array, ""]


@final
class Local(PlainAdaptation, LocalOptimization):
    """Each chosen client takes τ gradient steps on its own model; replies are empty.

    A client's memory is its model. A new client starts from the common random start, which is
    what it would have without a federation.
    """

    name: ClassVar[str] = "local"
    needs_memory: ClassVar[bool] = True

    def gradients_per_update(self, examples: int) -> int:
        """Count one gradient per local step."""
        return self.steps_for(examples, [self.batch_sizes[1]])

    def init(self, params: Tree) -> LocalState:
        """Return the common random start."""
        return LocalState(params, jax.numpy.zeros((), jax.numpy.int32))

    def init_memory(self, state: LocalState) -> Tree:
        """Return a client's own model before it has trained."""
        return state.params

    def broadcast(self, state: LocalState, key: PRNGKeyArray) -> Sent:
        """Send nothing; with a diminishing step, β_k."""
        return Sent((), self.local_lr_to_send(state.round))

    def client_update(
        self, sent: Sent, memory: Tree, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Tree, Info]:
        """Take τ gradient steps on the client's own model."""
        descent = self.local_descent(self.local_lr_received(sent.extra))

        def step(
            carry: tuple[Tree, Any], batches: list[Batch], t: Array
        ) -> tuple[tuple[Tree, Any], Float[Array, ""]]:
            w, inner = carry
            loss, d = jax.value_and_grad(task.loss)(w, batches[0])
            return descent.move(w, self.clip(d), inner), loss

        start = (memory, descent.init(memory))
        (w, _), loss = self.train(step, start, task, key, [self.batch_sizes[1]])
        return Reply((), self.weight_of(task.count)), w, {"loss": loss}

    def server_update(
        self, state: LocalState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[LocalState, Info]:
        """Count the round; nothing else changes."""
        return LocalState(state.params, state.round + 1), {}

    def personal_start(
        self, state: LocalState, memory: Tree, task: Task, key: PRNGKeyArray
    ) -> Tree:
        """Return the client's own model."""
        return memory
