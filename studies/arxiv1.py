"""P, first arXiv version, Figure 1: ten users, MNIST, four panels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from headstart.report.charts import Line
from studies.numbers import Gap, after, claim, gap, markdown, mean, of_cell, seeds_of
from studies.quick import piece
from studies.seed_curves import curve_panels, label_styles, mean_curve, over_rounds
from studies.settings import METHODS, NETWORK, algorithm
from studies.study import Piece, Record, Section

PANELS = tuple(itertools.product((0.2, 0.4), (5, 10)))
"""(r, τ), in the order of the figure."""


def cell(participation: float, local_steps: int, method: str) -> str:
    """A curve's name."""
    return f"r{participation:g}-tau{local_steps}/{method}"


def setting(participation: float, local_steps: int, method: str, seed: int) -> dict[str, Any]:
    """The experiment of one curve.

    The paper does not say how many images a user has: as many as its design allows.
    """
    return {
        "label": METHODS[method],
        "seed": seed,
        "rounds": 1000,
        "participation": participation,
        "data": {"source": "mnist", "partition": "class-groups", "clients": 10},
        "model": NETWORK,
        "algorithm": algorithm(
            method, inner_lr=0.01, local_lr=0.001, local_steps=local_steps, batch_size=50
        ),
        "evaluation": {"every": 50, "adapt_steps": 1},
    }


class FirstVersion:
    """The study."""

    name = "per-fedavg-arxiv1"
    title = "Per-FedAvg, first arXiv version, Figure 1"
    summary = "ten users with MNIST: FedAvg, FedAvg + update and Per-FedAvg over the rounds"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Every panel with FedAvg (scored before and after the update) and Per-FedAvg.

        Quick: two panels.
        """
        panels = PANELS[::2] if quick else PANELS
        return [
            piece(cell(r, tau, method), setting(r, tau, method, seed), quick)
            for r, tau in panels
            for method in ("fedavg", "first-order", "exact")
            for seed in seeds
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Four panels, the accuracies in the end, and the paper's two statements."""
        there = [p for p in PANELS if mean(records, cell(*p, "fedavg")) is not None]
        rows, first, second = [], [], []
        for panel in there:
            title = _title(*panel)
            plain, per = cell(*panel, "fedavg"), cell(*panel, "first-order")
            rows.append([
                title, mean(records, plain, _before), mean(records, plain),
                mean(records, per) or "–", mean(records, cell(*panel, "exact")) or "–",
            ])  # fmt: skip
            update = Gap([after(r) - _before(r) for r in of_cell(records, plain).values()])
            first.append((update.above(), f"{title}: {update}"))
            better = gap(records, per, plain)
            if better is not None:
                second.append((better.above(), f"{title}: {better}"))
        head = ["panel", *LABELS]
        claims = [
            claim("FedAvg gains from one update at test time, in all four panels", first),
            claim("Per-FedAvg (FO) is better than FedAvg + update, in all four panels", second),
        ]
        panels = curve_panels(
            [(_title(*panel), "round", _lines(records, panel)) for panel in there],
            y_title="accuracy (%)",
        )
        return Section(
            TEXT.format(seeds=seeds_of(records), table=markdown(head, rows)),
            {"panels": panels},
            claims,
        )


LABELS = ("FedAvg", "FedAvg + update", "Per-FedAvg (FO)", "Per-FedAvg (exact)")
TEXT = """\
n = 10 users, K = 1000 rounds, batches of 50, α = 0.01, β = 0.001. The paper has curves only, of
one run; the last column is not in it. It does not say how many images a user has: here as many
as its design allows. Accuracy in percent in the end, mean ± 95 % interval over {seeds}:

{table}

![Accuracy over the rounds in four panels](panels)
"""


def _title(participation: float, local_steps: int) -> str:
    return f"τ = {local_steps}, r = {participation:g}"


def _before(record: Record) -> float:
    return after(record, 0)


def _lines(records: Sequence[Record], panel: tuple[float, int]) -> list[Line | None]:
    styles = label_styles(LABELS)
    methods = ("fedavg", "fedavg", "first-order", "exact")
    moments = ("before", "after", "after", "after")
    return [
        mean_curve(records, cell(*panel, method), styles[label], over_rounds(when))
        for label, method, when in zip(LABELS, methods, moments, strict=True)
    ]
