"""Local optimisers and diminishing steps, by hand, in the algorithms that were built on them last.

FedAvg and Per-FedAvg are in test_averaging.py.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree

from headstart._simulation import Federation
from headstart.algorithms import ALGORITHMS, APFL, FedAvg, Local, LocalOptimization, Task
from headstart.algorithms._contract import Sent
from headstart.errors import ConfigError
from headstart.models import Classification
from headstart.trees import add

KEY = jax.random.key(7)
BETA, STEPS = tiny.COMMON["local_lr"], tiny.COMMON["local_steps"]


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(4))


def two_models() -> tuple[Any, Any]:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return tuple(
        jax.tree.map(lambda leaf, k=k: leaf + 0.5 * jax.random.normal(k, leaf.shape), w)
        for k in jax.random.split(KEY)
    )


class Momentum:
    """m ← d + 0.9 m, w ← w − βm."""

    def __init__(self, w: Any) -> None:
        self.w, self.m = w, jnp.zeros_like(w)

    def move(self, d: Any) -> None:
        self.m = d + 0.9 * self.m
        self.w = self.w - BETA * self.m


def gradient_of(task: Task, like: Any) -> Any:
    back = ravel_pytree(like)[1]
    return jax.jit(jax.grad(lambda u, batch: task.loss(back(u), batch)))


def batch_of(task: Task, key: Any, t: int) -> Any:
    return task.batch(jax.random.fold_in(key, t), tiny.COMMON["batch_size"])


def test_every_algorithm_with_given_step_sizes_has_the_options() -> None:
    """ARUBA learns the sizes of its local steps."""
    found = {name for name, cls in ALGORITHMS.items() if issubclass(cls, LocalOptimization)}
    assert found == set(ALGORITHMS) - {"aruba"}


def test_momentum_in_local_training_starts_again_in_every_round(task: Task) -> None:
    algorithm = Local(**tiny.COMMON, local_optimizer="momentum")
    own, _ = two_models()
    update, gradient = jax.jit(algorithm.client_update), gradient_of(task, own)
    w, kept = ravel_pytree(own)[0], own
    for key in jax.random.split(KEY):
        _, kept, _ = update(Sent(()), kept, task, key)
        local = Momentum(w)
        for t in range(STEPS):
            local.move(gradient(local.w, batch_of(task, key, t)))
        w = local.w
    np.testing.assert_allclose(ravel_pytree(kept)[0], w, atol=5e-6)


def test_momentum_in_apfl_moves_both_models(task: Task) -> None:
    """λ stays: adaptive=False."""
    algorithm = APFL(**tiny.COMMON, local_optimizer="momentum", adaptive=False, mixing=0.3)
    shared, own = two_models()
    memory = algorithm.init_memory(algorithm.init(shared))._replace(local=own)
    reply, kept, _ = jax.jit(algorithm.client_update)(Sent(shared), memory, task, KEY)
    gradient = gradient_of(task, shared)
    w, v = (Momentum(ravel_pytree(model)[0]) for model in (shared, own))
    for t in range(STEPS):
        batch = batch_of(task, KEY, t)
        towards = 0.3 * gradient(0.3 * v.w + 0.7 * w.w, batch)
        w.move(gradient(w.w, batch))
        v.move(towards)
    np.testing.assert_allclose(ravel_pytree(add(shared, reply.update))[0], w.w, atol=5e-6)
    np.testing.assert_allclose(ravel_pytree(kept.local)[0], v.w, atol=5e-6)


@pytest.mark.parametrize("method", [Local, APFL])
def test_a_diminishing_step_is_the_same_as_a_smaller_one(task: Task, method: Any) -> None:
    """In round k = 3, β_k = β/2, for every model of the client and for λ."""
    diminishing = method(**tiny.COMMON, local_lr_decay="inverse-sqrt")
    half = method(**{**tiny.COMMON, "local_lr": BETA / 2})
    shared, own = two_models()
    ends = []
    for algorithm in (diminishing, half):
        state = algorithm.init(shared)._replace(round=jnp.int32(3))
        memory = algorithm.init_memory(state)
        memory = memory._replace(local=own) if method is APFL else memory
        sent = algorithm.broadcast(state, KEY)
        ends.append(jax.jit(algorithm.client_update)(sent, memory, task, KEY)[:2])
        assert len(jax.tree.leaves(sent.extra)) == (algorithm is diminishing)
    assert tiny.distance(*ends) < 1e-6


@pytest.mark.parametrize("method", [FedAvg, Local, APFL])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"local_optimizer": "adm"}, "local_optimizer='adm' is not known; use one of sgd"),
        ({"local_lr_decay": "cosine"}, "local_lr_decay='cosine' is not known; use one of none"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    method: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        method(**options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
