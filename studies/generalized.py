"""G Figure 1: more adaptation steps inside the meta-loss, on clients with about one class each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from studies.numbers import after, claim, gap, markdown, mean, seeds_of
from studies.quick import piece
from studies.seed_curves import curve_panels, label_styles, mean_curve, over_rounds
from studies.settings import NETWORK, algorithm
from studies.study import Claim, Piece, Record, Section

FIGURE = (0, 1, 3)
"""ν of FedAvg, Per-FedAvg and the paper's own curve."""
SURFACE = (0, 1, 2, 3, 5, 10)
"""ν in training and at test time of our table beyond the paper."""
SURFACE_SEEDS = 3
"""The surface costs as much as all the rest: fewer seeds."""
ADAPT_STEPS = 3
ROUNDS = 500
"""The paper gives no number; its ordering shows long before."""


def label(inner_steps: int, method: str = "exact") -> str:
    """A curve's name."""
    if inner_steps == 0:
        return "FedAvg (ν = 0)"
    return f"ν = {inner_steps}" + ("" if method == "exact" else f", {method}")


def cell(inner_steps: int, method: str = "exact") -> str:
    """A run's name."""
    return f"nu{inner_steps}/{method}"


def setting(inner_steps: int, method: str, seed: int) -> dict[str, Any]:
    """One curve."""
    options: dict[str, Any] = {"inner_steps": inner_steps} if inner_steps else {}
    return {
        "label": label(inner_steps, method),
        "seed": seed,
        "rounds": ROUNDS,
        "participation": 0.2,
        "data": {
            "source": "cifar10", "partition": "dirichlet", "clients": 50, "alpha": 0.01,
            "examples": 1000, "test_fraction": 0.2,
        },
        "model": NETWORK,
        "algorithm": algorithm(
            method if inner_steps else "fedavg", inner_lr=0.01, local_lr=0.001, local_steps=4,
            batch_size=40, **options,
        ),
        "evaluation": {"every": 25, "adapt_steps": ADAPT_STEPS, "curve_steps": max(SURFACE)},
    }  # fmt: skip


class Generalized:
    """The study."""

    name = "generalized-fig1"
    title = "The generalized framework, Figure 1"
    summary = "CIFAR-10, Dirichlet 0.01: ν = 3 against ν = 1 and FedAvg; ν in training × at test"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """The figure's curves, two approximations at ν = 3, and the rest of the surface.

        Quick: without the rest, whose long programs take long to compile.
        """
        wanted = [(nu, "exact") for nu in FIGURE]
        wanted += [(ADAPT_STEPS, "first-order"), (ADAPT_STEPS, "hessian-free")]
        runs = [(nu, method, seed) for nu, method in wanted for seed in seeds]
        more = [] if quick else [nu for nu in SURFACE if nu not in FIGURE]
        runs += [(nu, "exact", seed) for nu in more for seed in list(seeds)[:SURFACE_SEEDS]]
        return [
            piece(cell(nu, method), setting(nu, method, seed), quick) for nu, method, seed in runs
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """The figure, the accuracies in the end, the surface and the approximations."""
        runs = [(nu, "exact") for nu in FIGURE]
        runs += [(ADAPT_STEPS, "first-order"), (ADAPT_STEPS, "hessian-free")]
        there = [run for run in runs if mean(records, cell(*run)) is not None]
        styles = label_styles([label(*run) for run in runs])
        panels = curve_panels(
            [
                (title, x, [mean_curve(records, cell(*run), styles[label(*run)], over_rounds(by=by))
                            for run in there])
                for title, x, by in (
                    ("by rounds", "round", "round"),
                    ("by work", "gradient evaluations", "gradient_evaluations"),
                )
            ],
            y_title=f"accuracy after {ADAPT_STEPS} steps (%)",
        )  # fmt: skip
        rows = [
            [label(*run), mean(records, cell(*run)), mean(records, cell(*run), speed),
             gap(records, cell(*run), cell(0)) or "–"]
            for run in there
        ]  # fmt: skip
        head = ["training", "in the end", "mean over all rounds", "in the end, minus FedAvg"]
        text = TEXT.format(
            steps=ADAPT_STEPS,
            rounds=ROUNDS,
            seeds=seeds_of([r for r in records if r["cell"] in [cell(*run) for run in there]]),
            table=markdown(head, rows),
            surface=_surface(records),
            surface_seeds=SURFACE_SEEDS,
        )
        return Section(text, {"curves": panels}, _claims(records))


TEXT = """\
N = 50 agents, r = 0.2, α = 0.01, β = 0.001, τ = 4, batches of 40; every agent has 1000 images by
a class distribution from Dir(0.01), 800 to train on and 200 to be scored on; K = {rounds} (the
paper gives no number). When a class has run out its images are dealt again; an image is then held
out for all or for none. All methods take {steps} adaptation steps at test time. Accuracy in
percent, mean ± 95 % interval over {seeds}; the paper has curves only.

{table}

![Accuracy over rounds and over gradient evaluations](curves)

Beyond the paper: steps in training (down) against steps at test time (across), exact,
{surface_seeds} seeds or more:

{surface}
"""


def speed(record: Record) -> float:
    """Mean accuracy over all evaluated rounds: high for what is good early."""
    return 100 * float(np.mean([entry["after"] for entry in record["training"]]))


def _surface(records: Sequence[Record]) -> str:
    head = ["ν in training", *map(str, SURFACE)]
    rows = [
        [nu, *(mean(records, cell(nu), partial(after, steps=steps)) for steps in SURFACE)]
        for nu in SURFACE
        if mean(records, cell(nu)) is not None
    ]
    return markdown(head, rows)


def _claims(records: Sequence[Record]) -> list[Claim]:
    found = []
    for one, other in ((ADAPT_STEPS, 1), (1, 0)):
        for what, measure in (("more accurate in the end", after), ("faster", speed)):
            difference = gap(records, cell(one), cell(other), measure)
            text = f"ν = {one} is {what} than {'FedAvg' if other == 0 else f'ν = {other}'}"
            parts = [] if difference is None else [(difference.above(), f"{difference} points")]
            found.append(claim(f"{text} (G, Figure 1)", parts))
    return found
