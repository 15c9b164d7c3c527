"""Tune the demo's step sizes: the same grid for every method, without held-out examples.

    python examples/demo/tune.py            (minutes; --local-steps 10 for the other table)

Each point of the grid is trained on the known clients' training splits, split again, with seeds
that the demo does not use. New clients and held-out examples are not used. The grid and the best
points are written to ``tuning.json``; the experiment files contain the best points.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import headstart as hs

SEEDS = (1000, 1001, 1002)
INNER_LR = (0.1, 0.2, 0.4, 0.8)
LOCAL_LR = {1: (0.1, 0.2, 0.4, 0.8, 1.6), 10: (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)}
ADAPT_STEPS = 3
ROUNDS = {1: 400, 10: 200}
METHODS = {
    "FedAvg": ("fedavg", "before"),
    "FedAvg + update": ("fedavg", "after"),
    "Per-FedAvg": ("per-fedavg", "after"),
}
"""Algorithm, and what it is tuned for."""


def algorithm(name: str, **options: Any) -> hs.algorithms.Algorithm:
    """Return FedAvg, or Per-FedAvg with as many inner steps as adaptation steps."""
    if name == "fedavg":
        return hs.FedAvg(**options)
    return hs.PerFedAvg(inner_steps=ADAPT_STEPS, **options)


def accuracy(method: hs.algorithms.Algorithm, rounds: int, seed: int) -> dict[str, float]:
    """Return mean accuracies before and after adaptation, on held-out training data."""
    split = hs.data.load("digits").split(hs.data.iid(clients=20), new_clients=4, seed=seed)
    run = hs.train(
        split.with_own_labels(seed).for_tuning(),
        hs.models.mlp([80, 60]),
        method,
        rounds=rounds,
        participation=0.5,
        seed=seed,
        evaluation=hs.EvaluationOptions(every=rounds, adapt_steps=ADAPT_STEPS, curve_steps=3),
    )
    return {when: getattr(run.summary.known["accuracy"], when).mean for when in ("before", "after")}


def point(name: str, inner_lr: float, local_lr: float, local_steps: int) -> dict[str, Any]:
    """Train one point of the grid; a point that diverges says so and has no accuracy."""
    rates = {"inner_lr": inner_lr, "local_lr": local_lr}
    method = algorithm(name, **rates, local_steps=local_steps, batch_size=40)
    try:
        scores = [accuracy(method, ROUNDS[local_steps], seed) for seed in SEEDS]
    except hs.HeadstartError as error:
        return {"algorithm": name, **rates, "diverged": str(error)}
    means = {when: float(np.mean([s[when] for s in scores])) for when in scores[0]}
    return {"algorithm": name, **rates, **means}


def main() -> None:
    """Try the whole grid, print and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--local-steps", type=int, choices=sorted(ROUNDS), default=1)
    local_steps = parser.parse_args().local_steps
    grid = []
    for name in ("fedavg", "per-fedavg"):
        for inner_lr, local_lr in itertools.product(INNER_LR, LOCAL_LR[local_steps]):
            grid.append(point(name, inner_lr, local_lr, local_steps))
            print(grid[-1], flush=True)
    best = {}
    for label, (name, when) in METHODS.items():
        good = [row for row in grid if row["algorithm"] == name and "diverged" not in row]
        best[label] = {**max(good, key=lambda row: row[when]), "tuned_for": when}
    result = {"seeds": SEEDS, "local_steps": local_steps, "best": best, "grid": grid}
    folder = "demo" if local_steps == 1 else "ten-local-steps"
    path = Path(__file__).parent.parent / folder / "tuning.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
