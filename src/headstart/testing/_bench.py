"""A small federation for trying an algorithm, and one round with one client."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart._simulation.federation import Federation
from headstart._simulation.simulation import Simulation
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Algorithm, Cohort, Reply, Task, TaskObjective
from headstart.data._federated import FederatedDataset, from_clients
from headstart.data._schema import Schema
from headstart.models import mlp
from headstart.models._model import Model
from headstart.trees import Tree

FEATURES, CLASSES = 4, 3
KNOWN, NEW = 5, 1
PARTICIPATION = 0.6


class Bench(NamedTuple):
    """An algorithm with data, a model and its initial parameters."""

    algorithm: Algorithm
    engine: Simulation
    federation: Federation
    params: Tree

    @classmethod
    def of(cls, algorithm: Algorithm, data: FederatedDataset | None, model: Model | None) -> Bench:
        """Build a bench, by default with small data and a small network."""
        data = make_small_clients(algorithm.largest_batch) if data is None else data
        model = mlp([4]) if model is None else model
        engine = Simulation(data, model, algorithm, participation=PARTICIPATION, seed=0)
        federation = Federation.from_dataset(data, engine.federation.objective)
        return cls(algorithm, engine, federation, model.init(jax.random.key(0), data.schema))

    def task(self, client: int = 2) -> Task:
        """Return a client's task."""
        return self.federation.training_task(jnp.int32(client))

    def task_with(self, objective: TaskObjective, client: int) -> Task:
        """Return a client's task with another objective."""
        task = self.task(client)
        return Task(objective, task.examples, task.start, task.count, task.most)

    def alone(self, client: int = 2) -> Task:
        """Return a client's task in which all other clients' rows are overwritten."""
        task = self.task(client)
        own = slice(int(task.start), int(task.start + task.count))

        def overwrite_others(column: Any) -> Any:
            filler = jnp.nan if jnp.issubdtype(column.dtype, jnp.floating) else 0
            rows = np.full_like(column, filler)
            rows[own] = np.asarray(column)[own]
            return jax.device_put(rows, column.sharding)

        examples = jax.tree.map(overwrite_others, task.examples)
        return Task(task.objective, examples, task.start, task.count, task.most)

    @property
    def new_client(self) -> int:
        """A client that is not in training, or the last one if there is none."""
        return self.engine.data.clients - 1


def make_small_clients(largest_batch: int) -> FederatedDataset:
    """Make clients of different sizes, each with its own rule from features to classes."""
    rng = np.random.default_rng(0)
    parts = []
    for client in range(KNOWN + NEW):
        train = 6 + 2 * client
        if client == KNOWN - 1:
            train = max(train, largest_batch)
        x = rng.normal(size=(train + 4, FEATURES)).astype(np.float32)
        y = np.argmax(x @ rng.normal(size=(FEATURES, CLASSES)), axis=1)
        parts.append((x[:train], y[:train], x[train:], y[train:]))
    return from_clients(parts, Schema(shape=(FEATURES,), classes=CLASSES), new_clients=NEW)


def make_cohort(algorithm: Algorithm, reply: Reply) -> Cohort:
    """Return a cohort in which every client sent this reply."""
    count = 1 if algorithm.rule is None else max(1, algorithm.rule.needs())
    return build_cohort([reply] * count, asked=count, exist=KNOWN, rule=algorithm.rule)


def run_client(algorithm: Algorithm, params: Tree, task: Task, key: Any) -> tuple[Any, ...]:
    """Return reply, memory and info of a client in the first round."""
    state = algorithm.init(params)
    sent = algorithm.broadcast(state, jax.random.fold_in(key, 0))
    return algorithm.client_update(sent, algorithm.init_memory(state), task, key)
