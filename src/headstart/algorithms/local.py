"""Local training: every client alone, from the common random start. No communication."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from headstart.algorithms.averaging import descend, gradient_step
from headstart.algorithms.contract import Algorithm, Info, Task, Weights
from headstart.options import require_at_least, require_positive
from headstart.trees import Tree


class LocalState(NamedTuple):
    """The server only remembers where everybody started."""

    params: Tree
    round: Int[Array, ""]


@final
class Local(Algorithm):
    """Each chosen client takes τ gradient steps on its own model; replies are empty.

    A client's memory is its model. A new client starts from the common random start, which is
    what it would have without a federation.
    """

    name: ClassVar[str] = "local"
    needs_memory: ClassVar[bool] = True

    inner_lr: float = 0.1
    """α: step size of adaptation at test time."""
    local_lr: float = 0.05
    """β: step size of a local step."""
    local_steps: int = eqx.field(static=True, default=10)
    """τ: local steps per round."""
    batch_size: int = eqx.field(static=True, default=40)
    weights: Weights = eqx.field(static=True, default="uniform")

    def __check_init__(self) -> None:
        """Refuse values no run could use."""
        require_positive(inner_lr=self.inner_lr, local_lr=self.local_lr)
        require_at_least(1, local_steps=self.local_steps, batch_size=self.batch_size)

    @property
    def largest_batch(self) -> int:
        """D."""
        return self.batch_size

    @property
    def gradients_per_update(self) -> int:
        """One gradient per local step."""
        return self.local_steps

    @property
    def gradients_per_step(self) -> int:
        """Adaptation is plain gradient descent."""
        return 1

    def init(self, params: Tree) -> LocalState:
        """The common random start."""
        return LocalState(params, jnp.zeros((), jnp.int32))

    def init_memory(self, state: LocalState) -> Tree:
        """A client's own model, before it has trained."""
        return state.params

    def broadcast(self, state: LocalState, key: PRNGKeyArray) -> tuple[()]:
        """Nothing is sent."""
        return ()

    def client_update(
        self, broadcast: tuple[()], memory: Tree, task: Task, key: PRNGKeyArray
    ) -> tuple[tuple[()], Tree, Info]:
        """τ gradient steps on the client's own model."""

        def step(w: Tree, rows: Array) -> tuple[Tree, Array]:
            [batch] = task.take(rows, [self.batch_size])
            loss, d = jax.value_and_grad(task.loss)(w, batch)
            return descend(w, d, self.local_lr), loss

        draws = task.draws(key, self.local_steps, self.batch_size)
        w, losses = jax.lax.scan(step, memory, draws)
        return (), w, {"loss": jnp.mean(losses)}

    def server_update(self, state: LocalState, mean_reply: tuple[()]) -> tuple[LocalState, Info]:
        """Only the round counter moves."""
        return LocalState(state.params, state.round + 1), {}

    def model(self, state: LocalState) -> Tree:
        """The common random start: there is no shared model."""
        return state.params

    def personal_start(self, state: LocalState, memory: Tree) -> Tree:
        """The client's own model."""
        return memory

    def personal_step(self, personal: Tree, task: Task, key: PRNGKeyArray) -> Tree:
        """w ← w − α∇̃f(w, D)."""
        return gradient_step(personal, task, key, self.inner_lr, self.batch_size)

    def personal_model(self, personal: Tree) -> Tree:
        """The client's own model."""
        return personal
