"""Tune the demo's step sizes: the same grid for every method, no held-out example looked at.

    python examples/demo/tune.py            (a few minutes)

Each point of the grid is trained on the known clients' training splits, split again, with seeds
the demo does not use; new clients and held-out examples take no part. The result is written to
``tuning.json`` beside this file; the demo's experiment files carry the best points.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

import headstart as hs

HERE = Path(__file__).parent
SEEDS = (1000, 1001, 1002)
INNER_LR = (0.03, 0.1, 0.3)
LOCAL_LR = (0.02, 0.05, 0.1, 0.2)
ADAPT_STEPS = 3
METHODS: dict[str, tuple[Any, str]] = {
    "FedAvg": (hs.FedAvg, "before"),
    "FedAvg + update": (hs.FedAvg, "after"),
    "Per-FedAvg": (lambda **rates: hs.PerFedAvg(inner_steps=ADAPT_STEPS, **rates), "after"),
}


def accuracy(algorithm: hs.algorithms.Algorithm, seed: int) -> dict[str, float]:
    """Mean accuracy before and after adaptation on the part of the training data kept aside."""
    split = hs.data.load("digits").split(hs.data.class_groups(clients=20), new_clients=4, seed=seed)
    run = hs.train(
        split.for_tuning(),
        hs.models.mlp([80, 60]),
        algorithm,
        rounds=200,
        participation=0.5,
        seed=seed,
        evaluation=hs.EvaluationOptions(every=200, adapt_steps=ADAPT_STEPS, curve_steps=3),
    )
    return {when: run.summary["accuracy"][when]["mean"] for when in ("before", "after")}


def main() -> None:
    """Try the whole grid, print and keep it."""
    table = []
    for kind in (hs.FedAvg, METHODS["Per-FedAvg"][0]):
        for inner_lr, local_lr in itertools.product(INNER_LR, LOCAL_LR):
            algorithm = kind(inner_lr=inner_lr, local_lr=local_lr, batch_size=20)
            try:
                scores = [accuracy(algorithm, seed) for seed in SEEDS]
            except hs.HeadstartError as error:
                print(f"{algorithm.name} {inner_lr} {local_lr}: {error}", flush=True)
                continue
            means = {when: float(np.mean([s[when] for s in scores])) for when in scores[0]}
            row = {"algorithm": algorithm.name, "inner_lr": inner_lr, "local_lr": local_lr, **means}
            table.append(row)
            print(row, flush=True)
    best = {}
    for label, (kind, when) in METHODS.items():
        rows = [row for row in table if row["algorithm"] == kind().name]
        best[label] = {**max(rows, key=lambda row: row[when]), "tuned_for": when}
    result = {"seeds": SEEDS, "adapt_steps": ADAPT_STEPS, "grid": table, "best": best}
    (HERE / "tuning.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()
