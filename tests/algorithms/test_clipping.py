"""Clipping the directions of local steps: by hand in every method, and what it is good for."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree

import headstart as hs
from headstart._simulation import Federation, Simulation
from headstart.algorithms import APFL, ARUBA, FedAvg, Local, PerFedAvg, Task
from headstart.algorithms._contract import Sent
from headstart.data import Schema, from_clients
from headstart.errors import ConfigError, DivergedError
from headstart.models import Classification
from headstart.trees import add

KEY = jax.random.key(5)
METHODS = [FedAvg, PerFedAvg, Local, APFL, ARUBA]
BETA = 0.1
each_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(3))


def make(method: Any, **options: Any) -> Any:
    base = tiny.NO_ALPHA if method is ARUBA else tiny.COMMON
    return method(**{**base, "local_steps": 1, **options})


def models() -> tuple[Any, Any]:
    """A shared and a local model."""
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return tuple(
        jax.tree.map(lambda leaf, k=k: leaf + 0.5 * jax.random.normal(k, leaf.shape), w)
        for k in jax.random.split(KEY)
    )


def moves(algorithm: Any, task: Task) -> list[np.ndarray]:
    """Return how far one round moves every model that the client trains."""
    shared, local = models()
    state = algorithm.init(shared)
    memory = algorithm.init_memory(state)
    if isinstance(algorithm, APFL):
        memory = memory._replace(local=local)
    reply, kept, _ = jax.jit(algorithm.client_update)(
        algorithm.broadcast(state, KEY), memory, task, KEY
    )
    found = [(reply.update, None)] if jax.tree.leaves(reply.update) else []
    if isinstance(algorithm, APFL):
        found.append((kept.local, local))
    if isinstance(algorithm, Local):
        found.append((kept, memory))
    return [
        np.asarray(ravel_pytree(new if old is None else add(new, old, -1.0))[0])
        for new, old in found
    ]


@each_method
@pytest.mark.parametrize("longest", [0.05, 1e3])
def test_a_longer_direction_is_shortened_and_a_shorter_one_is_not(
    task: Task, method: Any, longest: float
) -> None:
    """One step: ‖Δw‖ = β min(‖d‖, c), and Δw keeps its direction (in float32: it is short)."""
    plain, clipped = (make(method, max_gradient_norm=c) for c in (math.inf, longest))
    for one, two in zip(moves(plain, task), moves(clipped, task), strict=True):
        size = float(np.linalg.norm(one)) / BETA
        assert 0.05 < size < 1e3
        assert np.linalg.norm(two) == pytest.approx(BETA * min(size, longest), rel=1e-4)
        np.testing.assert_allclose(two / np.linalg.norm(two), one / (BETA * size), atol=1e-4)


@each_method
def test_several_steps_move_at_most_as_far_as_their_norms_allow(task: Task, method: Any) -> None:
    algorithm = make(method, max_gradient_norm=0.2, local_steps=4)
    for moved in moves(algorithm, task):
        assert 0 < np.linalg.norm(moved) <= 4 * BETA * 0.2 * (1 + 1e-5)


def test_the_clipped_steps_of_apfl_by_hand(task: Task) -> None:
    """Both directions are clipped, each by itself; the mixing weight moves as without."""
    algorithm = make(APFL, max_gradient_norm=0.3, local_steps=3)
    shared, local = models()
    memory = algorithm.init_memory(algorithm.init(shared))._replace(local=local)
    reply, kept, _ = jax.jit(algorithm.client_update)(Sent(shared), memory, task, KEY)
    free = make(APFL, local_steps=3)
    share = jax.jit(free.client_update)(Sent(shared), memory, task, KEY)[1].mixing
    assert float(kept.mixing) == float(share)

    w, back = ravel_pytree(shared)
    v = ravel_pytree(local)[0]
    gradient = jax.jit(jax.grad(lambda u, batch: task.loss(back(u), batch)))
    for t in range(3):
        batch = task.batch(jax.random.fold_in(KEY, t), algorithm.largest_batch)
        towards = share * gradient(share * v + (1 - share) * w, batch)
        w, v = w - BETA * shorten(gradient(w, batch), 0.3), v - BETA * shorten(towards, 0.3)
    np.testing.assert_allclose(ravel_pytree(add(shared, reply.update))[0], w, atol=2e-6)
    np.testing.assert_allclose(ravel_pytree(kept.local)[0], v, atol=2e-6)


def test_aruba_counts_the_gradients_that_moved_the_model(task: Task) -> None:
    algorithm = make(ARUBA, max_gradient_norm=0.3, local_steps=3)
    shared, _ = models()
    sent = algorithm.broadcast(algorithm.init(shared), KEY)
    reply = jax.jit(algorithm.client_update)(sent, (), task, KEY)[0]
    w, back = ravel_pytree(shared)
    gradient = jax.jit(jax.grad(lambda u, batch: task.loss(back(u), batch)))
    squares = np.zeros_like(w)
    for t in range(3):
        batch = task.batch(jax.random.fold_in(KEY, t), algorithm.largest_batch)
        d = shorten(gradient(w, batch), 0.3)
        w, squares = w - BETA * d, squares + d**2
    np.testing.assert_allclose(ravel_pytree(add(shared, reply.update))[0], w, atol=2e-6)
    found = ravel_pytree(reply.parts["rates"].value.squares)[0]
    np.testing.assert_allclose(found, squares, atol=2e-6)


def shorten(d: Any, longest: float) -> Any:
    return d * min(1.0, longest / float(jnp.linalg.norm(d)))


@each_method
def test_without_a_norm_the_program_is_the_one_without_clipping(task: Task, method: Any) -> None:
    """None is inf; a norm that is never reached gives the same numbers, from another program."""
    shared, _ = models()
    never, none = make(method), make(method, max_gradient_norm=None)
    assert never == none and never.max_gradient_norm == math.inf
    assert never.clip(shared) is shared

    def program(algorithm: Any) -> str:
        state = algorithm.init(shared)
        arguments = algorithm.broadcast(state, KEY), algorithm.init_memory(state), task, KEY
        return str(jax.make_jaxpr(algorithm.client_update)(*arguments))

    assert program(never) == program(none) != program(make(method, max_gradient_norm=1e6))
    far = make(method, max_gradient_norm=1e6)
    for one, two in zip(moves(never, task), moves(far, task), strict=True):
        assert one.tobytes() == two.tobytes()


@each_method
def test_adaptation_is_never_clipped(task: Task, method: Any) -> None:
    shared, _ = models()
    adapted = []
    for longest in (math.inf, 1e-3):
        algorithm = make(method, max_gradient_norm=longest)
        state = algorithm.init(shared)
        memory = algorithm.init_memory(state)
        adapted.append(algorithm.personalize(state, memory, task, KEY, jnp.int32(3)))
    assert tiny.identical(*adapted)
    assert tiny.distance(adapted[0], shared) > 1e-2


@each_method
@pytest.mark.parametrize("wrong", [0, 0.0, -1.0, math.nan, -math.inf])
def test_impossible_norms_are_refused_by_name(method: Any, wrong: float) -> None:
    with pytest.raises(ConfigError, match=r"max_gradient_norm=.* or inf"):
        method(max_gradient_norm=wrong)


def test_advice_after_divergence_names_clipping_unless_it_is_on() -> None:
    for method in METHODS:
        assert "max_gradient_norm=5" in method(max_gradient_norm=None).smaller_steps
        assert "max_gradient_norm" not in method().smaller_steps


@each_method
def test_a_problem_on_which_plain_steps_diverge(method: Any) -> None:
    """Least squares with curvature 2λ ≈ 400: steps of 0.05 diverge, those of the default do not."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(4):
        x = (10 * rng.normal(size=(40, 3))).astype(np.float32)
        y = (x @ np.array([1.0, -1.0, 0.5])).astype(np.float32)
        parts.append((x[:30], y[:30], x[30:], y[30:]))
    data = from_clients(parts, Schema(shape=(3,), target="number"))
    options = {"batch_size": 20} | ({} if method is ARUBA else {"inner_lr": 1e-3})

    def advance(**more: Any) -> Any:
        engine = Simulation(data, hs.models.logistic(), method(**options, **more), participation=1)
        return engine.advance(engine.start(), 60)

    with pytest.raises(DivergedError, match="max_gradient_norm=5"):
        advance(max_gradient_norm=None)
    end = advance()
    for leaf in jax.tree.leaves((end.state, end.memory)):
        assert np.isfinite(np.asarray(leaf)).all()
