"""Headstart: whole rounds in one compiled program, through ``Simulation.advance``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks import cases
from benchmarks.cases import Case
from benchmarks.contestants.counting import counted, gradients_of
from headstart._simulation.simulation import Simulation
from headstart.algorithms import FedAvg, PerFedAvg
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset
from headstart.data._schema import Schema
from headstart.machine import use_all_cores
from headstart.meta import MetaBatches, meta_value_and_gradient
from headstart.models import Classification
from headstart.models._cnn import cnn
from headstart.models._mlp import mlp
from headstart.models._model import Model
from headstart.trees import size


@dataclass(frozen=True)
class Counted:
    """A model whose gradients are counted."""

    model: Model

    def init(self, key: Any, examples: Any) -> Any:
        """Return the model's parameters."""
        return self.model.init(key, examples)

    @property
    def first_layer(self) -> Any:
        """The model's own: what is counted is the program that is timed."""
        return getattr(self.model, "first_layer", None)

    def apply(self, params: Any, x: Any) -> Any:
        """Return the model's logits, marked."""
        return counted(self.model.apply(params, x))


class Contestant:
    """See ``serve.Contestant``."""

    def __init__(self) -> None:
        """Use all cores, which must be set before JAX starts."""
        use_all_cores()

    def prepare(self, case: Case, method: str) -> dict[str, Any]:
        """Count on a program with counters in it; time one without."""
        data, algorithm = dataset(case), algorithm_for(method)
        marked = simulation(data, Counted(model_for(case)), algorithm)
        first = marked.start()
        gradients = gradients_of(lambda: marked.advance(first, 1).state)
        self.simulation = simulation(data, model_for(case), algorithm)
        self.progress = self.simulation.advance(self.simulation.start(), 1)
        devices = jax.local_device_count()
        return {
            "gradients": gradients,
            "declared": self.simulation.gradient_evaluations(1),
            "parameters": size(algorithm.model(self.progress.state)),
            "setting": f"{devices} device{'s' * (devices > 1)}",
        }

    def run(self, rounds: int) -> dict[str, Any]:
        """Run more rounds of the same training."""
        progress = self.progress._replace(log={})
        start = time.perf_counter()
        self.progress = self.simulation.advance(progress, rounds)
        jax.block_until_ready(self.progress.state)
        return {"seconds": time.perf_counter() - start}

    def direction(self, case: Case, method: str, to: str) -> dict[str, Any]:
        """Return the meta-gradient as a client computes it; without inner steps it is FedAvg's."""
        schema, model = schema_for(case), model_for(case)
        objective = Classification(model, schema)
        shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), schema))
        outer, *others = case.fixed_batches(method)
        batches = MetaBatches(inner=others[:1], outer=outer, hessian=others[1:])
        d = jax.jit(
            lambda w: meta_value_and_gradient(
                objective.loss,
                w,
                batches,
                inner_lr=cases.INNER_LR,
                delta=cases.DELTA,
                method="first-order" if method == "fedavg" else method,  # type: ignore[arg-type]
                first_layer=objective.first_layer,
            )[1]
        )(from_common(case.weights(), shapes))
        np.savez(to, *to_common(d, case.weights()))
        return {}


def from_common(arrays: list[np.ndarray], shapes: Any) -> Any:
    """Return Headstart's parameters, with outputs on the first axis of a weight."""
    leaves, tree = jax.tree.flatten(shapes)
    pairs = zip(arrays, leaves, strict=True)
    moved = [a if a.shape == leaf.shape else np.moveaxis(a, -1, 0) for a, leaf in pairs]
    assert [a.shape for a in moved] == [leaf.shape for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def to_common(params: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the inverse of :func:`from_common`."""
    pairs = zip(map(np.asarray, jax.tree.leaves(params)), arrays, strict=True)
    return [leaf if leaf.shape == a.shape else np.moveaxis(leaf, 0, -1) for leaf, a in pairs]


def simulation(data: FederatedDataset, model: Model, algorithm: Algorithm) -> Simulation:
    """Return a training run."""
    return Simulation(data, model, algorithm, participation=cases.ACTIVE / cases.CLIENTS)


def dataset(case: Case) -> FederatedDataset:
    """Return the examples as Headstart's data set."""
    x, y = case.examples()
    offsets = np.arange(cases.CLIENTS + 1) * cases.EXAMPLES
    return FederatedDataset(x, y, offsets, np.full(cases.CLIENTS, cases.TRAINING), schema_for(case))


def schema_for(case: Case) -> Schema:
    """Return a schema of bytes with a scale."""
    return Schema(shape=case.image, classes=cases.CLASSES, scale=cases.SCALE)


def model_for(case: Case) -> Model:
    """Return Headstart's network for the case."""
    if case.network == "mlp":
        return mlp(cases.HIDDEN)
    return cnn(cases.CHANNELS, cases.KERNEL, cases.CNN_HIDDEN)


def algorithm_for(method: str) -> Algorithm:
    """Return FedAvg, or Per-FedAvg with one inner step."""
    common: dict[str, Any] = {
        "inner_lr": cases.INNER_LR,
        "local_lr": cases.LOCAL_LR,
        "local_steps": cases.LOCAL_STEPS,
        "batch_size": cases.BATCH,
        "max_gradient_norm": math.inf,  # the other contestants do not clip
    }
    if method == "fedavg":
        return FedAvg(**common)
    return PerFedAvg(**common, method=method, inner_steps=1, delta=cases.DELTA)  # type: ignore[arg-type]
