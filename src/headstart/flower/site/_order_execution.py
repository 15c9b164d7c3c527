"""What a site does with an order: train (``client_update``), score, keep a model of its own.

An order may ask for several at once: every message costs Flower seconds, so evaluation travels with
training. Only an :class:`Answer` leaves a site.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart._experiments import PersonalModel
from headstart._simulation.scoring import score_client
from headstart._simulation.step_choice import Comparison, StepSums, compare_client, make_choices
from headstart.algorithms._cohort import pack_update, reply_arrays
from headstart.algorithms._contract import Algorithm, Info, Memory, Reply, State, Task
from headstart.errors import CheckpointError, DataError, DivergedError
from headstart.flower._federation_config import SiteConfig
from headstart.flower.protocol._encoding import ORDER_BOUNDS, decode, encode
from headstart.flower.protocol._messages import (
    Answer,
    Identity,
    IdentityRequest,
    Order,
    Scoring,
    TrainingReport,
    WireMessage,
)
from headstart.flower.site._kept_start import PERSONAL_FILE, START_FILE, KeptStart
from headstart.flower.site._site_data import CachedSiteData
from headstart.flower.site._site_memory import SiteMemory
from headstart.flower.site._site_setup import SiteSetup
from headstart.machine import use_compilation_cache
from headstart.parts import merge_frozen
from headstart.records._federation_events import SiteChoice, SiteScores, SiteSizes
from headstart.records._tensor_files import named_arrays, restore
from headstart.trees import Tree, all_finite


class Site:
    """One party of a federation: it has data, memory and a model, and executes orders."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.data = CachedSiteData(config)

    def answer_bytes(self, content: bytes) -> bytes:
        """Return the encoded answer to an encoded order."""
        return encode(self.answer(read_order(content)))

    def answer(self, message: WireMessage) -> WireMessage:
        """Do what the message asks for."""
        if isinstance(message, IdentityRequest):
            return Identity(name=self.config.name)
        if not isinstance(message, Order):
            raise DataError(f"a site does not answer a message of kind {message.KIND}")
        return _Execution(self, message).answer()

    def folder(self, run: str) -> Path:
        """Return the folder with what the site keeps of a run."""
        if not run.isalnum():
            raise DataError("the order names no run")
        return Path(self.config.work) / "runs" / run


def read_order(content: bytes) -> WireMessage:
    """Decode what a server sends."""
    return decode(content, ORDER_BOUNDS, Order, IdentityRequest)


@cache
def site_of(config: SiteConfig) -> Site:
    """Return one site per configuration, so that its data are read once in a process."""
    use_compilation_cache()
    return Site(config)


class _Execution:
    """One order at one site."""

    def __init__(self, site: Site, order: Order) -> None:
        self.order, self.assignment = order, order.assignment
        self.setup = SiteSetup.from_assignment(order.assignment)
        self.folder = site.folder(order.assignment.run)
        self.memory = SiteMemory(self.folder)
        data = site.data.read(self.setup.schema)
        examples = (jnp.asarray(data.x), jnp.asarray(data.y))
        counts = [int(data.train_counts[0]), int(data.test_counts[0])]
        zero, train, test = jnp.int32(0), jnp.int32(counts[0]), jnp.int32(counts[1])
        objective, parts = self.setup.objective, self.setup.parts
        self.task = Task(objective, examples, zero, train, max(counts), parts)
        self.held_out = Task(objective, examples, train, test, max(counts), parts)
        self.sizes = SiteSizes(
            train_examples=counts[0],
            test_examples=counts[1],
            classes=int(np.count_nonzero(data.classes_of(0))),
        )
        self.content = self._content()

    def answer(self) -> Answer:
        """Score, keep and train, as far as the order asks for it."""
        order = self.order
        scores = None if order.scoring is None else self.score(order.scoring)
        if order.keep_steps is not None:
            self.keep(order.keep_steps, None if scores is None else scores.choice)
        report, update = self.train() if order.train else (None, {})
        return Answer(
            round=order.round, sizes=self.sizes, scores=scores, training=report, tensors=update
        )

    def train(self) -> tuple[TrainingReport, dict[str, np.ndarray]]:
        """Return the update, and write the memory to disk."""
        algorithm, keys, round = self.setup.algorithm, self.setup.keys, self.order.round
        sent = self.content
        if self.order.content == "state":
            sent = _as_received(algorithm.broadcast(self.content, keys.broadcast(round)))
        key = keys.client(round, self.assignment.client)
        memory = self.memory.before(round, self._fresh_memory(None))
        reply, memory, info = _update(algorithm, sent, memory, self.task, key)
        if not bool(all_finite((reply, memory, info["loss"]))):
            raise DivergedError(f"the update of round {round} is not finite")
        if jax.tree.leaves(memory):
            self.memory.keep(round, memory)
        report = TrainingReport(
            weight=float(reply.weight),
            part_weights={name: float(part.weight) for name, part in reply.parts.items()},
            loss=float(info["loss"]),
        )
        return report, named_arrays(pack_update(reply_arrays(reply), algorithm.bits_per_number))

    def score(self, scoring: Scoring) -> SiteScores:
        """Return sums over the held-out examples after each number of adaptation steps.

        The objective defines the sums: correct predictions for accuracy, squared errors for RMSE;
        R² adds sums of labels and of their squares, AUC a histogram of scores.
        """
        wanted = np.isin(np.arange(scoring.most_steps + 1), scoring.steps)
        key = self.setup.keys.adaptation(self.assignment.client)
        task = self.held_out if scoring.adapt_on == "test" else self.task
        table = _scores(
            self.setup.algorithm, self._state(), self._memory_now(), task, self.held_out, key,
            wanted, most=scoring.most_steps,
        )  # fmt: skip
        sums = np.asarray(table, float)
        bad = ~np.isfinite(sums).all(axis=1)
        sums[bad], sums[bad, -1] = 0.0, 1.0
        most = scoring.choose_at_most
        choice = None if most is None else self.choose(most)
        return SiteScores(sums=tuple(map(tuple, sums.tolist())), choice=choice)

    def choose(self, most: int) -> SiteChoice:
        """Choose the number of adaptation steps by cross-validation within the training examples.

        Two counts for two numbers of steps leave the site: held-out examples that its model answers
        better, and worse, than the shared one.
        """
        key = self.setup.keys.adaptation(self.assignment.client)
        table = _compare(
            self.setup.algorithm, self._state(), self._memory_now(), self.task, self.held_out, key,
            most=most,
        )  # fmt: skip
        comparison = Comparison(*(StepSums.from_table(part[None]) for part in np.asarray(table)))
        client, count = np.array([self.assignment.client]), np.array([self.sizes.train_examples])
        choices = make_choices(comparison, client, count)
        return SiteChoice(
            steps=int(choices.steps[0]),
            fixed=tuple(choices.fixed[0].tolist()),
            chosen=tuple(choices.chosen[0].tolist()),
        )

    def keep(self, most: int, choice: SiteChoice | None) -> None:
        """Store the start, to adapt from it again later, and the site's own model."""
        setup, state, memory = self.setup, self._state(), self._memory_now()
        path, chooses = self.folder / START_FILE, choice is not None
        KeptStart(path, self.assignment, state, memory, self.order.round, most, chooses).write()
        steps = most if choice is None else choice.steps
        key = setup.keys.adaptation(self.assignment.client)
        personal = _personalize(setup.algorithm, state, memory, self.task, key, steps)
        params = merge_frozen(personal, setup.parts)
        model = PersonalModel(params, setup.model, setup.schema, setup.objective)
        model.save(self.folder / PERSONAL_FILE, algorithm=setup.algorithm.name)

    def _content(self) -> Tree:
        """Return the tree that the order carries, checked against the expected shapes."""
        algorithm, order = self.setup.algorithm, self.order
        shapes = jax.eval_shape(self.setup.first_state)
        if order.content == "broadcast":
            shapes = jax.eval_shape(algorithm.broadcast, shapes, self.setup.keys.init)
        try:
            return restore(shapes, order.tensors, f"the order of round {order.round}")
        except CheckpointError as error:
            raise DataError(str(error)) from None

    def _state(self) -> State:
        if self.order.content != "state":
            raise DataError("the order asks for scores but holds no state")
        return self.content

    def _memory_now(self) -> Memory:
        return self.memory.before(self.order.round, self._fresh_memory(self._state()))

    def _fresh_memory(self, state: State | None) -> Memory:
        """Return the memory of a site that has not trained yet.

        If it may still train, this is the memory of the first state; otherwise of the current one.
        """
        from_first = self.assignment.known or state is None
        return self.setup.algorithm.init_memory(self.setup.first_state() if from_first else state)


def _as_received(tree: Tree) -> Tree:
    """Return the tree as if it had been sent, so that one compiled program serves both ways."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


@jax.jit
def _update(
    algorithm: Algorithm, broadcast: Tree, memory: Memory, task: Task, key: Any
) -> tuple[Reply, Memory, Info]:
    return algorithm.client_update(broadcast, memory, task, key)


@partial(jax.jit, static_argnames=("most",))
def _scores(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, held_out: Task, key: Any,
    wanted: Any, *, most: int,
) -> Any:  # fmt: skip
    return score_client(algorithm, state, memory, task, held_out, key, wanted, most=most)


@partial(jax.jit, static_argnames=("most",))
def _compare(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, held_out: Task, key: Any, *,
    most: int,
) -> Any:  # fmt: skip
    return compare_client(algorithm, state, memory, task, held_out, key, most=most)


@jax.jit
def _personalize(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, key: Any, steps: Any
) -> Tree:
    return algorithm.personalize(state, memory, task, key, steps)
