r"""APFL (Deng, Kamani, Mahdavi 2020): an adaptive mixture of a local and the global model.

Client i keeps a local model v_i and a mixing weight λ_i (α_i in their paper) and uses
v̄_i = λ_i v_i + (1 − λ_i) w. In a round it takes τ steps, each on one batch ξ:

    w_i ← w_i − β ∇f_i(w_i; ξ)
    v_i ← v_i − β λ_i ∇f_i(v̄_i; ξ)            the gradient of f_i(v̄_i) in v_i

and, if adaptive, at the start of the round λ_i ← clip(λ_i − β ⟨v_i − w_i, ∇f_i(v̄_i; ξ)⟩, 0, 1).
The server averages the w_i.

As in their Algorithm 1, a client starts with v_i = w_0 and the configured λ when it first takes
part in training. Where their text is silent: a client that was never in training starts with
v_i = w, the trained model, and the configured λ. An adaptation step at test time moves only v_i,
with step size α; w and λ_i stay.

Beyond their text, local steps clip the direction of w_i and that of v_i, λ_i ∇f_i(v̄_i; ξ), each to
``max_gradient_norm``. The step of λ_i has bounds of its own, and the step at test time stays plain.
With a local optimiser, w_i and v_i each have one, which starts again in every round; λ_i moves by
plain descent, with β_k. An optimiser that divides by the size of the gradients (Adam) undoes the
factor λ_i in the direction of v_i, which is constant during a round: v_i then moves as far as w_i.
The server's step (:mod:`._server_step`) moves w alone.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import Batch, Cohort, Info, Reply, Sent, Task
from headstart.algorithms._local_training import LocalOptimization, descend
from headstart.algorithms._server_step import ServerStep
from headstart.errors import ConfigError
from headstart.options import require_positive
from headstart.trees import Scalar, Tree, dot, mix, norm, scale, subtract


class APFLState(NamedTuple):
    """The server's state."""

    params: Tree
    round: Int[Array, ""]
    optimizer: Any = ()


class APFLMemory(NamedTuple):
    """What a client keeps: v_i and λ_i."""

    local: Tree
    mixing: Float[Array, ""]


class APFLPersonal(NamedTuple):
    """The parts of a client's own model."""

    shared: Tree
    memory: APFLMemory


@final
class APFL(LocalOptimization, ServerStep):
    """Adaptive personalised federated learning; β is the step size of w_i, v_i and λ_i."""

    name: ClassVar[str] = "apfl"
    needs_memory: ClassVar[bool] = True

    inner_lr: float = 0.1
    """α: step size of adaptation at test time."""
    mixing: float = 0.5
    """λ before the first round."""
    adaptive: bool = eqx.field(static=True, default=True)
    """Whether each client learns its own λ_i."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(inner_lr=self.inner_lr)
        if isinstance(self.mixing, int | float) and not 0 <= self.mixing <= 1:
            raise ConfigError(f"mixing={self.mixing} must lie between 0 and 1")

    def gradients_per_update(self, examples: int) -> int:
        """Count two gradients per local step, and one for λ_i."""
        return 2 * self.steps_for(examples, [self.batch_sizes[1]]) + int(self.adaptive)

    def init(self, params: Tree) -> APFLState:
        """Return the global model before the first round."""
        return APFLState(params, jnp.zeros((), jnp.int32), self.init_server_optimizer(params))

    def init_memory(self, state: APFLState) -> APFLMemory:
        """Return v_i = w, and λ_i as configured."""
        dtype = jax.tree.leaves(state.params)[0].dtype
        return APFLMemory(state.params, jnp.asarray(self.mixing, dtype))

    def broadcast(self, state: APFLState, key: PRNGKeyArray) -> Sent:
        """Send w; with a diminishing step, also β_k."""
        return Sent(state.params, self.local_lr_to_send(state.round))

    def client_update(
        self, sent: Sent, memory: APFLMemory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, APFLMemory, Info]:
        """Adapt λ_i, then take τ steps on w_i and v_i."""
        size, beta = self.batch_sizes[1], self.local_lr_received(sent.extra)
        descent = self.local_descent(beta)
        first = task.batch(jax.random.fold_in(key, self.local_steps), size)
        share = self._adapt_mixing(sent.params, memory, task, first, beta)

        def step(
            carry: _Models, batches: list[Batch], t: Array
        ) -> tuple[_Models, Float[Array, ""]]:
            w, v, of_w, of_v = carry
            loss, gradient = jax.value_and_grad(task.loss)(w, batches[0])
            towards = self._local_direction(w, v, share, task, batches[0])
            w, of_w = descent.move(w, self.clip(gradient), of_w)
            v, of_v = descent.move(v, self.clip(towards), of_v)
            return _Models(w, v, of_w, of_v), loss

        models = (sent.params, memory.local)
        start = _Models(*models, *map(descent.init, models))
        (w, v, *_), loss = self.train(step, start, task, key, [size])
        reply = Reply(subtract(w, sent.params), self.weight_of(task.count))
        return reply, APFLMemory(v, share), {"loss": loss}

    def server_update(
        self, state: APFLState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[APFLState, Info]:
        """Set w to the mean of the w_i, or take another step of the server."""
        stepped = self.server_step(state.params, state.optimizer, state.round, cohort.update)
        after = APFLState(stepped.params, state.round + 1, stepped.optimizer)
        return after, {"update_norm": norm(stepped.update)}

    def personal_start(
        self, state: APFLState, memory: APFLMemory, task: Task, key: PRNGKeyArray
    ) -> APFLPersonal:
        """Return w with the client's v_i and λ_i."""
        return APFLPersonal(state.params, memory)

    def personal_step(self, personal: APFLPersonal, task: Task, key: PRNGKeyArray) -> APFLPersonal:
        """Take one step: v_i ← v_i − α λ_i ∇f_i(v̄_i; ξ)."""
        shared, (local, share) = personal
        towards = scale(self.adaptation_gradient(mix(local, shared, share), task, key), share)
        return APFLPersonal(shared, APFLMemory(descend(local, towards, self.inner_lr), share))

    def personal_model(self, personal: APFLPersonal) -> Tree:
        """Return v̄_i = λ_i v_i + (1 − λ_i) w."""
        return mix(personal.memory.local, personal.shared, personal.memory.mixing)

    def _local_direction(
        self, w: Tree, v: Tree, share: Float[Array, ""], task: Task, batch: Batch
    ) -> Tree:
        return scale(jax.grad(task.loss)(mix(v, w, share), batch), share)

    def _adapt_mixing(
        self, w: Tree, memory: APFLMemory, task: Task, batch: Batch, beta: Scalar
    ) -> Float[Array, ""]:
        v, share = memory
        if not self.adaptive:
            return share
        gradient = jax.grad(task.loss)(mix(v, w, share), batch)
        slope = dot(subtract(v, w), gradient)
        return jnp.clip(share - beta * slope, 0.0, 1.0).astype(share.dtype)


class _Models(NamedTuple):
    """What a client's local steps change."""

    w: Tree
    v: Tree
    of_w: Any
    """State of the optimiser of w."""
    of_v: Any
