"""P, first arXiv version, Figure 1: ten users, MNIST, four panels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from headstart.report import Line
from studies.seed_curves import curve_panels, label_styles, mean_curve, over_rounds
from studies.seed_statistics import (
    Gap,
    after,
    describe_seeds,
    gap,
    make_claim,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import METHODS, NETWORK, algorithm
from studies.small_versions import make_piece
from studies.study import Piece, Record, Section

PANELS = tuple(itertools.product((0.2, 0.4), (5, 10)))
"""(r, τ), in the order of the figure."""


def cell(participation: float, local_steps: int, method: str) -> str:
    """Return a curve's name."""
    return f"r{participation:g}-tau{local_steps}/{method}"


def setting(participation: float, local_steps: int, method: str, seed: int) -> dict[str, Any]:
    """Return the experiment of one curve.

    The paper does not give the number of images of a user: we use as many as its design allows.
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
    summary = "ten users with MNIST: accuracy of FedAvg, FedAvg + update and Per-FedAvg by round"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return every panel with FedAvg (scored before and after the update) and Per-FedAvg.

        Quick: two panels.
        """
        panels = PANELS[::2] if quick else PANELS
        return [
            make_piece(cell(r, tau, method), setting(r, tau, method, seed), quick)
            for r, tau in panels
            for method in ("fedavg", "first-order", "exact")
            for seed in seeds
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Show four panels, the final accuracies, and the paper's two statements."""
        there = [p for p in PANELS if mean(records, cell(*p, "fedavg")) is not None]
        rows, first, second = [], [], []
        for panel in there:
            title = _title(*panel)
            plain, per = cell(*panel, "fedavg"), cell(*panel, "first-order")
            rows.append([
                title, mean(records, plain, _before), mean(records, plain),
                mean(records, per) or "–", mean(records, cell(*panel, "exact")) or "–",
            ])  # fmt: skip
            update = Gap([after(r) - _before(r) for r in records_of_cell(records, plain).values()])
            first.append((update.above(), f"{title}: {update}"))
            better = gap(records, per, plain)
            if better is not None:
                second.append((better.above(), f"{title}: {better}"))
        head = ["panel", *LABELS]
        claims = [
            make_claim("FedAvg improves with one update at test time, in all four panels", first),
            make_claim(
                "Per-FedAvg (FO) is better than FedAvg + update, in all four panels", second
            ),
        ]
        panels = curve_panels(
            [(_title(*panel), "round", _lines(records, panel)) for panel in there],
            y_title="accuracy (%)",
        )
        return Section(
            TEXT.format(seeds=describe_seeds(records), table=markdown_table(head, rows)),
            {"panels": panels},
            claims,
        )


LABELS = ("FedAvg", "FedAvg + update", "Per-FedAvg (FO)", "Per-FedAvg (exact)")
TEXT = """\
n = 10 users, K = 1000 rounds, batches of 50, α = 0.01, β = 0.001. The paper shows only curves of
one run, without the last column. It does not give the number of images of a user; we use as many
as its design allows. Final accuracy in percent, mean ± 95 % interval over {seeds}:

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
