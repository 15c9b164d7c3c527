r"""The server's step: from the mean update of a round to the next shared model.

Without further options the server adds the mean update u_k of round k to w_k, as in the papers.
Beyond them, with s_k the share of the step size that round k uses:

    w_{k+1} = (1 − λ s_k) w_k + s_k η u_k              plain averaging; η is ``server_lr``
    w_{k+1} = (1 − λ s_k) w_k + s_k A(−u_k)            with an optimiser A of step size η

- ``server_optimizer``: minus the mean update is passed to an Optax optimiser as a gradient
  (Reddi et al. 2021).
- ``warmup_rounds`` W and ``server_lr_decay``: s_k = min((k+1)/W, 1) times 1/√(k+1) or, over K
  ``decay_rounds``, max((1 + cos(π min(k/K, 1)))/2, 0.01); k counts from 0.
- ``weight_decay`` λ: few clients with few examples are soon learned by heart, and a start that
  knows them by heart is a bad one; the server pulls w towards 0 in every round.

Where nothing scales the step (η = 1, λ = 0, no schedule), the compiled program is w + u_k and no
more, so that it also rounds once: see :class:`Neutral`.

The step sees one mean update and no client, so it is the same for every algorithm with a shared
model. Clients never learn of it: what they send is a difference from the model they were sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from headstart.algorithms._local_training import (
    LocalTraining,
    OptimizerOption,
    advise_smaller,
    resolve_optimizer,
)
from headstart.errors import ConfigError
from headstart.options import require_at_least, require_one_of, require_positive
from headstart.trees import Tree, add, scale

Decay = Literal["none", "inverse-sqrt", "cosine"]
LAST_SHARE = 0.01
"""Where a cosine decay ends."""


class Neutral(float):
    """A factor or a share that changes nothing: a constant of the program, not an input.

    JAX sees no number in it, so 1 · u_k is compiled to u_k. Another value is a leaf as usual: the
    first one compiles another program, and the next ones do not.
    """


jax.tree_util.register_pytree_node(Neutral, lambda x: ((), float(x)), lambda x, _: Neutral(x))


def constant_if(neutral: float) -> Callable[[Any], Any]:
    """Return a converter that makes this value, and no other, a constant of the program."""

    def convert(value: Any) -> Any:
        return Neutral(value) if isinstance(value, int | float) and value == neutral else value

    return convert


class Stepped(NamedTuple):
    """What a step of the server returns."""

    params: Tree
    optimizer: Any
    """The optimiser's next state; ``()`` without one."""
    update: Tree
    """What was added to the model, apart from weight decay."""


class ServerStep(LocalTraining):
    """Options of the server's step, and the step; a final class calls it in ``server_update``."""

    server_optimizer: OptimizerOption = eqx.field(static=True, default=None)
    """An Optax optimiser of the server by name (``"adam"``), or a function from a step size."""
    server_lr: float = eqx.field(default=1.0, converter=constant_if(1.0))
    """η: the server's step size; without an optimiser the mean update is multiplied by it."""
    warmup_rounds: int = eqx.field(static=True, default=0)
    """Rounds in which the server's step size rises from 0 to η."""
    server_lr_decay: Decay = eqx.field(static=True, default="none")
    """How the server's step size decreases."""
    decay_rounds: int | None = eqx.field(static=True, default=None)
    """Rounds after which the cosine has reached its end, η/100."""
    weight_decay: float = eqx.field(default=0.0, converter=constant_if(0.0))
    """λ: the share of w that the server takes away in a round, w ← (1 − λ) w + update."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(server_lr=self.server_lr)
        require_one_of(get_args(Decay), server_lr_decay=self.server_lr_decay)
        require_at_least(0, warmup_rounds=self.warmup_rounds)
        resolve_optimizer(self.server_optimizer, "server_optimizer")
        if (self.server_lr_decay == "cosine") != (self.decay_rounds is not None):
            raise ConfigError(
                f"server_lr_decay={self.server_lr_decay!r} with decay_rounds={self.decay_rounds}: "
                "a cosine needs decay_rounds, and only a cosine"
            )
        if self.decay_rounds is not None:
            require_at_least(1, decay_rounds=self.decay_rounds)
        if isinstance(self.weight_decay, int | float) and not 0 <= self.weight_decay < 1:
            raise ConfigError(f"weight_decay={self.weight_decay} must lie between 0 and 1")

    @property
    def smaller_steps(self) -> str:
        """A tenth of β, or a smaller η with an optimiser; or clipping."""
        advice = advise_smaller("local_lr", self.local_lr) + self._advise_server()
        return advice + self._advise_clipping()

    def _advise_server(self) -> str:
        plain = resolve_optimizer(self.server_optimizer, "server_optimizer") is None
        return "" if plain else " or a smaller algorithm.server_lr"

    def init_server_optimizer(self, params: Tree) -> Any:
        """Return the optimiser's first state; ``()`` without one."""
        make = resolve_optimizer(self.server_optimizer, "server_optimizer")
        return () if make is None else make(self.server_lr).init(params)

    def server_step(
        self, params: Tree, optimizer: Any, round: Int[Array, ""], update: Tree
    ) -> Stepped:
        """Add η_k times the mean update to the model, or take one step of the optimiser."""
        make = resolve_optimizer(self.server_optimizer, "server_optimizer")
        share = self._share(round)
        if make is None:
            update = scale(update, self.server_lr * share)
        else:
            update, optimizer = make(self.server_lr).update(scale(update, -1.0), optimizer, params)
            update = scale(update, share)
        kept = scale(params, 1 - self.weight_decay * share)
        return Stepped(add(kept, update), optimizer, update)

    def _share(self, round: Int[Array, ""]) -> Float[Array, ""] | float:
        """Return s_k, the share of η in this round, from warm-up and decay."""
        share: Float[Array, ""] | float = 1.0
        if self.server_lr_decay == "inverse-sqrt":
            share = 1 / jnp.sqrt(round + 1.0)
        elif self.decay_rounds is not None:  # only a cosine has it
            done = jnp.minimum(round / self.decay_rounds, 1.0)
            share = jnp.maximum((1 + jnp.cos(jnp.pi * done)) / 2, LAST_SHARE)
        if self.warmup_rounds:
            share = share * jnp.minimum((round + 1.0) / self.warmup_rounds, 1.0)
        return share
