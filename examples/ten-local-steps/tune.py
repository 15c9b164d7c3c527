"""Tune step sizes for ten local steps: the same grid for every method, without held-out examples.

    python examples/ten-local-steps/tune.py            (minutes)

Each point of the grid is trained on the known clients' training splits, split again, with seeds
that the experiment files do not use. New clients and held-out examples are not used. The grid and
the best points are written to ``tuning.json``; the experiment files contain the best points.
"""

from __future__ import annotations

import itertools
import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import headstart as hs

SEEDS = (1000, 1001, 1002)
INNER_LR = (0.1, 0.2, 0.4, 0.8)
LOCAL_LR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
LOCAL_STEPS = 10
ADAPT_STEPS = 3
ROUNDS = 200
METHODS = {
    "FedAvg": ("fedavg", "before"),
    "FedAvg + update": ("fedavg", "after"),
    "Per-FedAvg": ("per-fedavg", "after"),
}
"""Algorithm, and what it is tuned for."""


def algorithm(name: str, **options: Any) -> hs.algorithms.Algorithm:
    """Return FedAvg, or Per-FedAvg with as many inner steps as adaptation steps; plain steps."""
    if name == "fedavg":
        return hs.FedAvg(**options, max_gradient_norm=inf)
    return hs.PerFedAvg(inner_steps=ADAPT_STEPS, **options, max_gradient_norm=inf)


def accuracy(method: hs.algorithms.Algorithm, seed: int) -> dict[str, float]:
    """Return mean accuracies before and after adaptation, on held-out training data."""
    split = hs.data.load("digits").split(hs.data.iid(clients=20), new_clients=4, seed=seed)
    run = hs.train(
        split.with_own_labels(seed).for_tuning(),
        hs.models.mlp([80, 60]),
        method,
        rounds=ROUNDS,
        participation=0.5,
        seed=seed,
        evaluation=hs.EvaluationOptions(every=ROUNDS, adapt_steps=ADAPT_STEPS, curve_steps=3),
    )
    return {when: getattr(run.summary.known["accuracy"], when).mean for when in ("before", "after")}


def point(name: str, inner_lr: float, local_lr: float) -> dict[str, Any]:
    """Train one point of the grid; a point that diverges says so and has no accuracy."""
    rates = {"inner_lr": inner_lr, "local_lr": local_lr}
    method = algorithm(name, **rates, local_steps=LOCAL_STEPS, batch_size=40)
    try:
        scores = [accuracy(method, seed) for seed in SEEDS]
    except hs.HeadstartError as error:
        return {"algorithm": name, **rates, "diverged": str(error)}
    means = {when: float(np.mean([s[when] for s in scores])) for when in scores[0]}
    return {"algorithm": name, **rates, **means}


def main() -> None:
    """Try the whole grid, print and keep it."""
    grid = []
    for name in ("fedavg", "per-fedavg"):
        for inner_lr, local_lr in itertools.product(INNER_LR, LOCAL_LR):
            grid.append(point(name, inner_lr, local_lr))
            print(grid[-1], flush=True)
    best = {}
    for label, (name, when) in METHODS.items():
        good = [row for row in grid if row["algorithm"] == name and "diverged" not in row]
        best[label] = {**max(good, key=lambda row: row[when]), "tuned_for": when}
    result = {"seeds": SEEDS, "local_steps": LOCAL_STEPS, "best": best, "grid": grid}
    path = Path(__file__).with_name("tuning.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
