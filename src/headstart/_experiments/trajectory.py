"""Models along a short training run, at which the theory's constants are estimated."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from headstart._experiments.configuration import Experiment
from headstart._simulation.simulation import Simulation
from headstart.data._federated import FederatedDataset
from headstart.options import require_at_least
from headstart.trees import Tree


def sample_trajectory(
    experiment: Experiment,
    data: FederatedDataset,
    *,
    rounds: int,
    count: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Tree]:
    """Return the shared model at ``count`` evenly spaced rounds, from round 0 to ``rounds``."""
    require_at_least(1, rounds=rounds, count=count)
    simulation = Simulation(
        data, experiment.build_model(), experiment.build_algorithm(),
        participation=experiment.participation, seed=experiment.seed, parts=experiment.parts,
        objective=experiment.objective,
    )  # fmt: skip
    state, models, done = simulation.start(), [], 0
    for stop in np.linspace(0, rounds, count).round().astype(int).tolist():
        if stop > done:
            state = simulation.advance(state, stop - done)
            done = stop
        progress(done, rounds)
        model = simulation.algorithm.model(state.state)
        models.append(jax.tree.map(lambda leaf: jax.numpy.asarray(np.asarray(leaf)), model))
    return models
