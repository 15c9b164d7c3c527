"""P Appendix I: Per-FedAvg against FedAvg + ARUBA, every method tuned with the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.seed_curves import curve_panels, label_styles, mean_curve, over_steps
from studies.seed_statistics import (
    after,
    describe_seeds,
    gap,
    make_claim,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import METHODS, PLAIN, algorithm
from studies.study import Claim, Piece, Record, Section
from studies.table1 import ROWS, Table1
from studies.table1 import setting as table_setting
from studies.tuning import Contender, grid

ROW = next(row for row in ROWS if row.key == "cifar-4")
PAPER = {"first-order": (34.04, 0.08), "aruba": (36.74, 0.1), "hessian-free": (43.73, 0.11)}
STEPS = grid(inner_lr=[0.001, 0.01], local_lr=[0.001, 0.003, 0.01])
RATES = grid(local_lr=[0.001, 0.003, 0.01], zeta=[0.01, 0.1])
PLUS = [0.1, 1.0, 10.0]
PLUS_STEPS = 10
"""ARUBA++ equals ARUBA after one step; c is chosen by the accuracy after this many."""
COMMON: dict[str, Any] = {"local_steps": ROW.local_steps, "batch_size": 40}


def _averaging_contender(method: str) -> Contender:
    return Contender(method, METHODS[method], algorithm(method, **COMMON), STEPS)


ARUBA = Contender("aruba", "FedAvg + ARUBA", {"name": "aruba", **PLAIN, **COMMON}, RATES)
CONTENDERS = [
    _averaging_contender("fedavg"),
    _averaging_contender("first-order"),
    _averaging_contender("hessian-free"),
    ARUBA,
]


def tune_plus(done: Sequence[Record], count: int | None = None) -> Contender | None:
    """Return ARUBA++ with ARUBA's best options and trials for c; None until ARUBA is tuned."""
    best = ARUBA.best(done, count)
    if best is None:
        return None
    tries = [{**best, "plus": c} for c in PLUS]
    name = {"name": "aruba", **PLAIN, **COMMON}
    return Contender("aruba-plus", "FedAvg + ARUBA++", name, tries, measured_after=PLUS_STEPS)


class Aruba:
    """The study."""

    name = "per-fedavg-aruba"
    title = "Per-FedAvg, Appendix I: comparison with ARUBA"
    summary = "CIFAR-10, τ = 4: FedAvg, ARUBA, ARUBA++ and Per-FedAvg, tuned with equal budgets"
    reads: Sequence[str] = (Table1.name,)

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return the trials of every method, then the best of each with every seed."""
        table = table_setting(ROW, "fedavg", 0)
        more = tune_plus(done, 2 if quick else None)
        contenders = [*CONTENDERS, more] if more is not None else CONTENDERS
        return [
            piece
            for contender in contenders
            for piece in contender.pieces(table, seeds, quick, done)
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Show accuracies with the paper's, the tuned options, and the effect of more steps."""
        labels = {**{c.key: c.label for c in CONTENDERS}, "aruba-plus": "FedAvg + ARUBA++"}
        there = {key: label for key, label in labels.items() if mean(records, key) is not None}
        if not there:
            return Section("The trials are not finished yet.")
        styles = label_styles(list(labels.values()))
        rows = [
            [label, _options(records, key), mean(records, key), _paper(key),
             mean(records, key, lambda r: after(r, PLUS_STEPS))]
            for key, label in there.items()
        ]  # fmt: skip
        head = ["method", "best options", "after one step", "paper", f"after {PLUS_STEPS} steps"]
        table = markdown_table(head, rows).replace("---: ", "--- ", 1)
        lines = [
            mean_curve(records, key, styles[label], over_steps()) for key, label in there.items()
        ]
        panels = curve_panels([("", "adaptation steps", lines)], y_title="accuracy (%)")
        text = TEXT.format(
            seeds=describe_seeds([r for r in records if r["cell"] in there]),
            table=table,
            untuned=", ".join(
                f"{METHODS[method]} {found}"
                for method in METHODS
                if (found := mean(records, _untuned(method))) is not None
            )
            or "not run yet",
        )
        return Section(text, {"steps": panels}, _claims(records))


TEXT = """\
CIFAR-10, τ = 4, K = 1000. Every method has six trials (step sizes α ∈ {{0.001, 0.01}} and β ∈
{{0.001, 0.003, 0.01}}; for ARUBA the first step size and ζ), on training data only and with a
separate seed. ARUBA++ starts from ARUBA's best options and has three more trials for c, scored
after ten steps, because after one step it equals ARUBA. Accuracy in percent, mean ± 95 % interval
over {seeds}:

{table}

The paper tuned only ARUBA and used α = β = 0.001 for the others. With these values they reach
after one step: {untuned} (from the runs of Table 1).

![Accuracy after 0 to 10 adaptation steps](steps)
"""


def _options(records: Sequence[Record], key: str) -> str:
    """Return the options that tuning chose, as stored with the runs."""
    config = next(iter(records_of_cell(records, key).values()))["config"]["algorithm"]
    names = {"inner_lr": "α", "local_lr": "β", "zeta": "ζ", "plus": "c"}
    shown = [f"{sign} = {config[name]:g}" for name, sign in names.items() if config.get(name)]
    return ", ".join(shown)


def _paper(key: str) -> str:
    return f"{PAPER[key][0]:.1f} ± {PAPER[key][1]:g}" if key in PAPER else "–"


def _untuned(method: str) -> str:
    """Return the cell of Table 1 with the paper's step sizes."""
    return f"{Table1.name}:{ROW.key}/{method}"


def _claims(records: Sequence[Record]) -> list[Claim]:
    found = []
    for how, cell in (("all tuned", str), ("only ARUBA tuned, as in the paper", _untuned)):
        for text, one, other in (
            ("FedAvg + ARUBA is better than Per-FedAvg (FO)", "aruba", cell("first-order")),
            ("Per-FedAvg (HF) is better than FedAvg + ARUBA", cell("hessian-free"), "aruba"),
        ):
            difference = gap(records, one, other)
            if difference is not None:
                parts = [(difference.above(), f"after one step: {difference}")]
                found.append(make_claim(f"{text}, {how}", parts))
    return found
