r"""Local steps and averaging: what FedAvg and Per-FedAvg share (P Algorithm 1, G Algorithm 1).

Round k: the server sends w_k; each chosen client takes τ steps w ← w − β_k d(w) from w_k; the
server adds the mean of their updates. The algorithms differ only in the direction d.

Options of the papers, and beyond them:
- random iterate (P Remark 4.7): the server draws t_k ∈ {0 … τ−1} and clients also return their
  iterate t_k. The theorems are about the mean of these, which is kept in the state.
- a diminishing β_k, a local optimiser, and clipping of d (:mod:`._local_training`); exact
  meta-gradients through several steps are occasionally huge. The gradients inside a meta-gradient
  are not clipped.
- a server optimiser, warm-up and decay of its step size, weight decay (:mod:`._server_step`).
- learned rates: how far adaptation moves each array is learned beside w (:mod:`._rates`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
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
    LocalOptimization,
    PlainAdaptation,
    advise_smaller,
)
from headstart.algorithms._rates import (
    RATES,
    Adapting,
    LogRates,
    RatesOption,
    adapt,
    descend_log_rates,
    init_log_rates,
    rates_of_step,
)
from headstart.algorithms._server_step import ServerStep
from headstart.errors import ConfigError
from headstart.meta import MetaBatches, gradient_evaluations, meta_value_and_gradients
from headstart.options import require_at_least, require_one_of
from headstart.trees import Tree, add, norm, subtract, where

DEFAULT_RATES_STEPS = 3
RATES_DRAW = 2**31 - 1
"""Number of the draw of the batches from which rates are learned; local steps count from 0."""


class AveragingState(NamedTuple):
    """The server's state."""

    params: Tree
    round: Int[Array, ""]
    optimizer: Any = ()
    iterate: Any = ()
    """Mean of the clients' random iterates of the last round, with ``random_iterate``."""
    log_rates: Any = ()
    """log r, with learned rates."""


class Round(NamedTuple):
    """What the server sends besides the model."""

    local_lr: Float[Array, ""]
    iterate: Any = ()
    """t_k, with ``random_iterate``."""
    log_rates: Any = ()
    """log r, with learned rates."""


class Context(NamedTuple):
    """What a local step may use besides its iterate and batches."""

    sent: Sent
    memory: Memory
    task: Task


class Averaging(PlainAdaptation, LocalOptimization, ServerStep):
    """Local steps and averaging; a final class adds the direction of a local step."""

    # Not constants of the program at any value: runs of earlier versions continue to the bit.
    server_lr: float = 1.0
    """η: the server's step size; without an optimiser the mean update is multiplied by it."""
    weight_decay: float = 0.0
    """λ: the share of w that the server takes away in a round, w ← (1 − λ) w + update."""
    random_iterate: bool = eqx.field(static=True, default=False)
    """Whether clients also return a random iterate."""
    rates: RatesOption = eqx.field(static=True, default="fixed")
    """Whether adaptation moves all parameters with α, or with rates that are learned."""
    rates_per_step: bool = eqx.field(static=True, default=False)
    """Whether every adaptation step has its own rates."""
    rates_steps: int | None = eqx.field(static=True, default=None)
    """Adaptation steps for which rates are learned; None: 3, or ν where there is one."""
    rates_method: Literal["exact", "first-order"] | None = eqx.field(static=True, default=None)
    """The estimate from which clients learn rates once a round; None: exact.

    Per-FedAvg with None learns them from the meta-gradient of every local step instead.
    """
    rates_lr: float = 0.1
    """The step size of the rates' logarithms; 0 keeps every rate at α."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        if self.random_iterate and self.local_epochs is not None:
            raise ConfigError(
                f"random_iterate=true needs a fixed number of local steps; leave out "
                f"local_epochs={self.local_epochs}"
            )
        require_one_of(RATES, rates=self.rates)
        require_one_of(("exact", "first-order"), rates_method=self.rates_method or "exact")
        if self.rates_steps is not None:
            require_at_least(1, rates_steps=self.rates_steps)
        if isinstance(self.rates_lr, int | float) and not 0 <= self.rates_lr < float("inf"):
            raise ConfigError(f"rates_lr={self.rates_lr} must be a number of at least 0")
        if self.learns_rates and self.random_iterate:
            raise ConfigError(
                "random_iterate=true is for the papers' theorems, which have one α; "
                f"it needs rates='fixed' instead of {self.rates!r}"
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

    def direction_and_rates(
        self, params: Tree, log_rates: LogRates, batches: list[Batch], context: Context
    ) -> tuple[Float[Array, ""], Tree, LogRates]:
        """Return the loss seen, d, and the log-rates after this local step."""
        loss, d = self.direction(params, batches, context)
        return loss, d, log_rates

    @property
    def learns_rates(self) -> bool:
        """Whether adaptation uses learned rates instead of α."""
        return self.rates != "fixed"

    @property
    def rates_horizon(self) -> int:
        """How many adaptation steps the rates are learned for."""
        return self.rates_steps or DEFAULT_RATES_STEPS

    @property
    def learns_rates_each_round(self) -> bool:
        """Whether a client learns rates once a round, apart from its local steps."""
        return self.learns_rates

    @property
    def smaller_steps(self) -> str:
        """A tenth of β, or of α or the server's step size if these also move w; or clipping."""
        advice = advise_smaller("local_lr", self.local_lr)
        if self.gradients_per_direction > 1:
            advice += f" or algorithm.inner_lr={self.inner_lr / 10:g}"
        return advice + self._advise_server() + self._advise_clipping()

    @property
    def measures_gradient_norm(self) -> bool:
        """Whether random iterates are kept (P Remark 4.7)."""
        return self.random_iterate

    def gradients_per_update(self, examples: int) -> int:
        """Count the cost of a direction for every local step, and that of learning rates."""
        count = self.steps_for(examples, self.step_batches) * self.gradients_per_direction
        if self.learns_rates_each_round:
            count += gradient_evaluations(self.rates_method or "exact", self.rates_horizon)
        return count

    def init(self, params: Tree) -> AveragingState:
        """Return the initial model with the optimiser's first state."""
        steps = self.rates_horizon if self.rates_per_step else 1
        return AveragingState(
            params,
            jnp.zeros((), jnp.int32),
            self.init_server_optimizer(params),
            params if self.random_iterate else (),
            init_log_rates(params, self.rates, self.inner_lr, steps) if self.learns_rates else (),
        )

    def init_memory(self, state: AveragingState) -> tuple[()]:
        """Return nothing: clients keep no memory."""
        return ()

    def broadcast(self, state: AveragingState, key: PRNGKeyArray) -> Sent:
        """Send w_k, β_k and, if the algorithm has them, t_k and the log-rates."""
        chosen = jax.random.randint(key, (), 0, self.local_steps) if self.random_iterate else ()
        beta = jnp.asarray(self.local_lr_in(state.round))
        return Sent(state.params, Round(beta, chosen, state.log_rates))

    def client_update(
        self, sent: Sent, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Memory, Info]:
        """Take τ local steps from w_k."""
        chosen: Round = sent.extra
        context = Context(sent, memory, task)
        descent = self.local_descent(chosen.local_lr)

        def step(
            carry: _Local, batches: list[Batch], t: Int[Array, ""]
        ) -> tuple[_Local, Float[Array, ""]]:
            w, inner, kept, log_rates = carry
            if self.random_iterate:
                kept = where(t == chosen.iterate, w, kept)
            loss, d, log_rates = self.direction_and_rates(w, log_rates, batches, context)
            w, inner = descent.move(w, self.clip(d), inner)
            return _Local(w, inner, kept, log_rates), loss

        kept = sent.params if self.random_iterate else ()
        start = _Local(sent.params, descent.init(sent.params), kept, chosen.log_rates)
        end, loss = self.train(step, start, task, key, self.step_batches)
        weight = self.weight_of(task.count)
        parts = {}
        if self.random_iterate:
            parts["iterate"] = Part(subtract(end.kept, sent.params), weight)
        if self.learns_rates:
            log_rates = end.log_rates
            if self.learns_rates_each_round:
                log_rates = self._learn_rates(sent, task, key)
            parts["log_rates"] = Part(subtract(log_rates, chosen.log_rates), weight)
        return Reply(subtract(end.params, sent.params), weight, parts), memory, {"loss": loss}

    def _learn_rates(self, sent: Sent, task: Task, key: PRNGKeyArray) -> LogRates:
        """Return the log-rates after one step on the loss of the client that adapts from w_k."""
        steps, method = self.rates_horizon, self.rates_method or "exact"
        inner, outer, hessian = self.batch_sizes
        sizes = [outer] + [inner] * steps + [hessian] * (steps if method == "exact" else 0)
        batches = task.batches(jax.random.fold_in(key, RATES_DRAW), sizes)
        log_rates = sent.extra.log_rates
        _, _, by_step = meta_value_and_gradients(
            task.loss,
            sent.params,
            MetaBatches(batches[1 : 1 + steps], batches[0], batches[1 + steps :]),
            rates=[rates_of_step(log_rates, step) for step in range(steps)],
            method=method,
            adapted=task.adapted,
        )
        return descend_log_rates(log_rates, by_step, self.rates_lr)

    def server_update(
        self, state: AveragingState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[AveragingState, Info]:
        """Take the server's step; also keep the mean random iterate, and move the log-rates."""
        stepped = self.server_step(state.params, state.optimizer, state.round, cohort.update)
        iterate = add(state.params, cohort.parts["iterate"]) if self.random_iterate else ()
        log_rates = state.log_rates
        if self.learns_rates:
            log_rates = add(log_rates, cohort.parts["log_rates"])
        after = AveragingState(
            stepped.params, state.round + 1, stepped.optimizer, iterate, log_rates
        )
        return after, {"update_norm": norm(stepped.update)}

    def adaptation_rates(self, state: AveragingState) -> list[Tree]:
        """Return the rates of each step that has its own."""
        if not self.learns_rates:
            return []
        steps = self.rates_horizon if self.rates_per_step else 1
        return [rates_of_step(state.log_rates, step) for step in range(steps)]

    def personal_start(
        self, state: AveragingState, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> Tree | Adapting:
        """Start from w, like every client."""
        if self.learns_rates:
            return Adapting(state.params, state.log_rates, jnp.int32(0))
        return state.params

    def personal_step(
        self, personal: Tree | Adapting, task: Task, key: PRNGKeyArray
    ) -> Tree | Adapting:
        """Take one step with α, or with the learned rates of this step."""
        if not isinstance(personal, Adapting):
            return super().personal_step(personal, task, key)
        return adapt(personal, self.adaptation_gradient(personal.params, task, key))

    def personal_model(self, personal: Tree | Adapting) -> Tree:
        """Return the adapted w."""
        return personal.params if isinstance(personal, Adapting) else personal


class _Local(NamedTuple):
    """What a client's local steps change."""

    params: Tree
    optimizer: Any
    kept: Any
    """The random iterate."""
    log_rates: LogRates
