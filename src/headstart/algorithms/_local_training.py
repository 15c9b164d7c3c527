r"""What algorithms with local training share: its options, its loop, and plain adaptation.

A client takes τ steps w ← w − β d(w) from the model it was sent, on batches drawn independently
with replacement. With ``local_epochs`` it goes E times through its examples without replacement:
every epoch has a new random order, a step takes the next rows, and the last step of an epoch is
filled from the beginning of the order. So every example is used at least once.

Every d of a local step is clipped to a norm of at most ``max_gradient_norm``. This is beyond the
papers: a few gradients are so long that one step ruins a run. ``inf`` gives the papers' plain steps
and is the same program as without clipping. Only local steps are clipped. Adaptation steps stay
plain: they are the papers' adaptation, they are few, and a client's own model is never averaged.

An adaptation step draws a batch of D, as in the papers. With ``full_batch_adaptation`` it uses all
of the client's examples. Adaptation takes few steps, so this is cheap for all but huge clients.

Where the size of a local step is given, not learned (:class:`LocalOptimization`), two more options:
- diminishing step (P Remarks 4.8, G.1): in round k, β_k = β / √(k+1), that is c/√(τ(k+1)) with
  c = β√τ; k+1 because the papers' k starts at 1.
- a local optimiser: the clipped d is passed to an Optax optimiser with step size β_k, which starts
  again in every round: a client may wait long for its next round, and then begins from another
  model. Without one, a step is plain descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import Algorithm, Batch, Task, Weights
from headstart.errors import ConfigError
from headstart.options import require_at_least, require_one_of, require_positive
from headstart.trees import Scalar, Tree, clip_norm

BatchSize = int | tuple[int, int, int]
OptimizerOption = str | Callable[..., Any] | None
Carry = TypeVar("Carry")
LocalStep = Callable[[Any, list[Batch], Int[Array, ""]], tuple[Any, Float[Array, ""]]]
"""(carry, batches, number of the step) ↦ (carry, loss seen)."""


def _momentum(learning_rate: Any) -> optax.GradientTransformation:
    return optax.sgd(learning_rate, momentum=0.9)


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optax.sgd,
    "momentum": _momentum,
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "yogi": optax.yogi,
}


def _norm_or_inf(longest: float | None) -> float:
    """Return inf for None, which also means that nothing is clipped."""
    return math.inf if longest is None else longest


class LocalTraining(Algorithm):
    """Options of local training, and the loop over its steps."""

    local_lr: float = 0.05
    """β: step size of a local step."""
    local_steps: int = eqx.field(static=True, default=10)
    """τ: local steps per round."""
    local_epochs: int | None = eqx.field(static=True, default=None)
    """E: passes through a client's examples per round, instead of ``local_steps``."""
    batch_size: BatchSize = eqx.field(static=True, default=40)
    """D = D′ = D″, or the three: inner, outer, Hessian."""
    weights: Weights = eqx.field(static=True, default="uniform")
    """Whether the server's mean counts clients equally or by their training examples."""
    max_gradient_norm: float = eqx.field(static=True, default=5.0, converter=_norm_or_inf)
    """c: a longer d is scaled down to this norm, d ← d · min(1, c / ‖d‖); inf or None: never."""
    full_batch_adaptation: bool = eqx.field(static=True, default=False)
    """Whether an adaptation step at test time uses all of the client's examples, not a batch."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(local_lr=self.local_lr)
        require_at_least(1, local_steps=self.local_steps)
        if self.local_epochs is not None:
            require_at_least(1, local_epochs=self.local_epochs)
        for size in self.batch_sizes:
            require_at_least(1, batch_size=size)
        require_one_of(("uniform", "examples"), weights=self.weights)
        if not self.max_gradient_norm > 0:
            raise ConfigError(
                f"max_gradient_norm={self.max_gradient_norm} must be a number above 0, or inf for "
                "steps that are never clipped"
            )

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
        """One gradient per adaptation step."""
        return 1

    @property
    def smaller_steps(self) -> str:
        """A tenth of β, and clipping if there is none."""
        return advise_smaller("local_lr", self.local_lr) + self._advise_clipping()

    def _advise_clipping(self) -> str:
        return "" if self.clips else " or algorithm.max_gradient_norm=5"

    @property
    def clips(self) -> bool:
        """Whether long directions of local steps are shortened."""
        return math.isfinite(self.max_gradient_norm)

    def clip(self, d: Tree) -> Tree:
        """Return d · min(1, c / ‖d‖), for the direction of a local step."""
        return clip_norm(d, self.max_gradient_norm) if self.clips else d

    def adaptation_gradient(self, w: Tree, task: Task, key: PRNGKeyArray) -> Tree:
        """Return the gradient of an adaptation step: on a batch of D, or on all examples."""
        if self.full_batch_adaptation:
            return task.full_gradient(w)
        return jax.grad(task.loss)(w, task.batch(key, self.batch_sizes[0]))

    def weight_of(self, examples: Int[Array, ""]) -> Float[Array, ""]:
        """Return the number of examples, or 1."""
        size = examples.astype(float)
        return size if self.weights == "examples" else jnp.ones_like(size)

    def steps_for(self, examples: int, sizes: Sequence[int]) -> int:
        """Count a client's local steps; a step takes batches of these sizes."""
        if self.local_epochs is None:
            return self.local_steps
        return self.local_epochs * math.ceil(examples / sum(sizes))

    def train(
        self, step: LocalStep, start: Carry, task: Task, key: PRNGKeyArray, sizes: Sequence[int]
    ) -> tuple[Carry, Float[Array, ""]]:
        """Take all local steps of a round; also return the mean of the losses seen."""
        if self.local_epochs is not None:
            return _epochs(step, start, task, key, sizes, self.local_epochs)

        def one(carry: Carry, at: tuple[Array, Array]) -> tuple[Carry, Array]:
            t, rows = at
            return step(carry, task.take(rows, sizes), t)

        steps = (jnp.arange(self.local_steps), task.draw_rows(key, self.local_steps, sum(sizes)))
        carry, losses = jax.lax.scan(one, start, steps)
        return carry, jnp.mean(losses)


class LocalDescent(NamedTuple):
    """How the local steps of a round move a model: by an optimiser, or by plain descent."""

    step_size: Scalar
    optimizer: optax.GradientTransformation | None

    def init(self, params: Tree) -> Any:
        """Return the optimiser's state before the first step of a round; ``()`` without one."""
        return () if self.optimizer is None else self.optimizer.init(params)

    def move(self, w: Tree, d: Tree, inner: Any) -> tuple[Tree, Any]:
        """Return w after a step along −d, and the optimiser's next state."""
        if self.optimizer is None:
            return descend(w, d, self.step_size), inner
        updates, inner = self.optimizer.update(d, inner, w)
        return optax.apply_updates(w, updates), inner


class LocalOptimization(LocalTraining):
    """Options of local steps whose size is given: an optimiser, and a size that diminishes."""

    local_lr_decay: Literal["none", "inverse-sqrt"] = eqx.field(static=True, default="none")
    """How β decreases over the rounds: ``"inverse-sqrt"`` is β_k = β / √(k+1)."""
    local_optimizer: OptimizerOption = eqx.field(static=True, default=None)
    """An Optax optimiser of local steps by name (``"adam"``), or a function from a step size."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_one_of(("none", "inverse-sqrt"), local_lr_decay=self.local_lr_decay)
        resolve_optimizer(self.local_optimizer, "local_optimizer")

    def local_lr_in(self, round: Int[Array, ""]) -> Scalar:
        """Return β_k, the size of local steps in this round."""
        decay = jnp.sqrt(round + 1.0) if self.local_lr_decay == "inverse-sqrt" else 1.0
        return self.local_lr / decay

    def local_lr_to_send(self, round: Int[Array, ""]) -> Any:
        """Return β_k for the clients, or ``()`` if they know it: it is always β."""
        return () if self.local_lr_decay == "none" else self.local_lr_in(round)

    def local_lr_received(self, sent: Any) -> Scalar:
        """Return β_k from what :meth:`local_lr_to_send` returned."""
        return self.local_lr if self.local_lr_decay == "none" else sent

    def local_descent(self, step_size: Scalar) -> LocalDescent:
        """Return how local steps of this size move a model."""
        make = resolve_optimizer(self.local_optimizer, "local_optimizer")
        return LocalDescent(step_size, None if make is None else make(step_size))


class PlainAdaptation(LocalTraining):
    """A client's own model is a tree of parameters that moves by plain gradient steps."""

    inner_lr: float = 0.1
    """α: step size of adaptation, in training (if any) and at test time."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(inner_lr=self.inner_lr)

    def personal_step(self, personal: Tree, task: Task, key: PRNGKeyArray) -> Tree:
        """Take one step: w ← w − α∇̃f(w, D)."""
        return descend(personal, self.adaptation_gradient(personal, task, key), self.inner_lr)

    def personal_model(self, personal: Tree) -> Tree:
        """Return the adapted w."""
        return personal


def _epochs(
    step: LocalStep, start: Carry, task: Task, key: PRNGKeyArray, sizes: Sequence[int], epochs: int
) -> tuple[Carry, Float[Array, ""]]:
    taken = sum(sizes)
    steps = (task.count + taken - 1) // taken

    def epoch(carry: tuple[Carry, Array], number: Int[Array, ""]) -> tuple[Any, None]:
        order = task.shuffle_rows(jax.random.fold_in(key, number))

        def one(t: Int[Array, ""], carry: tuple[Carry, Array]) -> tuple[Carry, Array]:
            inner, total = carry
            places = (t * taken + jnp.arange(taken)) % task.count
            inner, loss = step(inner, task.take(order[places], sizes), number * steps + t)
            return inner, total + loss

        return jax.lax.fori_loop(0, steps, one, carry), None

    (carry, total), _ = jax.lax.scan(epoch, (start, jnp.zeros(())), jnp.arange(epochs))
    return carry, total / (steps * epochs)


def resolve_optimizer(
    option: OptimizerOption, where: str
) -> Callable[..., optax.GradientTransformation] | None:
    """Return a function from a step size to an Optax optimiser; None for plain descent."""
    if option in (None, "none"):
        return None
    if isinstance(option, str):
        if option not in OPTIMIZERS:
            raise ConfigError(
                f"{where}={option!r} is not known; use one of {', '.join(OPTIMIZERS)}, or none"
            )
        return OPTIMIZERS[option]
    return option


def descend(w: Tree, d: Tree, step_size: Any) -> Tree:
    """Return w − step_size · d, in the number type of w."""
    return jax.tree.map(lambda u, v: (u - step_size * v).astype(u.dtype), w, d)


def advise_smaller(option: str, value: Any) -> str:
    """Return the advice to try a tenth, at most 0.1."""
    return f"algorithm.{option}={min(value / 10, 0.1):g} (now {value:g})"
