"""ARUBA against a loop written by hand on vectors (Khodak et al. 2019, Algorithm 2)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree

from headstart._simulation import Federation
from headstart.algorithms import ARUBA, Algorithm, FedAvg, Task
from headstart.algorithms._aruba import step_sizes
from headstart.algorithms._cohort import build_cohort
from headstart.errors import ConfigError
from headstart.models import Classification

KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return [federation.training_task(jnp.int32(client)) for client in (1, 4)]


def vector(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0])


def test_two_rounds_and_refinement_by_hand(tasks: list[Task]) -> None:
    algorithm = ARUBA(local_lr=0.3, zeta=0.7, power=0.5, plus=2.0, local_steps=3, batch_size=4)
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    flat, back = ravel_pytree(w)
    gradient = jax.jit(lambda u, batch: jax.grad(lambda v: tasks[0].loss(back(v), batch))(u))
    phi, eps, zeta = np.asarray(flat), 0.3 * 0.7, 0.7
    b, g = np.full_like(phi, eps**2), np.full_like(phi, zeta**2)
    state = algorithm.init(w)

    for t in (1, 2):
        replies, thetas, moved, squares = [], [], [], []
        sent = algorithm.broadcast(state, KEY)
        for number, task in enumerate(tasks):
            key = jax.random.fold_in(KEY, 10 * t + number)
            replies.append(jax.jit(algorithm.client_update)(sent, (), task, key)[0])
            theta, total = phi, np.zeros_like(phi)
            for step in range(3):
                d = np.asarray(gradient(theta, task.batch(jax.random.fold_in(key, step), 4)))
                theta, total = theta - np.sqrt(b / g) * d, total + d**2
            thetas.append(theta)
            moved.append((phi - theta) ** 2 / 2)
            squares.append(total)
        state, _ = algorithm.server_update(state, build_cohort(replies, asked=2, exist=2), KEY)
        b = b + eps**2 / (t + 1) ** 0.5 + np.mean(moved, axis=0)
        g = g + zeta**2 / (t + 1) ** 0.5 + np.mean(squares, axis=0)
        phi = np.mean(thetas, axis=0)

    np.testing.assert_allclose(vector(state.params), phi, atol=2e-6)
    np.testing.assert_allclose(vector(step_sizes(state.rates)), np.sqrt(b / g), rtol=2e-5)

    own = algorithm.personalize(state, (), tasks[1], KEY, 3)
    for step in range(3):
        d = np.asarray(gradient(phi, tasks[1].batch(jax.random.fold_in(KEY, step), 4)))
        phi, g = phi - np.sqrt(b / g) * d, g + 2.0 * d**2
    np.testing.assert_allclose(vector(own), phi, atol=5e-6)


def test_the_first_round_is_fedavg_with_step_size_local_lr(tasks: list[Task]) -> None:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    replies = []
    algorithms: list[Algorithm] = [ARUBA(**tiny.NO_ALPHA, zeta=3.0), FedAvg(**tiny.COMMON)]
    for algorithm in algorithms:
        sent = algorithm.broadcast(algorithm.init(w), KEY)
        replies.append(jax.jit(algorithm.client_update)(sent, (), tasks[0], KEY)[0].update)
    one, other = map(vector, replies)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_coordinates_in_which_clients_move_far_get_larger_steps(tasks: list[Task]) -> None:
    algorithm = ARUBA(**tiny.NO_ALPHA, zeta=1e-3)
    state = algorithm.init(tiny.MODEL.init(KEY, tiny.federation().schema))
    sent = algorithm.broadcast(state, KEY)
    reply = jax.jit(algorithm.client_update)(sent, (), tasks[0], KEY)[0]
    state, _ = algorithm.server_update(state, build_cohort([reply], asked=1, exist=1), KEY)
    rates = reply.parts["rates"].value
    moved, squares, eta = (vector(tree) for tree in (*rates, step_sizes(state.rates)))
    telling = squares > 1e-3  # the gradient outweighs what was believed before
    assert np.corrcoef(np.log(moved[telling] / squares[telling]), np.log(eta[telling]))[0, 1] > 0.9


@pytest.mark.parametrize("wrong", [{"local_lr": 0.0}, {"zeta": -1.0}, {"plus": -0.5}, {"power": 0}])
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}="):
        ARUBA(**wrong)
