"""G Figure 1: more adaptation steps in the meta-loss, on clients with about one class each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from studies.seed_curves import curve_panels, label_styles, mean_curve, over_rounds
from studies.seed_statistics import after, describe_seeds, gap, make_claim, markdown_table, mean
from studies.settings import NETWORK, algorithm
from studies.small_versions import make_piece
from studies.study import Claim, Piece, Record, Section

FIGURE = (0, 1, 3)
"""ν of FedAvg, Per-FedAvg and the paper's own curve."""
SURFACE = (0, 1, 2, 3, 5, 10)
"""ν in training and at test time in our additional table."""
SURFACE_SEEDS = 3
"""Fewer seeds, because the surface costs as much as everything else."""
ADAPT_STEPS = 3
ROUNDS = 500
"""The paper gives no number; the order of its curves shows much earlier."""


def label(inner_steps: int, method: str = "exact") -> str:
    """Return a curve's label."""
    if inner_steps == 0:
        return "FedAvg (ν = 0)"
    return f"ν = {inner_steps}" + ("" if method == "exact" else f", {method}")


def cell(inner_steps: int, method: str = "exact") -> str:
    """Return the name of a cell."""
    return f"nu{inner_steps}/{method}"


def setting(inner_steps: int, method: str, seed: int) -> dict[str, Any]:
    """Return the experiment of one curve."""
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
        """List the figure's curves, two approximations at ν = 3, and the rest of the surface.

        Quick: without the rest, whose long programs take long to compile.
        """
        wanted = [(nu, "exact") for nu in FIGURE]
        wanted += [(ADAPT_STEPS, "first-order"), (ADAPT_STEPS, "hessian-free")]
        runs = [(nu, method, seed) for nu, method in wanted for seed in seeds]
        more = [] if quick else [nu for nu in SURFACE if nu not in FIGURE]
        runs += [(nu, "exact", seed) for nu in more for seed in list(seeds)[:SURFACE_SEEDS]]
        return [
            make_piece(cell(nu, method), setting(nu, method, seed), quick)
            for nu, method, seed in runs
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Show the figure, the final accuracies, the surface and the approximations."""
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
            [label(*run), mean(records, cell(*run)), mean(records, cell(*run), mean_over_rounds),
             gap(records, cell(*run), cell(0)) or "–"]
            for run in there
        ]  # fmt: skip
        head = ["training", "final", "mean over all rounds", "final, minus FedAvg"]
        text = TEXT.format(
            steps=ADAPT_STEPS,
            rounds=ROUNDS,
            seeds=describe_seeds(
                [r for r in records if r["cell"] in [cell(*run) for run in there]]
            ),
            table=markdown_table(head, rows),
            surface=_surface(records),
            surface_seeds=SURFACE_SEEDS,
        )
        return Section(text, {"curves": panels}, _claims(records))


TEXT = """\
N = 50 agents, r = 0.2, α = 0.01, β = 0.001, τ = 4, batches of 40, K = {rounds} (the paper gives no
number). Every agent has 1000 images with class shares from Dir(0.01): 800 for training and 200 for
testing. When a class has no images left, its images are assigned again; an image is then held out
at every agent or at none. All methods take {steps} adaptation steps at test time. Accuracy in
percent, mean ± 95 % interval over {seeds}; the paper shows only curves.

{table}

![Accuracy over rounds and over gradient evaluations](curves)

Beyond the paper: steps in training (rows) against steps at test time (columns), exact method,
{surface_seeds} seeds or more:

{surface}
"""


def mean_over_rounds(record: Record) -> float:
    """Return the mean accuracy over all evaluated rounds: high for fast learning."""
    return 100 * float(np.mean([entry["after"] for entry in record["training"]]))


def _surface(records: Sequence[Record]) -> str:
    head = ["ν in training", *map(str, SURFACE)]
    rows = [
        [nu, *(mean(records, cell(nu), partial(after, steps=steps)) for steps in SURFACE)]
        for nu in SURFACE
        if mean(records, cell(nu)) is not None
    ]
    return markdown_table(head, rows)


def _claims(records: Sequence[Record]) -> list[Claim]:
    found = []
    for one, other in ((ADAPT_STEPS, 1), (1, 0)):
        for what, measure in (("more accurate at the end", after), ("faster", mean_over_rounds)):
            difference = gap(records, cell(one), cell(other), measure)
            text = f"ν = {one} is {what} than {'FedAvg' if other == 0 else f'ν = {other}'}"
            parts = [] if difference is None else [(difference.above(), f"{difference} points")]
            found.append(make_claim(f"{text} (G, Figure 1)", parts))
    return found
