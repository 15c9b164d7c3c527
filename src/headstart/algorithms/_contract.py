"""The contract of a federated algorithm: pure functions, the same for all.

    state                = algorithm.init(params)                                server, once
    sent                 = algorithm.broadcast(state, key)                       each round
    reply, memory, info  = algorithm.client_update(sent, memory, task, key)      on one client
    state, info          = algorithm.server_update(state, cohort, key)           server
    personal             = algorithm.personal_start(state, memory, task, key)    on one client
    personal             = algorithm.personal_step(personal, task, key)
    params               = algorithm.personal_model(personal)

A client replies with an *update*, the difference from the model it was sent, and a weight; further
parts of a reply have separate weights. The server sees weighted means and counts, never a single
reply. So memory does not grow with the number of clients, and clipping, noise and secure
aggregation are possible (:mod:`headstart.aggregation`). ``memory`` is what a client keeps between
rounds, ``()`` for most; ``init_memory`` also returns the memory of a client that was never in
training. Randomness comes from keys: equal keys give equal numbers in every engine.

An algorithm is a frozen Equinox module. Its step sizes are leaves, so that changing one does not
compile again; what changes the program (step counts, names) is declared static. Every class is
either abstract or final. Abstract methods must be defined; the others have defaults that a class
may replace. A state is a named tuple with the shared model under ``params``.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from headstart._first_layer import FirstLayer
from headstart._keys import adaptation_start, adaptation_step
from headstart.trees import Tree, add, choose_leaves, zeros_like

Batch: TypeAlias = Any
State: TypeAlias = PyTree
Memory: TypeAlias = PyTree
Personal: TypeAlias = PyTree
Info = dict[str, Float[Array, ""]]
"""Numbers to record, each a scalar; ``loss`` among a client's."""
Weights = Literal["uniform", "examples"]
FULL_BLOCK = 64
"""Examples that enter a full gradient at a time."""


class ExampleScores(Protocol):
    """What an evaluation adds up over the examples of a batch."""

    @property
    def loss(self) -> Float[Array, " batch"]:
        """The loss of every example."""

    @property
    def statistics(self) -> Float[Array, "batch width"]:
        """What the metrics are computed from, for every example."""

    @property
    def finite(self) -> Bool[Array, " batch"]:
        """Whether the outputs for an example are finite."""

    @property
    def outcome(self) -> Float[Array, " batch"]:
        """How well each example was answered; higher is better."""


class TaskObjective(Protocol):
    """What a client minimises, and how its model is scored."""

    @property
    def first_layer(self) -> FirstLayer | None:
        """The first layer, if its gradients need not be written out; None is always allowed."""

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Return the mean loss of the parameters on a batch."""

    def losses(self, params: Tree, batch: Batch) -> Float[Array, " batch"]:
        """Return the loss of every example."""

    def score(self, params: Tree, batch: Batch) -> ExampleScores:
        """Return what an evaluation adds up."""

    @property
    def width(self) -> int:
        """Length of the statistics of one example."""


class ModelParts(eqx.Module):
    """Parameters that are frozen, and which of the others are adapted."""

    frozen: Tree
    """Parameters that are not trained; None in place of every other leaf."""
    adapted: tuple[bool, ...] | None = eqx.field(static=True, default=None)
    """Which of the trained leaves adaptation moves; None: all."""

    def stop_unadapted(self, params: Tree) -> Tree:
        """Return the parameters, as constants where adaptation does not move them."""
        if self.adapted is None:
            return params
        return choose_leaves(self.adapted, params, jax.lax.stop_gradient(params))


class Task(eqx.Module):
    """One client's loss and data: rows ``start … start + count − 1`` of arrays it may share.

    The arrays are a tree with one leading axis, usually ``(x, y)``. In a simulation they hold all
    clients' rows and only ``start`` and ``count`` differ, so nothing is copied per client. With an
    ``order``, the task's rows are ``start + order[0 … count − 1]``: any part of the client's rows.
    """

    objective: TaskObjective = eqx.field(static=True)
    examples: PyTree[Array]
    start: Int[Array, ""]
    count: Int[Array, ""]
    most: int = eqx.field(static=True, default=0)
    """No client's split has more examples than this; 0 if that is not known."""
    parts: ModelParts | None = None
    """Which parameters are frozen or not adapted; None if there are none."""
    adapting: bool = eqx.field(static=True, default=False)
    """Whether parameters that are not adapted are constants of the loss."""
    order: Int[Array, " most"] | None = None
    """Where, after ``start``, the task's examples are; None: in the first ``count`` rows."""

    def loss(self, params: Tree, batch: Batch) -> Float[Array, ""]:
        """Return the mean loss on a batch; in adaptation, only adapted parameters vary."""
        return self.objective.loss(self._all_parameters(params), batch)

    def full_gradient(self, params: Tree) -> Tree:
        """Return the gradient of the mean loss over all of the client's examples, in blocks."""
        size = min(FULL_BLOCK, self.most) if self.most else FULL_BLOCK

        def add_block(number: Int[Array, ""], total: Tree) -> Tree:
            place = number * size + jnp.arange(size)
            real = place < self.count
            batch = self._rows(self.rows_at(jnp.where(real, place, 0)))
            share = real / self.count

            def loss(w: Tree) -> Float[Array, ""]:
                return jnp.vdot(share, self._losses(w, batch))

            return add(total, jax.grad(loss)(params))

        blocks = (self.count + size - 1) // size
        return jax.lax.fori_loop(0, blocks, add_block, zeros_like(params))

    def _losses(self, params: Tree, batch: Batch) -> Float[Array, " batch"]:
        return self.objective.losses(self._all_parameters(params), batch)

    def _all_parameters(self, params: Tree) -> Tree:
        """Return the parameters of the loss; in adaptation, only adapted ones vary."""
        if self.adapting and self.parts is not None:
            params = self.parts.stop_unadapted(params)
        return self.merge_frozen(params)

    def merge_frozen(self, params: Tree) -> Tree:
        """Return all parameters of the model, including the frozen ones."""
        return params if self.parts is None else eqx.combine(params, self.parts.frozen)

    def for_adaptation(self) -> Task:
        """Return the task as adaptation steps see it."""
        if self.parts is None or self.parts.adapted is None:
            return self
        fields = (self.objective, self.examples, self.start, self.count, self.most, self.parts)
        return Task(*fields, adapting=True, order=self.order)

    def subset(self, places: Int[Array, " most"], count: Int[Array, ""]) -> Task:
        """Return the task of some of its examples: the first ``count`` of these places.

        Places count from 0 in the task's own order; all of them must be below its ``count`` as far
        as they are used.
        """
        fields = (self.objective, self.examples, self.start, count, self.most, self.parts)
        order = places if self.order is None else self.order[places]
        return Task(*fields, adapting=self.adapting, order=order)

    def rows_at(self, places: Int[Array, " size"]) -> Int[Array, " size"]:
        """Return the rows of the arrays that hold the task's examples at these places."""
        return self.start + (places if self.order is None else self.order[places])

    @property
    def adapted(self) -> tuple[bool, ...] | None:
        """Which leaves adaptation moves; None: all."""
        return None if self.parts is None else self.parts.adapted

    @property
    def first_layer(self) -> FirstLayer | None:
        """The objective's first layer, if the whole model is trained and adapted."""
        return self.objective.first_layer if self.parts is None else None

    def batch(self, key: PRNGKeyArray, size: int) -> Batch:
        """Draw examples uniformly with replacement from the client's rows."""
        return self.batches(key, [size])[0]

    def batches(self, key: PRNGKeyArray, sizes: Sequence[int]) -> list[Batch]:
        """Draw several independent batches at once, which compiles faster than one draw each.

        The first is what :meth:`batch` draws with the same key.
        """
        return self.take(self._draw(key, sum(sizes)), sizes)

    def draw_rows(self, key: PRNGKeyArray, steps: int, size: int) -> Int[Array, "steps size"]:
        """Draw the rows of many steps at once: step t draws from ``fold_in(key, t)``.

        :meth:`take` turns one step's rows into the batches that :meth:`batches` draws with that
        key. One call of the generator costs the same for one step as for all of them.
        """
        return jax.vmap(lambda t: self._draw(jax.random.fold_in(key, t), size))(jnp.arange(steps))

    def shuffle_rows(self, key: PRNGKeyArray) -> Int[Array, " most"]:
        """Return the client's rows in random order: the first ``count`` of the result."""
        place = jnp.arange(self.most)
        order = jnp.where(place < self.count, jax.random.uniform(key, (self.most,)), jnp.inf)
        return self.rows_at(jnp.argsort(order))

    def take(self, rows: Int[Array, " size"], sizes: Sequence[int]) -> list[Batch]:
        """Return the examples in these rows, cut into batches."""
        ends = list(itertools.accumulate(sizes))
        return [self._rows(rows[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    def _draw(self, key: PRNGKeyArray, size: int) -> Int[Array, " size"]:
        return self.rows_at(jax.random.randint(key, (size,), 0, self.count))

    def _rows(self, rows: Int[Array, " size"]) -> Batch:
        # Rows are the client's own: no need to have the compiled program check each of them.
        return jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), self.examples)


class Sent(NamedTuple):
    """What the server sends to every client of a round."""

    params: Tree
    """The shared model; ``()`` if none is shared."""
    extra: PyTree = ()
    """Anything else that clients need."""


class Part(NamedTuple):
    """A further part of a reply."""

    value: Tree
    weight: Float[Array, ""]


class Reply(NamedTuple):
    """What a client sends back."""

    update: Tree
    """The difference from the model that was sent."""
    weight: Float[Array, ""]
    parts: Mapping[str, Part] = {}


class Cohort(NamedTuple):
    """What the server receives from a round's clients together."""

    update: Tree
    """The weighted mean of their updates."""
    parts: Mapping[str, Tree]
    """The weighted mean of each further part."""
    answered: Int[Array, ""]
    asked: int
    exist: int
    """Clients that may take part in training."""


class GradientNormPoint(NamedTuple):
    """Where, and of which meta-loss, the gradient norm of the theorems is measured."""

    params: Tree
    inner_lr: Any
    inner_steps: int


class CombiningRule(Protocol):
    """Combines the replies of a round; see :mod:`headstart.aggregation`."""

    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Return one tree from many, which are stacked along the first axis of every leaf."""

    def needs(self) -> int:
        """Return the fewest replies that the rule can combine."""


class Algorithm(eqx.Module):
    """The contract of an algorithm. See docs/adding-an-algorithm.md for examples."""

    name: ClassVar[str]
    """The name of the algorithm in an experiment file."""
    needs_memory: ClassVar[bool] = False
    """Whether a client keeps anything between rounds."""

    @abstractmethod
    def init(self, params: Tree) -> State:
        """Return the server's state before the first round."""

    @abstractmethod
    def init_memory(self, state: State) -> Memory:
        """Return the memory of a client that has not participated yet; ``()`` if there is none."""

    @abstractmethod
    def broadcast(self, state: State, key: PRNGKeyArray) -> Sent:
        """Return what the server sends to every client of a round."""

    @abstractmethod
    def client_update(
        self, sent: Sent, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Memory, Info]:
        """Train at one client; ``info["loss"]`` is the mean training loss it saw."""

    @abstractmethod
    def server_update(self, state: State, cohort: Cohort, key: PRNGKeyArray) -> tuple[State, Info]:
        """Return the next state, and numbers to record."""

    def model(self, state: State) -> Tree:
        """Return the shared initial model: every state has it under the name ``params``."""
        return state.params

    def with_model(self, state: State, params: Tree) -> State:
        """Return the state with another shared model."""
        return state._replace(params=params)

    @abstractmethod
    def personal_start(
        self, state: State, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> Personal:
        """Return what a client's own model starts from, before any adaptation step."""

    @abstractmethod
    def personal_step(self, personal: Personal, task: Task, key: PRNGKeyArray) -> Personal:
        """Take one adaptation step on the client's data."""

    @abstractmethod
    def personal_model(self, personal: Personal) -> Tree:
        """Return the parameters of the client's own model."""

    @abstractmethod
    def gradients_per_update(self, examples: int) -> int:
        """Count the gradients of one ``client_update`` for a client with this many examples.

        A Hessian-vector product counts 2.
        """

    @property
    @abstractmethod
    def gradients_per_step(self) -> int:
        """Gradient evaluations of one ``personal_step``."""

    @property
    @abstractmethod
    def largest_batch(self) -> int:
        """The largest batch the algorithm draws from a client."""

    @abstractmethod
    def weight_of(self, examples: Int[Array, ""]) -> Float[Array, ""]:
        """Return the weight in the reply of a client with this many training examples.

        The server of a federation checks the weights that sites send against it.
        """

    @property
    def label(self) -> str:
        """A short name for tables: the algorithm and what distinguishes its variants."""
        return self.name

    @property
    def smaller_steps(self) -> str:
        """What to try when training diverges: ``algorithm.local_lr=0.005 (now 0.05)``."""
        return "smaller steps"

    @property
    def rule(self) -> CombiningRule | None:
        """How a round's replies are combined; None: their weighted mean."""
        return None

    @property
    def bits_per_number(self) -> int:
        """Bits per number of an update when it leaves a client; below 32, an integer."""
        return 32

    @property
    def update_scale(self) -> float:
        """The factor that turns numbers that leave a client into an update again."""
        return 1.0

    @property
    def measures_gradient_norm(self) -> bool:
        """Whether the state contains the random iterates of the theorems."""
        return False

    def gradient_norm_point(self, state: State) -> GradientNormPoint:
        """Return where to measure the gradient norm; by default ‖∇f‖ at the model."""
        return GradientNormPoint(self.model(state), 0.0, 0)

    def adaptation_rates(self, state: State) -> list[Tree]:
        """Return the learned rates of each adaptation step, like the model; empty: not learned."""
        return []

    def personalize(
        self,
        state: State,
        memory: Memory,
        task: Task,
        key: PRNGKeyArray,
        steps: int | Int[Array, ""],
    ) -> Tree:
        """Return the client's own model after this number of adaptation steps."""
        task = task.for_adaptation()

        def advance(step: Int[Array, ""], personal: Personal) -> Personal:
            return self.personal_step(personal, task, adaptation_step(key, step))

        start = self.personal_start(state, memory, task, adaptation_start(key))
        return self.personal_model(jax.lax.fori_loop(0, steps, advance, start))
