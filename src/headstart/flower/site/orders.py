"""One party of a federation: it holds data, memory and its own model, and answers orders.

An order asks to train (``client_update``), to score, to keep an own model, or several at once:
every message costs Flower seconds, so evaluation rides along with training. What leaves a site is
listed in :meth:`Site.answer`; nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.cohort import pack_update, reply_arrays
from headstart.algorithms.contract import Algorithm, Memory, State, Task
from headstart.data.example_files import read_examples
from headstart.data.federated import FederatedDataset, from_clients
from headstart.data.schema import Schema
from headstart.data.store import is_store, open_store
from headstart.errors import CheckpointError, ConfigError, DataError, DivergedError
from headstart.experiments import PersonalModel
from headstart.experiments.configuration import build_aggregated, build_model
from headstart.experiments.personalization import split_rows
from headstart.flower.federation_config import SiteConfig
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.site.site_memory import SiteMemory
from headstart.keys import Keys
from headstart.models.model import Model
from headstart.models.objectives import Objective, build_objective
from headstart.options import build_from_table
from headstart.parts import Parts, TrainingSetup, merge_frozen, prepare_training
from headstart.records.tensor_files import named_arrays, read_checked, restore, write_checked
from headstart.simulation.evaluation import score_client
from headstart.trees import Tree, all_finite

START_FORMAT = "headstart-start-1"
PERSONAL = "personal.safetensors"


@dataclass(frozen=True)
class Assignment:
    """What every order of a run says again, so that a site needs no memory of earlier ones."""

    run: str
    client: int
    """The site's number: with the round it decides which batches are drawn."""
    known: bool
    """Whether the site takes part in training."""
    seed: int
    model: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    aggregation: Mapping[str, Any]
    parts: Mapping[str, Any]
    objective: Mapping[str, Any]
    schema: Mapping[str, Any]

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Assignment:
        """From an order."""
        try:
            # What version 0.1 has kept lacks these.
            text = {"aggregation": {}, "parts": {}, "objective": {}, **text}
            return cls(**{name: text[name] for name in cls.__dataclass_fields__})
        except KeyError as error:
            raise DataError(f"the order lacks {error}; is the server of another version?") from None

    def build(self) -> tuple[Model, TrainingSetup, Schema]:
        """Model, what is trained of it, schema; ConfigError if this site does not know them."""
        model, schema = build_model(self.model), Schema.from_table(self.schema)
        algorithm = build_aggregated(self.algorithm, self.aggregation)
        parts = build_from_table(Parts, self.parts, "parts")
        key = Keys.from_seed(self.seed).init
        return model, prepare_training(parts, model, algorithm, key, schema), schema

    def build_objective(self, model: Model, schema: Schema) -> Objective:
        """Loss and metrics; ConfigError if this site does not know them."""
        return build_objective(self.objective, model, schema)


class Site:
    """Answers orders for one site."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self._data: tuple[Any, FederatedDataset] | None = None

    def answer(self, order: Parcel) -> Parcel:
        """Do what the order asks for.

        The answer holds the reply of ``client_update`` (a model or model update), its weight, the
        training loss, how many examples and classes the site has, and for scores the sums over the
        held-out examples that the loss and the metrics are made of. Which sums these are the
        objective says: right answers for accuracy, squared errors for RMSE; R² adds sums of labels
        and their squares, AUC a histogram of scores.
        """
        text = order.text
        if text.get("hello"):
            return wire.parcel({"name": self.config.name}, {})
        if text.get("protocol") != wire.PROTOCOL:
            raise ConfigError(
                f"the server speaks protocol {text.get('protocol')}, this site {wire.PROTOCOL}; "
                "install the same version of Headstart on both"
            )
        assignment = Assignment.from_text(text)
        work = _Work(self, assignment, int(text["round"]), order)
        answer: dict[str, Any] = {"round": work.round, **work.sizes()}
        if text["steps"]:
            on_test, most = text["adapt_on"] == "test", int(text["most_steps"])
            answer["scores"] = work.scores(text["steps"], most=most, on_test=on_test)
        if text["keep"]:
            work.keep(int(text["keep_steps"]))
        reply: Mapping[str, np.ndarray] = {}
        if text["train"]:
            reply, weights, answer["loss"] = work.train()
            answer["weight"], answer["part_weights"] = weights.pop(""), weights
        return wire.parcel(answer, reply)

    def data(self, schema: Schema) -> FederatedDataset:
        """The site's examples as a data set with one client; read again when the file changes."""
        path = Path(self.config.data)
        try:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size, schema)
        except OSError:
            raise DataError(f"{path} does not exist; set data in site.toml") from None
        if self._data is None or self._data[0] != stamp:
            self._data = (stamp, read_site_data(self.config, schema))
        return self._data[1]

    def folder(self, run: str) -> Path:
        """What the site keeps of a run."""
        if not run.isalnum():
            raise DataError("the order names no run")
        return Path(self.config.work) / "runs" / run


class _Work:
    """One order on one site."""

    def __init__(self, site: Site, assignment: Assignment, round: int, order: Parcel) -> None:
        self.assignment, self.round = assignment, round
        self.model, (self.algorithm, self.first, self.parts), self.schema = assignment.build()
        self.keys = Keys.from_seed(assignment.seed)
        self.site = site
        self.folder = site.folder(assignment.run)
        data = site.data(self.schema)
        self.objective = assignment.build_objective(self.model, self.schema)
        objective = self.objective
        examples = (jnp.asarray(data.x), jnp.asarray(data.y))
        counts = [int(data.train_counts[0]), int(data.test_counts[0])]
        self.classes = int(np.count_nonzero(data.classes_of(0)))
        zero, train, test = jnp.int32(0), jnp.int32(counts[0]), jnp.int32(counts[1])
        self.task = Task(objective, examples, zero, train, max(counts), self.parts)
        self.held_out = Task(objective, examples, train, test, max(counts), self.parts)
        self.memory = SiteMemory(self.folder)
        self.holds = order.text["holds"]
        self.content = _received(self, order)

    def sizes(self) -> dict[str, int]:
        return {
            "train_examples": int(self.task.count),
            "test_examples": int(self.held_out.count),
            "classes": self.classes,
        }

    def train(self) -> tuple[dict[str, np.ndarray], dict[str, float], float]:
        """The reply, its weights ("" is the update's) and the loss; the memory goes to disk."""
        sent = self.content
        if self.holds == "state":
            sent = _plain(self.algorithm.broadcast(self.content, self.keys.broadcast(self.round)))
        key = self.keys.client(self.round, self.assignment.client)
        mine = self.memory.before(self.round, self._fresh_memory(None))
        reply, mine, info = _update(self.algorithm, sent, mine, self.task, key)
        if not bool(all_finite((reply, mine, info["loss"]))):
            raise DivergedError(f"the update of round {self.round} is not finite")
        if jax.tree.leaves(mine):
            self.memory.keep(self.round, mine)
        weights = {"": float(reply.weight)}
        weights |= {name: float(part.weight) for name, part in reply.parts.items()}
        content = pack_update(reply_arrays(reply), self.algorithm.bits_per_number)
        return named_arrays(content), weights, float(info["loss"])

    def scores(self, steps: list[int], *, most: int, on_test: bool) -> dict[str, Any]:
        """Sums over the held-out examples after each number of adaptation steps up to ``most``."""
        wanted = np.isin(np.arange(most + 1), steps)
        key = self.keys.adaptation(self.assignment.client)
        table = _scores(
            self.algorithm, self._state(), self._memory_now(),
            self.held_out if on_test else self.task, self.held_out, key, wanted, most=most,
        )  # fmt: skip
        sums = np.asarray(table, float)
        bad = ~np.isfinite(sums).all(axis=1)
        sums[bad], sums[bad, -1] = 0.0, 1.0
        return {"steps": list(steps), "sums": sums.tolist()}

    def keep(self, steps: int) -> None:
        """The start, to adapt from again later, and the site's own model after so many steps."""
        state, memory = self._state(), self._memory_now()
        header = {**vars(self.assignment), "round": self.round, "steps": steps}
        content = named_arrays({"state": state, "memory": memory})
        write_checked(self.folder / "start.safetensors", content, header, START_FORMAT)
        key = self.keys.adaptation(self.assignment.client)
        personal = _personalized(self.algorithm, state, memory, self.task, key, steps)
        model = PersonalModel(
            merge_frozen(personal, self.parts), self.model, self.schema, self.objective
        )
        model.save(self.folder / PERSONAL, algorithm=self.algorithm.name)

    def _state(self) -> State:
        if self.holds != "state":
            raise DataError("the order asks for scores but holds no state")
        return self.content

    def _memory_now(self) -> Memory:
        return self.memory.before(self.round, self._fresh_memory(self._state()))

    def _fresh_memory(self, state: State | None) -> Memory:
        """Of one who has not worked yet: as the first state has it, which the seed decides; of one
        who never will, as the present state has it.
        """
        known = self.assignment.known or state is None
        return self.algorithm.init_memory(_first_state(self) if known else state)


def _first_state(work: _Work) -> State:
    return work.algorithm.init(work.first)


def _plain(tree: Tree) -> Tree:
    """As if it had come over the line, so that one compiled program serves both ways."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def _received(work: _Work, order: Parcel) -> Tree:
    """The tree the order carries, checked against the shapes this site expects."""
    frame = jax.eval_shape(lambda: _first_state(work))
    if work.holds == "broadcast":
        frame = jax.eval_shape(work.algorithm.broadcast, frame, work.keys.init)
    try:
        return restore(frame, wire.tensors(order), f"the order of round {work.round}")
    except CheckpointError as error:
        raise DataError(str(error)) from None


def _kind(schema: Schema) -> str:
    what = {"class": "classes", "number": "numbers to predict", "labels": "labels"}
    return f"shape {schema.shape} with {schema.outputs} {what[schema.target]}"


def read_site_data(config: SiteConfig, schema: Schema) -> FederatedDataset:
    """A site's file or folder as a data set with one client."""
    path = Path(config.data)
    if is_store(path):
        data = open_store(path)
        if data.clients != 1:
            raise DataError(f"{path} holds {data.clients} clients; a site has one")
        about = [(s.shape, s.target, s.outputs) for s in (data.schema, schema)]
        if about[0] != about[1]:
            raise DataError(
                f"{path} holds examples of {_kind(data.schema)}; the federation's have "
                f"{_kind(schema)}"
            )
        return data
    x, y = read_examples(path, schema, label=config.label)
    train, test = split_rows(len(y), config.test_fraction, config.split_seed, path)
    parts = (x[train], y[train], x[test], y[test])
    return from_clients([parts], schema, names=[config.name])


@dataclass(frozen=True)
class KeptStart:
    """What a site kept of a finished run: enough to adapt again, without the server."""

    path: Path
    assignment: Assignment
    state: State
    memory: Memory
    steps: int

    @classmethod
    def newest(cls, config: SiteConfig, run: str | None = None) -> KeptStart:
        """Of the run given, or of the latest one."""
        found = sorted(
            Path(config.work).glob(f"runs/{run or '*'}/start.safetensors"),
            key=lambda path: path.stat().st_mtime,
        )
        if not found:
            raise ConfigError(
                f"{config.work} holds no model yet; keep headstart federate join running until "
                "the server has handed the model out"
            )
        header, tensors = read_checked(found[-1], START_FORMAT)
        assignment = Assignment.from_text(header)
        _, (algorithm, params, _), _ = assignment.build()

        def frame() -> dict[str, Any]:
            state = algorithm.init(params)
            return {"state": state, "memory": algorithm.init_memory(state)}

        parts = restore(jax.eval_shape(frame), tensors, found[-1])
        return cls(found[-1], assignment, parts["state"], parts["memory"], int(header["steps"]))


@jax.jit
def _update(
    algorithm: Algorithm, broadcast: Tree, memory: Memory, task: Task, key: Any
) -> tuple[Tree, Memory, dict[str, Any]]:
    return algorithm.client_update(broadcast, memory, task, key)


@partial(jax.jit, static_argnames=("most",))
def _scores(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, held_out: Task, key: Any,
    wanted: Any, *, most: int,
) -> Any:  # fmt: skip
    return score_client(algorithm, state, memory, task, held_out, key, wanted, most=most)


@jax.jit
def _personalized(
    algorithm: Algorithm, state: State, memory: Memory, task: Task, key: Any, steps: Any
) -> Tree:
    return algorithm.personalize(state, memory, task, key, steps)
