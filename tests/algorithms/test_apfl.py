"""APFL and local training against loops written by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree

from headstart._simulation import Federation
from headstart.algorithms import APFL, Local, Task
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Sent
from headstart.errors import ConfigError
from headstart.models import Classification
from headstart.trees import add, mix

KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(4))


def two_models() -> tuple[Any, Any]:
    schema = tiny.federation().schema
    w = tiny.MODEL.init(KEY, schema)
    noise = jax.random.split(KEY)
    return tuple(
        jax.tree.map(lambda leaf, k=k: leaf + 0.5 * jax.random.normal(k, leaf.shape), w)
        for k in noise
    )


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_round_of_apfl_by_hand(task: Task, adaptive: bool) -> None:
    """Deng et al. (2020), Algorithm 1 with (10), on vectors."""
    algorithm = APFL(**tiny.COMMON, adaptive=adaptive)
    shared, local = two_models()
    memory = algorithm.init_memory(algorithm.init(shared))._replace(local=local)
    reply, kept, _ = jax.jit(algorithm.client_update)(Sent(shared), memory, task, KEY)

    w, back = ravel_pytree(shared)
    v = ravel_pytree(local)[0]
    gradient = jax.jit(jax.grad(lambda u, batch: task.loss(back(u), batch)))
    share, rate = 0.5, algorithm.local_lr
    if adaptive:
        first = task.batch(jax.random.fold_in(KEY, algorithm.local_steps), algorithm.largest_batch)
        slope = jnp.vdot(v - w, gradient(share * v + (1 - share) * w, first))
        share = float(jnp.clip(share - rate * slope, 0, 1))
        assert share != 0.5
    for t in range(algorithm.local_steps):
        batch = task.batch(jax.random.fold_in(KEY, t), algorithm.largest_batch)
        mixture_gradient = gradient(share * v + (1 - share) * w, batch)
        w, v = w - rate * gradient(w, batch), v - rate * share * mixture_gradient

    result = ravel_pytree(add(shared, reply.update))[0]
    np.testing.assert_allclose(result, w, atol=2e-6)
    np.testing.assert_allclose(ravel_pytree(kept.local)[0], v, atol=2e-6)
    assert float(kept.mixing) == pytest.approx(share, abs=1e-6)


def test_mixing_ends_at_the_global_or_the_local_model(task: Task) -> None:
    shared, local = two_models()
    for mixing, expected in ((0.0, shared), (1.0, local)):
        algorithm = APFL(mixing=mixing)
        state = algorithm.init(shared)
        memory = algorithm.init_memory(state)._replace(local=local)
        own = algorithm.personal_model(algorithm.personal_start(state, memory, task, KEY))
        assert tiny.identical(own, expected)


def test_an_adaptation_step_of_apfl_by_hand(task: Task) -> None:
    """v ← v − αλ∇f(λv + (1 − λ)w) on a batch of the inner size; w and λ stay."""
    algorithm = APFL(**{**tiny.COMMON, "batch_size": (4, 5, 6)}, mixing=0.3)
    shared, local = two_models()
    state = algorithm.init(shared)
    start = algorithm.personal_start(
        state, algorithm.init_memory(state)._replace(local=local), task, KEY
    )
    end = algorithm.personal_step(start, task, KEY)
    d = jax.grad(task.loss)(mix(local, shared, 0.3), task.batch(KEY, 4))
    assert tiny.distance(end.memory.local, add(local, d, -0.2 * 0.3)) < 1e-6
    assert tiny.identical((end.shared, end.memory.mixing), (shared, start.memory.mixing))


def test_mixing_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mixing=1\.5"):
        APFL(mixing=1.5)


def test_local_training_never_hears_of_others(task: Task) -> None:
    algorithm = Local(**tiny.COMMON)
    shared, own = two_models()
    reply, kept, _ = jax.jit(algorithm.client_update)(Sent(()), own, task, KEY)
    assert jax.tree.leaves((reply.update, reply.parts)) == []
    w, back = ravel_pytree(own)
    gradient = jax.jit(jax.grad(lambda u, batch: task.loss(back(u), batch)))
    for t in range(algorithm.local_steps):
        batch = task.batch(jax.random.fold_in(KEY, t), algorithm.largest_batch)
        w = w - algorithm.local_lr * gradient(w, batch)
    np.testing.assert_allclose(ravel_pytree(kept)[0], w, atol=2e-6)
    cohort = build_cohort([reply], asked=1, exist=1)
    state, _ = algorithm.server_update(algorithm.init(shared), cohort, KEY)
    assert tiny.identical(algorithm.model(state), shared)
    assert int(state.round) == 1
