r"""ARUBA (Khodak, Balcan, Talwalkar 2019): FedAvg with a learned step size per coordinate.

Besides the model φ, the server keeps for every coordinate how far clients move (b) and how large
their gradients are (g). Client i takes τ steps from φ with η = √(b/g) and reports both:

    θ ← θ − η ∘ ∇f_i(θ; ξ)                                        τ times, from θ = φ
    b ← b + ε²/(t+1)^p + mean_i ½(φ − θ_i)²                        after round t = 1, 2, …
    g ← g + ζ²/(t+1)^p + mean_i Σ ∇f_i²,          φ ← mean_i θ_i

with b = ε², g = ζ² before the first round, so that training starts with step size ε/ζ, which is
``local_lr``. Coordinates in which clients move in the same direction get large steps; those in
which gradients are large but cancel get small ones. At test time a client refines φ with the
learned η. ARUBA++ (``plus`` = c > 0) keeps learning there: g ← g + c∇f_i² after every step.

Where their text is silent or does not apply: their sums run over tasks, one after the other. Here a
round is one task, and its clients enter by their mean, which is all the server sees. This increases
the weight of ε² and ζ² by the number of clients in a round; ε and ζ are tuned in any case.

Beyond their text, ∇f_i of a local step is clipped to ``max_gradient_norm``, both in the step and in
g: g describes the gradients that moved the model. A raw one that is huge would stay in the sum g
and lower η of its coordinates from then on. Refinement at test time stays plain.

The sizes of local steps are what ARUBA learns, and b and g are about plain steps of that size. So
there is neither a local optimiser, which would rescale the steps, nor a decay of ``local_lr``,
which has weight in the first rounds only. The server's step (:mod:`._server_step`) concerns φ
alone: with an optimiser, φ moves by its step instead of to the mean; b and g do not change.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import Batch, Cohort, Info, Part, Reply, Sent, Task
from headstart.algorithms._server_step import ServerStep
from headstart.errors import ConfigError
from headstart.options import require_positive
from headstart.trees import Tree, norm, subtract, zeros_like


class Rates(NamedTuple):
    """b and g; the step size is √(b/g)."""

    moved: Tree
    squares: Tree


class ARUBAState(NamedTuple):
    """The server's state."""

    params: Tree
    rates: Rates
    round: Int[Array, ""]
    optimizer: Any = ()


class Refined(NamedTuple):
    """A client's own model, and the rates of its steps."""

    params: Tree
    rates: Rates


@final
class ARUBA(ServerStep):
    """FedAvg with learned step sizes; ``local_lr`` is ε/ζ, every step size before round 1."""

    name: ClassVar[str] = "aruba"

    zeta: float = 1.0
    """ζ: how long the first step size has weight; with a small ζ it is soon forgotten."""
    power: float = 1.0
    """p: how fast that weight decreases."""
    plus: float = 0.0
    """c of ARUBA++: how much a client's own gradients count at test time; 0 is ARUBA."""

    def __check_init__(self) -> None:
        """Refuse values that no run could use."""
        require_positive(zeta=self.zeta, power=self.power)
        if isinstance(self.plus, int | float) and not 0 <= self.plus < float("inf"):
            raise ConfigError(f"plus={self.plus} must be a number of at least 0")

    def gradients_per_update(self, examples: int) -> int:
        """Count one gradient per local step."""
        return self.steps_for(examples, [self.batch_sizes[1]])

    def init(self, params: Tree) -> ARUBAState:
        """Start with b = ε² and g = ζ²."""
        zero = zeros_like(params)
        first = self.zeta**2
        rates = Rates(
            _accumulate(zero, zero, first * self.local_lr**2), _accumulate(zero, zero, first)
        )
        optimizer = self.init_server_optimizer(params)
        return ARUBAState(params, rates, jnp.zeros((), jnp.int32), optimizer)

    def init_memory(self, state: ARUBAState) -> tuple[()]:
        """Return nothing: clients keep no memory."""
        return ()

    def broadcast(self, state: ARUBAState, key: PRNGKeyArray) -> Sent:
        """Send φ and η."""
        return Sent(state.params, step_sizes(state.rates))

    def client_update(
        self, sent: Sent, memory: tuple[()], task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, tuple[()], Info]:
        """Take τ steps with η; also reply with the movement and the squared gradients."""

        def step(
            carry: tuple[Tree, Tree], batches: list[Batch], t: Array
        ) -> tuple[tuple[Tree, Tree], Float[Array, ""]]:
            w, squares = carry
            loss, gradient = jax.value_and_grad(task.loss)(w, batches[0])
            gradient = self.clip(gradient)
            return (_move(w, sent.extra, gradient), _add_squares(squares, gradient, 1.0)), loss

        start = (sent.params, zeros_like(sent.params))
        (w, squares), loss = self.train(step, start, task, key, [self.batch_sizes[1]])
        update, weight = subtract(w, sent.params), self.weight_of(task.count)
        moved = jax.tree.map(lambda u: u**2 / 2, update)
        parts = {"rates": Part(Rates(moved, squares), weight)}
        return Reply(update, weight, parts), (), {"loss": loss}

    def server_update(
        self, state: ARUBAState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[ARUBAState, Info]:
        """Set φ to the mean model, or take another step of the server; add to b and g."""
        observed = cohort.parts["rates"]
        belief = self.zeta**2 / (state.round + 2.0) ** self.power
        rates = Rates(
            _accumulate(state.rates.moved, observed.moved, belief * self.local_lr**2),
            _accumulate(state.rates.squares, observed.squares, belief),
        )
        stepped = self.server_step(state.params, state.optimizer, state.round, cohort.update)
        after = ARUBAState(stepped.params, rates, state.round + 1, stepped.optimizer)
        return after, {"update_norm": norm(stepped.update)}

    def adaptation_rates(self, state: ARUBAState) -> list[Tree]:
        """Return η, the same for every step."""
        return [step_sizes(state.rates)]

    def personal_start(
        self, state: ARUBAState, memory: tuple[()], task: Task, key: PRNGKeyArray
    ) -> Refined:
        """Return φ with the learned rates."""
        return Refined(state.params, state.rates)

    def personal_step(self, personal: Refined, task: Task, key: PRNGKeyArray) -> Refined:
        """Take one step, θ ← θ − √(b/g) ∘ ∇f; then, with ARUBA++, g ← g + c∇f²."""
        w, rates = personal
        gradient = self.adaptation_gradient(w, task, key)
        learned = rates._replace(squares=_add_squares(rates.squares, gradient, self.plus))
        return Refined(_move(w, step_sizes(rates), gradient), learned)

    def personal_model(self, personal: Refined) -> Tree:
        """Return θ."""
        return personal.params


def step_sizes(rates: Rates) -> Tree:
    """Return η = √(b/g)."""
    return jax.tree.map(lambda b, g: jnp.sqrt(b / g), rates.moved, rates.squares)


def _accumulate(sums: Tree, observed: Tree, prior: Any) -> Tree:
    return jax.tree.map(lambda a, new: (a + new + prior).astype(a.dtype), sums, observed)


def _move(w: Tree, eta: Tree, gradient: Tree) -> Tree:
    return jax.tree.map(lambda u, e, d: u - e * d, w, eta, gradient)


def _add_squares(squares: Tree, gradient: Tree, factor: Float[Array, ""] | float) -> Tree:
    return jax.tree.map(lambda s, d: (s + factor * d**2).astype(s.dtype), squares, gradient)
