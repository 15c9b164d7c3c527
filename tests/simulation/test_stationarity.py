"""‖∇F‖² against the derivative of the composed loss, client by client."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import tiny

from headstart._simulation.simulation import Simulation
from headstart.algorithms import PerFedAvg


def by_autodiff(simulation: Simulation, w: Any, inner_lr: float, inner_steps: int) -> float:
    data, objective = simulation.data, simulation.federation.objective

    def after(w: Any, batch: Any) -> jax.Array:
        for _ in range(inner_steps):
            g = jax.grad(objective.loss)(w, batch)
            w = jax.tree.map(lambda a, b: a - inner_lr * b, w, g)
        return objective.loss(w, batch)

    gradient, gradients = jax.jit(jax.grad(after)), []
    for client in range(data.known_clients):
        one = data.client(client)
        leaves = jax.tree.leaves(gradient(w, (one.x_train, one.y_train)))
        gradients.append(np.concatenate([np.ravel(leaf) for leaf in leaves]))
    return float(np.sum(np.mean(gradients, axis=0) ** 2))


@pytest.mark.parametrize("inner_steps", [0, 1, 3])
def test_the_norm_is_that_of_the_whole_meta_gradient(inner_steps: int) -> None:
    algorithm = PerFedAvg(**tiny.COMMON, inner_steps=inner_steps, random_iterate=True)
    simulation = Simulation(tiny.federation(), tiny.MODEL, algorithm, participation=0.6, seed=1)
    progress = simulation.advance(simulation.start(), 3)
    w = jax.tree.map(np.asarray, progress.state.iterate)
    expected = by_autodiff(simulation, w, tiny.COMMON["inner_lr"], inner_steps)
    assert simulation.gradient_norm_squared(progress) == pytest.approx(expected, rel=1e-4)
    assert expected > 0
