"""Per-FedAvg: every option reaches the meta-gradient of a local step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import tiny

from headstart._simulation import Federation
from headstart.algorithms import FedAvg, PerFedAvg, Task
from headstart.algorithms._contract import ModelParts
from headstart.algorithms._rates import descend_log_rates, rates_of_step
from headstart.meta import METHODS, meta_value_and_gradient, meta_value_and_gradients
from headstart.models import Classification
from headstart.trees import scale, subtract

KEY = jax.random.key(5)
ONE_STEP: dict[str, Any] = {**tiny.COMMON, "local_steps": 1, "batch_size": (4, 5, 6)}
ADAPTED = (True, False)


@pytest.fixture(scope="module")
def params() -> Any:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(KEY, leaf.shape), w)


@pytest.fixture(scope="module")
def task(params: Any) -> Task:
    """A client whose adaptation moves the weights and not the bias."""
    data = tiny.federation()
    parts = ModelParts(jax.tree.map(lambda leaf: None, params), ADAPTED)
    objective = Classification(tiny.MODEL, data.schema)
    return Federation.from_dataset(data, objective, parts=parts).training_task(jnp.int32(3))


def reply_of(algorithm: Any, params: Any, task: Task) -> Any:
    sent = algorithm.broadcast(algorithm.init(params), KEY)
    return jax.jit(algorithm.client_update)(sent, (), task, KEY)[0]


def batches_of(algorithm: PerFedAvg, task: Task) -> Any:
    drawn = task.batches(jax.random.fold_in(KEY, 0), algorithm.step_batches)
    return algorithm.arrange_batches(drawn)


@pytest.mark.parametrize("method", METHODS)
def test_a_local_step_follows_the_meta_gradient(task: Task, params: Any, method: Any) -> None:
    """With a δ so large that it shows, and a leaf that is not adapted."""
    algorithm = PerFedAvg(**ONE_STEP, method=method, inner_steps=2, delta=2.0)
    _, d = meta_value_and_gradient(
        task.loss, params, batches_of(algorithm, task), inner_lr=0.2, method=method, delta=2.0,
        adapted=ADAPTED,
    )  # fmt: skip
    update = reply_of(algorithm, params, task).update
    assert tiny.distance(update, scale(d, -0.1)) < 1e-6
    if method == "hessian-free":
        usual = PerFedAvg(**ONE_STEP, method=method, inner_steps=2)
        assert tiny.distance(update, reply_of(usual, params, task).update) > 1e-5


@pytest.mark.parametrize(
    "rates, method, inner_steps",
    [
        ("fixed", "exact", 2),
        ("per-array", "hessian-free", 1),
        ("per-array", "first-order", 2),
        ("per-coordinate", "exact", 2),
    ],
)
def test_so_it_does_with_learned_rates_and_earlier_losses(
    task: Task, params: Any, rates: Any, method: Any, inner_steps: int
) -> None:
    algorithm = PerFedAvg(
        **ONE_STEP, method=method, inner_steps=inner_steps, delta=2.0, earlier_losses=0.5,
        rates=rates, rates_lr=0.3,
    )  # fmt: skip
    log_rates = algorithm.init(params).log_rates
    by_number = (
        [rates_of_step(log_rates, step) for step in range(inner_steps)]
        if algorithm.learns_rates
        else [jax.tree.map(lambda leaf: jnp.asarray(0.2), params)] * inner_steps
    )
    _, d, by_step = meta_value_and_gradients(
        task.loss, params, batches_of(algorithm, task), rates=by_number, method=method, delta=2.0,
        adapted=ADAPTED, earlier=0.5,
    )  # fmt: skip
    reply = reply_of(algorithm, params, task)
    assert tiny.distance(reply.update, scale(d, -0.1)) < 1e-6
    if algorithm.learns_rates:
        change = subtract(descend_log_rates(log_rates, by_step, 0.3), log_rates)
        assert tiny.distance(reply.parts["log_rates"].value, change) < 1e-6
    else:
        assert not reply.parts


@pytest.mark.parametrize("method", ["exact", "first-order"])
def test_rates_that_are_learned_apart_are_those_of_fedavg(
    task: Task, params: Any, method: Any
) -> None:
    """For more steps than the meta-gradient has."""
    options: dict[str, Any] = {
        **tiny.COMMON, "rates": "per-array", "rates_per_step": True, "rates_steps": 3,
        "rates_method": method,
    }  # fmt: skip
    ours, theirs = (
        reply_of(kind(**options), params, task).parts["log_rates"] for kind in (PerFedAvg, FedAvg)
    )
    assert tiny.identical(ours, theirs)


@pytest.mark.parametrize("method, sizes", [("exact", [5, 4, 4, 6, 6]), ("first-order", [5, 4, 4])])
def test_no_batch_is_drawn_in_vain(method: Any, sizes: list[int]) -> None:
    """An epoch would otherwise use up examples that no gradient sees."""
    assert PerFedAvg(**ONE_STEP, inner_steps=2, method=method).step_batches == sizes


def test_the_label_names_what_distinguishes_variants() -> None:
    assert FedAvg().label == "fedavg"
    assert "per-array" in FedAvg(rates="per-array").label
    assert PerFedAvg(method="first-order").label == "per-fedavg (first-order, ν=1)"
    learned = PerFedAvg(inner_steps=2, rates="per-array")
    assert learned.label == "per-fedavg (exact, ν=2, per-array rates)"
