"""P Table 1: FedAvg with an update at test time against Per-FedAvg, six settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.seed_statistics import (
    Gap,
    Mean,
    Measure,
    after,
    count_diverged,
    describe_seeds,
    gap,
    make_claim,
    markdown_table,
    mean,
    on_test,
    records_of_cell,
)
from studies.settings import METHODS, NETWORK, algorithm
from studies.small_versions import make_piece
from studies.study import Claim, Piece, Record, Section


@dataclass(frozen=True)
class Row:
    """One setting, and the accuracies in percent (± 95 %) that the paper reports for it."""

    key: str
    source: str
    local_steps: int
    inner_lr: float
    paper: Mapping[str, tuple[float, float]]
    different: bool = False

    @property
    def title(self) -> str:
        """As in the paper's table."""
        name = {"mnist": "MNIST", "cifar10": "CIFAR-10"}[self.source]
        end = ", different heterogeneity" if self.different else ""
        return f"{name}, τ = {self.local_steps}, α = {self.inner_lr:g}{end}"


def _paper(*cells: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return dict(zip(("fedavg", "first-order", "hessian-free"), cells, strict=True))


ROWS = (
    Row("mnist-10", "mnist", 10, 0.01, _paper((75.96, 0.02), (78.00, 0.02), (79.85, 0.02))),
    Row("mnist-4", "mnist", 4, 0.01, _paper((60.18, 0.02), (64.55, 0.02), (70.94, 0.03))),
    Row("cifar-10", "cifar10", 10, 0.001, _paper((40.49, 0.07), (46.98, 0.1), (50.44, 0.15))),
    Row("cifar-4", "cifar10", 4, 0.001, _paper((38.38, 0.07), (34.04, 0.08), (43.73, 0.11))),
    Row("cifar-4-alpha", "cifar10", 4, 0.01, _paper((35.97, 0.17), (25.32, 0.18), (46.32, 0.12))),
    Row(
        "cifar-4-different", "cifar10", 4, 0.01,
        _paper((58.59, 0.11), (37.71, 0.23), (71.25, 0.05)), different=True,
    ),
)  # fmt: skip
"""P Table 1; n = 50, r = 0.2, K = 1000, D = D′ = 40, β = 0.001."""

IMAGES = {"mnist": {"a": 196, "a_test": 32}, "cifar10": {"a": 68, "a_test": 34}}
"""Images per class. The paper does not give a_test; this is the most its design allows."""


def setting(row: Row, method: str, seed: int) -> dict[str, Any]:
    """Return the experiment of one cell."""
    return {
        "label": METHODS[method],
        "seed": seed,
        "rounds": 1000,
        "participation": 0.2,
        "data": {
            "source": row.source, "partition": "class-groups", "clients": 50,
            "different": row.different, **IMAGES[row.source],
        },
        "model": NETWORK,
        "algorithm": algorithm(
            method, inner_lr=row.inner_lr, local_lr=0.001, local_steps=row.local_steps,
            batch_size=40,
        ),
        "evaluation": {"every": 100, "adapt_steps": 1},
    }  # fmt: skip


class Table1:
    """The study."""

    name = "per-fedavg-table1"
    title = "Per-FedAvg, Table 1"
    summary = "FedAvg + update against Per-FedAvg: MNIST and CIFAR-10, six settings"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return every row, method and seed; quick: three rows, which share compiled programs."""
        rows = ROWS[3:] if quick else ROWS
        return [
            make_piece(f"{row.key}/{method}", setting(row, method, seed), quick, on_test=True)
            for row in rows
            for method in METHODS
            for seed in seeds
        ]

    def section(self, records: Sequence[Record]) -> Section:
        """Show our numbers and the paper's, differences, and accuracies adapted on test data."""
        rows = [row for row in ROWS if any(r["cell"].startswith(f"{row.key}/") for r in records)]
        text = TEXT.format(
            seeds=describe_seeds(records),
            accuracies=_accuracies(records, rows, after),
            differences=markdown_table(
                ["setting", *(title for title, _, _ in PAIRS)],
                [[row.title, *(_gap(records, row, a, b) for _, a, b in PAIRS)] for row in rows],
            ),
            on_test=_accuracies(records, rows, on_test),
            before=_accuracies(records, rows, before),
            growth=markdown_table(
                ["setting, method", *(f"round {k}" for k in MOMENTS)],
                [
                    [f"{row.title}, {METHODS[method]}", *_over_time(records, row, method)]
                    for row in rows
                    for method in ("fedavg", "hessian-free")
                ],
            ),
        )
        return Section(text, claims=_claims(records, rows))


PAIRS = (
    ("FO − FedAvg", "first-order", "fedavg"),
    ("HF − FedAvg", "hessian-free", "fedavg"),
    ("exact − FedAvg", "exact", "fedavg"),
    ("HF − FO", "hessian-free", "first-order"),
    ("exact − HF", "exact", "hessian-free"),
)
CLOSE = 1.0
"""Two methods count as equal if their difference is at most this many percentage points."""

TEXT = """\
n = 50 clients, 10 of them per round, K = 1000 rounds, batches of 40, β = 0.001. Accuracy in percent
after one adaptation step, mean over clients, then mean ± 95 % interval over {seeds} (each with its
own partition, initial model and random draws). The paper's numbers are in brackets. Clients adapt
on their training split and are scored on held-out images; the paper adapted on the test data.

{accuracies}

Differences, paired by seed, in percentage points:

{differences}

⚠ The same models **adapted on the test data**, as in the paper. This does not estimate accuracy on
unseen data:

{on_test}

Before any adaptation:

{before}

During training, also after one adaptation step; round 0 is the untrained network:

{growth}
"""
MOMENTS = (0, 100, 300, 1000)


def before(record: Record) -> float:
    """Return the accuracy of the shared model before adaptation."""
    return after(record, 0)


def _accuracies(records: Sequence[Record], rows: Sequence[Row], measure: Measure) -> str:
    lines = [
        [row.title, *(_format_cell(records, row, m, measure) for m in METHODS)] for row in rows
    ]
    return markdown_table(["setting", *METHODS.values()], lines)


def _format_cell(records: Sequence[Record], row: Row, method: str, measure: Measure) -> str:
    """Return our number, with the paper's if it reports one."""
    cell = f"{row.key}/{method}"
    ours, lost = mean(records, cell, measure), count_diverged(records, cell)
    text = "–" if ours is None else str(ours)
    if lost:
        text += f" ({lost} diverged)"
    paper = row.paper.get(method)
    return text if paper is None or measure is before else f"{text} ({paper[0]:.1f})"


def _over_time(records: Sequence[Record], row: Row, method: str) -> list[Mean | str]:
    """Return the accuracy after one step at each of ``MOMENTS``."""

    def at(record: Record, moment: int) -> float | None:
        found = [e["after"] for e in record["training"] if e["round"] == moment]
        return 100 * found[0] if found else None

    cell = records_of_cell(records, f"{row.key}/{method}").values()
    columns = [[at(record, moment) for record in cell] for moment in MOMENTS]
    kept = [[value for value in column if value is not None] for column in columns]
    return [Mean(values) if values else "–" for values in kept]


def _gap(records: Sequence[Record], row: Row, one: str, other: str) -> Gap | str:
    return gap(records, f"{row.key}/{one}", f"{row.key}/{other}") or "–"


def _claims(records: Sequence[Record], rows: Sequence[Row]) -> list[Claim]:
    def parts(one: str, other: str, judge: Callable[[Gap], str], chosen: Sequence[Row]) -> Any:
        found = [(row, _gap(records, row, one, other)) for row in chosen]
        return [(judge(g), f"{row.title}: {g}") for row, g in found if isinstance(g, Gap)]

    small = [row for row in rows if row.inner_lr <= 0.001]
    return [
        make_claim(
            "Per-FedAvg (HF) is at least as good as FedAvg + update, in every setting of Table 1",
            parts("hessian-free", "fedavg", Gap.above, rows),
        ),
        make_claim(
            f"FO and HF are equal for small α (α = 0.001, within {CLOSE:g} point)",
            parts("hessian-free", "first-order", lambda g: g.within(CLOSE), small),
        ),
        make_claim("the gap grows as clients differ more", _growth(records)),
        make_claim(
            "every cell of Table 1 reaches the paper's accuracy", _compare_with_paper(records, rows)
        ),
    ]


def _growth(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return HF − FedAvg where the halves of the clients share no class, minus where they do.

    In points, and as a share of FedAvg's errors: where clients differ more, all accuracies are
    higher and there is less to gain.
    """

    def gains(key: str) -> dict[int, tuple[float, float]]:
        ours, base = (records_of_cell(records, f"{key}/{m}") for m in ("hessian-free", "fedavg"))
        found = {}
        for seed in ours.keys() & base.keys():
            gain, errors = after(ours[seed]) - after(base[seed]), 100 - after(base[seed])
            found[seed] = (gain, 100 * gain / errors)
        return found

    more, less = gains("cifar-4-different"), gains("cifar-4-alpha")
    seeds = sorted(more.keys() & less.keys())
    if not seeds:
        return []
    text = "CIFAR-10, τ = 4, α = 0.01, HF − FedAvg, different heterogeneity minus usual"
    parts = []
    for place, unit in enumerate(("points", "percent of FedAvg's errors")):
        growth = Gap([more[seed][place] - less[seed][place] for seed in seeds])
        parts.append((growth.above(), f"{text}: {growth} {unit}"))
    return parts


def _compare_with_paper(records: Sequence[Record], rows: Sequence[Row]) -> list[tuple[str, str]]:
    found = []
    for row in rows:
        for method, (value, _) in row.paper.items():
            ours = mean(records, f"{row.key}/{method}")
            if ours is not None:
                judged = Gap([v - value for v in ours.values]).above()
                found.append((judged, f"{row.title}, {METHODS[method]}: {ours} ({value:.1f})"))
    return found
