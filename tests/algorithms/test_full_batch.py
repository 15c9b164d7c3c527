"""Adaptation to all of a client's examples: the gradient of their mean loss, whatever the size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart.algorithms import APFL, ARUBA, FedAvg, Local, PerFedAvg, Task
from headstart.algorithms._contract import FULL_BLOCK, ModelParts
from headstart.data import Schema
from headstart.models import Classification

KEY = jax.random.key(5)
SCHEMA = Schema(shape=(tiny.FEATURES,), classes=tiny.CLASSES)
OBJECTIVE = Classification(tiny.MODEL, SCHEMA)
START = 7
"""Rows of other clients before the task's own."""


def make_task(count: int, **options: Any) -> Task:
    """A task in the middle of arrays that other clients share, whose rows are far larger."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(START + count + 70, tiny.FEATURES)).astype(np.float32)
    x[:START], x[START + count :] = 1e3, 1e3
    y = rng.integers(tiny.CLASSES, size=len(x)).astype(np.int32)
    fields = (jnp.asarray(x), jnp.asarray(y)), jnp.int32(START), jnp.int32(count)
    return Task(OBJECTIVE, *fields, **options)


def start() -> Any:
    w = tiny.MODEL.init(KEY, SCHEMA)
    return jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(KEY, leaf.shape), w)


def mean_loss_gradient(task: Task, places: np.ndarray, w: Any) -> Any:
    """The definition: one batch with exactly these examples."""
    batch = jax.tree.map(lambda a: a[START + places], task.examples)
    return jax.grad(task.loss)(w, batch)


@pytest.mark.parametrize(
    "count", [1, FULL_BLOCK - 1, FULL_BLOCK, FULL_BLOCK + 1, 2 * FULL_BLOCK + 3]
)
@pytest.mark.parametrize("most", [0, 2 * FULL_BLOCK + 3])
def test_every_example_counts_once_and_no_other_row_does(count: int, most: int) -> None:
    task = make_task(count, most=most)
    expected = mean_loss_gradient(task, np.arange(count), start())
    assert tiny.distance(task.full_gradient(start()), expected) < 1e-6


def test_a_subset_has_the_gradient_of_its_own_examples() -> None:
    whole = make_task(10, most=10)
    places = np.array([8, 2, 5, 0, 0, 0, 0, 0, 0, 0])
    subset = whole.subset(jnp.asarray(places), jnp.int32(3))
    expected = mean_loss_gradient(whole, places[:3], start())
    assert tiny.distance(subset.full_gradient(start()), expected) < 1e-6


def test_what_is_not_adapted_has_no_gradient() -> None:
    w = start()
    names = len(jax.tree.leaves(w))
    parts = ModelParts(jax.tree.map(lambda _: None, w), (True,) + (False,) * (names - 1))
    adapting = make_task(10, most=10, parts=parts).for_adaptation()
    moved, *rest = jax.tree.leaves(adapting.full_gradient(w))
    assert jnp.any(moved != 0) and all(jnp.all(leaf == 0) for leaf in rest)


@pytest.mark.parametrize("method", [FedAvg, PerFedAvg, Local, APFL, ARUBA])
def test_a_step_of_every_method_uses_all_examples_and_no_draw(method: Any) -> None:
    """A batch of five of ten examples depends on the draw; all ten do not."""
    options = tiny.NO_ALPHA if method is ARUBA else tiny.COMMON
    task, keys = make_task(10, most=10), jax.random.split(KEY)

    def adapt(algorithm: Any, key: Any) -> Any:
        state = algorithm.init(start())
        memory = algorithm.init_memory(state)
        return algorithm.personalize(state, memory, task, key, 1)

    drawn = [adapt(method(**options), key) for key in keys]
    assert tiny.distance(*drawn) > 1e-3
    full = [adapt(method(**options, full_batch_adaptation=True), key) for key in keys]
    assert tiny.identical(*full)
    step = {ARUBA: options["local_lr"], APFL: 0.25 * tiny.COMMON["inner_lr"]}
    rate = step.get(method, tiny.COMMON["inner_lr"])
    gradient = mean_loss_gradient(task, np.arange(10), start())
    expected = jax.tree.map(lambda w, d: w - rate * d, start(), gradient)
    assert tiny.distance(full[0], expected) < 1e-5


def test_learned_rates_adapt_to_all_examples_too() -> None:
    algorithm = PerFedAvg(**tiny.COMMON, rates="per-array", full_batch_adaptation=True)
    plain = FedAvg(**tiny.COMMON, full_batch_adaptation=True)
    task = make_task(10, most=10)
    ours, theirs = (
        each.personalize(each.init(start()), (), task, KEY, 2) for each in (algorithm, plain)
    )
    assert tiny.distance(ours, theirs) < 1e-6
