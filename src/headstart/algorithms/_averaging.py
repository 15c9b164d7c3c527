r"""Local steps and averaging: what FedAvg and Per-FedAvg share (P Algorithm 1, G Algorithm 1).

Round k: the server sends w_k; each chosen client takes τ steps w ← w − β_k d(w) from w_k; the
server adds the mean of their updates. The algorithms differ only in the direction d.

Options of the papers, and beyond them:
- random iterate (P Remark 4.7): the server draws t_k ∈ {0 … τ−1} and clients also return their
  iterate t_k. The theorems are about the mean of these, which is kept in the state.
- diminishing step (P Remarks 4.8, G.1): β_k = β / √(k+1), that is c/√(τ(k+1)) with c = β√τ; k+1
  because the papers' k starts at 1.
- clipping: exact meta-gradients through several steps are occasionally huge, and one such step
  ruins a run; ``max_gradient_norm`` bounds their length.
- a local optimiser: d is passed to an Optax optimiser with step size β_k, which starts again in
  every round. Without one, a step is plain descent.
- a server optimiser: minus the mean update is passed to an Optax optimiser as a gradient
  (Reddi et al. 2021). Without one, the mean update is added as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import (
    Batch,
    Cohort,
    Info,
    Memory,
    Part,
    Reply,
    Sent,
    Task,
)
from headstart.algorithms._local_training import (
    OptimizerOption,
    PlainAdaptation,
    advise_smaller,
    descend,
    resolve_optimizer,
)
from headstart.errors import ConfigError
from headstart.options import require_one_of, require_positive
from headstart.trees import Tree, add, clip_norm, norm, scale, subtract, where


class AveragingState(NamedTuple):
    """The server's state."""

    params: Tree
    round: Int[Array, ""]
    optimizer: Any = ()
    iterate: Any = ()
    """Mean of the clients' random iterates of the last round, with ``random_iterate``."""


class Round(NamedTuple):
    """What the server sends besides the model."""

    local_lr: Float[Array, ""]
    iterate: Any = ()
    """t_k, with ``random_iterate``."""


class Context(NamedTuple):
    """What a local step may use besides its iterate and batches."""

    sent: Sent
    memory: Memory
    task: Task


class Averaging(PlainAdaptation):
    """Local steps and averaging; a final class adds the direction of a local step."""

    local_lr_decay: Literal["none", "inverse-sqrt"] = eqx.field(static=True, default="none")
    random_iterate: bool = eqx.field(static=True, default=False)
    max_gradient_norm: float | None = None
    """c: a longer d is scaled down to this norm, d ← d · min(1, c / ‖d‖); None: never."""
    local_optimizer: OptimizerOption = eqx.field(static=True, default=None)
    """An Optax optimiser of local steps by name (``"adam"``), or a function from a step size."""
    server_optimizer: OptimizerOption = eqx.field(static=True, default=None)
    """An Optax optimiser of the server, in the same way."""
    server_lr: float = 1.0

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(server_lr=self.server_lr, max_gradient_norm=self.max_gradient_norm)
        require_one_of(("none", "inverse-sqrt"), local_lr_decay=self.local_lr_decay)
        resolve_optimizer(self.local_optimizer, "local_optimizer")
        resolve_optimizer(self.server_optimizer, "server_optimizer")
        if self.random_iterate and self.local_epochs is not None:
            raise ConfigError(
                f"random_iterate=true needs a fixed number of local steps; leave out "
                f"local_epochs={self.local_epochs}"
            )

    @property
    @abstractmethod
    def step_batches(self) -> list[int]:
        """Sizes of the independent batches of one local step."""

    @property
    @abstractmethod
    def gradients_per_direction(self) -> int:
        """Gradient evaluations of one direction; a Hessian-vector product counts 2."""

    @abstractmethod
    def direction(
        self, params: Tree, batches: list[Batch], context: Context
    ) -> tuple[Float[Array, ""], Tree]:
        """Return the loss seen, and d: a local step is w ← w − β d."""

    @property
    def smaller_steps(self) -> str:
        """A tenth of β, or of α or the server's step size if these also move w."""
        advice = advise_smaller("local_lr", self.local_lr)
        if self.gradients_per_direction > 1:
            advice += f" or algorithm.inner_lr={self.inner_lr / 10:g}"
        if self.server_optimizer is not None:
            advice += " or a smaller algorithm.server_lr"
        return advice

    @property
    def measures_gradient_norm(self) -> bool:
        """Whether random iterates are kept (P Remark 4.7)."""
        return self.random_iterate

    def gradients_per_update(self, examples: int) -> int:
        """Count the cost of a direction for every local step."""
        return self.steps_for(examples, self.step_batches) * self.gradients_per_direction

    def init(self, params: Tree) -> AveragingState:
        """Return the initial model with the optimiser's first state."""
        optimizer = resolve_optimizer(self.server_optimizer, "server_optimizer")
        return AveragingState(
            params,
            jnp.zeros((), jnp.int32),
            () if optimizer is None else optimizer(self.server_lr).init(params),
            params if self.random_iterate else (),
        )

    def init_memory(self, state: AveragingState) -> tuple[()]:
        """Return nothing: clients keep no memory."""
        return ()

    def broadcast(self, state: AveragingState, key: PRNGKeyArray) -> Sent:
        """Send w_k, β_k and, with ``random_iterate``, t_k."""
        decay = jnp.sqrt(state.round + 1.0) if self.local_lr_decay == "inverse-sqrt" else 1.0
        chosen = jax.random.randint(key, (), 0, self.local_steps) if self.random_iterate else ()
        return Sent(state.params, Round(jnp.asarray(self.local_lr / decay), chosen))

    def client_update(
        self, sent: Sent, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Memory, Info]:
        """Take τ local steps from w_k."""
        chosen: Round = sent.extra
        context = Context(sent, memory, task)
        make = resolve_optimizer(self.local_optimizer, "local_optimizer")
        optimizer = None if make is None else make(chosen.local_lr)

        def step(
            carry: tuple[Tree, Any, Tree], batches: list[Batch], t: Int[Array, ""]
        ) -> tuple[tuple[Tree, Any, Tree], Float[Array, ""]]:
            w, inner, kept = carry
            if self.random_iterate:
                kept = where(t == chosen.iterate, w, kept)
            loss, d = self.direction(w, batches, context)
            if self.max_gradient_norm is not None:
                d = clip_norm(d, self.max_gradient_norm)
            if optimizer is None:
                return (descend(w, d, chosen.local_lr), inner, kept), loss
            updates, inner = optimizer.update(d, inner, w)
            return (optax.apply_updates(w, updates), inner, kept), loss

        first = () if optimizer is None else optimizer.init(sent.params)
        start = (sent.params, first, sent.params if self.random_iterate else ())
        (w, _, kept), loss = self.train(step, start, task, key, self.step_batches)
        weight = self.weight_of(task.count)
        parts = {}
        if self.random_iterate:
            parts["iterate"] = Part(subtract(kept, sent.params), weight)
        return Reply(subtract(w, sent.params), weight, parts), memory, {"loss": loss}

    def server_update(
        self, state: AveragingState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[AveragingState, Info]:
        """Add the mean update to w, or take one step of the server's optimiser with it."""
        optimizer = resolve_optimizer(self.server_optimizer, "server_optimizer")
        updates, inner = cohort.update, state.optimizer
        if optimizer is not None:
            transform = optimizer(self.server_lr)
            updates, inner = transform.update(scale(updates, -1.0), inner, state.params)
        iterate = add(state.params, cohort.parts["iterate"]) if self.random_iterate else ()
        params = add(state.params, updates)
        return (
            AveragingState(params, state.round + 1, inner, iterate),
            {"update_norm": norm(updates)},
        )

    def personal_start(
        self, state: AveragingState, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> Tree:
        """Start from w, like every client."""
        return state.params
