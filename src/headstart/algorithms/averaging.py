r"""Local steps and averaging: what FedAvg and Per-FedAvg share (P Algorithm 1, G Algorithm 1).

Round k: the server sends w_k; each chosen client takes τ steps w ← w − β_k d(w) from w_k; the
server sets w_{k+1} to the mean of the results. The algorithms differ only in the direction d.

Options of the papers:
- random iterate (P Remark 4.7): the server draws t_k ∈ {0 … τ−1} and clients also return their
  iterate t_k; the mean of these is what the theorems speak of. It is kept in the state.
- diminishing step (P Remarks 4.8, G.1): β_k = β / √(k+1), that is c/√(τ(k+1)) with c = β√τ; k+1
  because the papers' k starts at 1.
- clipping: exact meta-gradients through several steps are rarely huge, and one such step ruins a
  run; ``max_gradient_norm`` bounds its length.
- a server optimiser: w_k − mean is taken as a gradient and given to an Optax optimiser
  (Reddi et al. 2021). Without one the mean itself is the next model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms.contract import Algorithm, Batch, Info, Task, Weights
from headstart.errors import ConfigError
from headstart.options import require_at_least, require_one_of, require_positive
from headstart.trees import Tree, norm, shortened, subtract, where

BatchSize = int | tuple[int, int, int]


class AveragingState(NamedTuple):
    """The server's state."""

    params: Tree
    round: Int[Array, ""]
    optimizer: Any = ()
    iterate: Any = ()
    """Mean of the clients' random iterates of the last round, if asked for."""


class Sent(NamedTuple):
    """What the server sends."""

    params: Tree
    local_lr: Float[Array, ""]
    iterate: Any = ()
    """t_k, if random iterates are asked for."""


class Averaging(Algorithm):
    """Local steps and averaging; a final class adds the direction of a local step."""

    inner_lr: float = 0.1
    """α: step size of adaptation, in training (if any) and at test time."""
    local_lr: float = 0.05
    """β: step size of a local step."""
    local_steps: int = eqx.field(static=True, default=10)
    """τ: local steps per round."""
    batch_size: BatchSize = eqx.field(static=True, default=40)
    """D = D′ = D″, or the three: inner, outer, Hessian."""
    weights: Weights = eqx.field(static=True, default="uniform")
    local_lr_decay: Literal["none", "inverse-sqrt"] = eqx.field(static=True, default="none")
    random_iterate: bool = eqx.field(static=True, default=False)
    server_optimizer: str | Callable[..., Any] | None = eqx.field(static=True, default=None)
    """An Optax optimiser by name (``"adam"``), or a function from a step size to one."""
    server_lr: float = 1.0
    max_gradient_norm: float | None = None
    """c: a longer d is shortened to this norm, d ← d · min(1, c / ‖d‖). By default none is."""

    def __check_init__(self) -> None:
        """Refuse values no run could use."""
        require_positive(inner_lr=self.inner_lr, local_lr=self.local_lr, server_lr=self.server_lr)
        require_positive(max_gradient_norm=self.max_gradient_norm)
        require_at_least(1, local_steps=self.local_steps)
        for size in self.batch_sizes:
            require_at_least(1, batch_size=size)
        require_one_of(("uniform", "examples"), weights=self.weights)
        require_one_of(("none", "inverse-sqrt"), local_lr_decay=self.local_lr_decay)
        self._optimizer()

    @property
    @abstractmethod
    def step_batches(self) -> list[int]:
        """Sizes of the independent batches of one local step."""

    @abstractmethod
    def direction(
        self, params: Tree, task: Task, batches: list[Batch]
    ) -> tuple[Float[Array, ""], Tree]:
        """The loss seen, and d: a local step is w ← w − β d."""

    @property
    def batch_sizes(self) -> tuple[int, int, int]:
        """D, D′, D″: inner, outer, Hessian."""
        size = self.batch_size
        return (size, size, size) if isinstance(size, int) else size

    @property
    def largest_batch(self) -> int:
        """The largest batch the algorithm draws from a client."""
        return max(self.batch_sizes)

    @property
    def gradients_per_step(self) -> int:
        """Adaptation is plain gradient descent."""
        return 1

    def init(self, params: Tree) -> AveragingState:
        """The first model, no round done."""
        optimizer = self._optimizer()
        return AveragingState(
            params,
            jnp.zeros((), jnp.int32),
            () if optimizer is None else optimizer.init(params),
            params if self.random_iterate else (),
        )

    def init_memory(self, state: AveragingState) -> tuple[()]:
        """Clients keep nothing."""
        return ()

    def broadcast(self, state: AveragingState, key: PRNGKeyArray) -> Sent:
        """w_k, β_k and, if asked for, t_k."""
        decay = jnp.sqrt(state.round + 1.0) if self.local_lr_decay == "inverse-sqrt" else 1.0
        chosen = jax.random.randint(key, (), 0, self.local_steps) if self.random_iterate else ()
        return Sent(state.params, jnp.asarray(self.local_lr / decay), chosen)

    def client_update(
        self, broadcast: Sent, memory: tuple[()], task: Task, key: PRNGKeyArray
    ) -> tuple[dict[str, Tree], tuple[()], Info]:
        """τ local steps from w_k."""

        sizes = self.step_batches

        def step(carry: tuple[Tree, Tree], at: tuple[Array, Array]) -> tuple[Any, Array]:
            (w, kept), (t, rows) = carry, at
            if self.random_iterate:
                kept = where(t == broadcast.iterate, w, kept)
            loss, d = self.direction(w, task, task.take(rows, sizes))
            if self.max_gradient_norm is not None:
                d = shortened(d, self.max_gradient_norm)
            return (descend(w, d, broadcast.local_lr), kept), loss

        start = (broadcast.params, broadcast.params if self.random_iterate else ())
        steps = (jnp.arange(self.local_steps), task.draws(key, self.local_steps, sum(sizes)))
        (w, kept), losses = jax.lax.scan(step, start, steps)
        reply = {"params": w, "iterate": kept} if self.random_iterate else {"params": w}
        return reply, (), {"loss": jnp.mean(losses)}

    def server_update(
        self, state: AveragingState, mean_reply: dict[str, Tree]
    ) -> tuple[AveragingState, Info]:
        """The mean, or one step of the server's optimiser towards it."""
        params, inner = mean_reply["params"], state.optimizer
        optimizer = self._optimizer()
        if optimizer is not None:
            updates, inner = optimizer.update(subtract(state.params, params), inner, state.params)
            params = optax.apply_updates(state.params, updates)
        moved = norm(subtract(params, state.params))
        iterate = mean_reply["iterate"] if self.random_iterate else ()
        return AveragingState(params, state.round + 1, inner, iterate), {"update_norm": moved}

    def model(self, state: AveragingState) -> Tree:
        """w."""
        return state.params

    def personal_start(self, state: AveragingState, memory: tuple[()]) -> Tree:
        """Everybody starts from w."""
        return state.params

    def personal_step(self, personal: Tree, task: Task, key: PRNGKeyArray) -> Tree:
        """w ← w − α∇̃f(w, D)."""
        return gradient_step(personal, task, key, self.inner_lr, self.batch_sizes[0])

    def personal_model(self, personal: Tree) -> Tree:
        """The adapted w."""
        return personal

    def _optimizer(self) -> optax.GradientTransformation | None:
        chosen = self.server_optimizer
        if chosen in (None, "none"):
            return None
        if isinstance(chosen, str):
            if chosen not in SERVER_OPTIMIZERS:
                raise ConfigError(
                    f"server_optimizer={chosen!r} is not known; use one of "
                    f"{', '.join(SERVER_OPTIMIZERS)}, or none for plain averaging"
                )
            chosen = SERVER_OPTIMIZERS[chosen]
        return chosen(self.server_lr)


def _momentum(learning_rate: Any) -> optax.GradientTransformation:
    return optax.sgd(learning_rate, momentum=0.9)


SERVER_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optax.sgd,
    "momentum": _momentum,
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "yogi": optax.yogi,
}


def descend(w: Tree, d: Tree, step_size: Any) -> Tree:
    """w − step_size · d, in w's own number type."""
    return jax.tree.map(lambda u, v: (u - step_size * v).astype(u.dtype), w, d)


def gradient_step(w: Tree, task: Task, key: PRNGKeyArray, step_size: Any, batch_size: int) -> Tree:
    """w − step_size · ∇̃f(w, D) on one fresh batch."""
    return descend(w, jax.grad(task.loss)(w, task.batch(key, batch_size)), step_size)
