"""Beyond the papers: is the recommended method ahead of the best tuned FedAvg + update?

Sixteen cells: eight data sets with two budgets of gradient evaluations each. In every cell searches
choose the best FedAvg + update, of any number of local steps, with adaptation to all examples and
on batches, and what :func:`headstart.recommend` recommends. All have the same number of candidates,
less those of which one round is too dear, and the same budget, and use training data and validation
clients alone. The winners are then trained with seeds that no search used, and scored on new
clients after three adaptation steps, paired by seed. The recommendation is compared with the better
of the two FedAvg, chosen by its result, which favours FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart._experiments.configuration import Table
from headstart._experiments.recommendation import (
    ADAM,
    FULL,
    MEAN,
    all_candidates,
    describe_method,
)
from studies.seed_statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Gap,
    Mean,
    gap,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import NETWORK
from studies.small_versions import make_piece
from studies.study import Claim, MethodSearch, Piece, Record, Section
from studies.tuning import TUNING_SEED

STEPS = 3
FIRST_SEED = 10
"""Lower seeds served to choose the candidates, so no result uses them."""
BEHIND = 0.5
"""Percentage points by which the recommended method may be behind and still count as level."""
FEDAVG, RECOMMENDED, ON_BATCHES, PAPERS = "fedavg", "recommended", "fedavg-batches", "per-fedavg"
BASELINES = (FEDAVG, ON_BATCHES)


@dataclass(frozen=True)
class Setting:
    """A data set with its model, and two budgets."""

    key: str
    title: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    participation: float
    batch_size: int
    budgets: tuple[int, int]
    seed_factor: int = 1
    """How many times the requested seeds to run: few new clients need many seeds."""
    splits: int | None = None
    """Validation splits of the search: several where clients are few."""
    shots: int | None = None
    sides: tuple[str, ...] = (FEDAVG, RECOMMENDED, ON_BATCHES)
    metric: str = "accuracy"
    max_clients: int = 200
    """The most known clients, and new clients, that are scored."""

    def table(self) -> dict[str, Any]:
        """Return the experiment; its algorithm and rounds are placeholders."""
        evaluation: dict[str, Any] = {"adapt_steps": STEPS, "max_clients": self.max_clients}
        evaluation |= {"choose_steps": False}
        if self.shots is not None:
            evaluation["shots"] = [self.shots]
        return {
            "data": dict(self.data), "model": dict(self.model), "seed": TUNING_SEED,
            "participation": self.participation, "evaluation": evaluation,
            "algorithm": {"name": "fedavg", "batch_size": self.batch_size},
        }  # fmt: skip

    def after_steps(self, record: Record) -> float:
        """Return the metric of new clients after the adaptation steps; accuracy in percent."""
        unit = 100 if self.metric == "accuracy" else 1
        if self.shots is None:
            return unit * record["new"][self.metric][STEPS]
        return unit * record["shots"][0]["new"][STEPS]


OWN = {"partition": "iid", "own_labels": True}
RELU = {"name": "mlp", "hidden": [80, 60]}
SETTINGS = [
    Setting("digits", "digits, own labels", {"source": "digits", **OWN, "clients": 20,
            "new_clients": 4}, RELU, 0.5, 40, (3_200, 32_000), seed_factor=6, splits=3,
            sides=(FEDAVG, RECOMMENDED, ON_BATCHES, PAPERS)),
    Setting("mnist-own", "MNIST, own labels", {"source": "mnist", **OWN, "clients": 600,
            "new_clients": 100}, RELU, 0.02, 40, (6_000, 60_000)),
    Setting("mnist-groups", "MNIST, class groups", {"source": "mnist", "partition": "class-groups",
            "clients": 60, "new_clients": 10}, RELU, 0.2, 40, (1_000, 10_000), seed_factor=4),
    Setting("cifar10", "CIFAR-10, Dirichlet 0.1", {"source": "cifar10", "partition": "dirichlet",
            "clients": 72, "new_clients": 12, "alpha": 0.1, "examples": 500}, RELU, 0.15, 40,
            (3_000, 30_000)),
    Setting("writers", "QMNIST by writer, 5 shots", {"source": "qmnist-writers"}, NETWORK, 0.05, 20,
            (3_000, 30_000), shots=5),
    Setting("wisdm", "WISDM by person", {"source": "wisdm", "new_clients": 9}, RELU, 0.3, 16,
            (3_000, 30_000), seed_factor=4, splits=3),
    Setting("shakespeare", "Shakespeare by role", {"source": "shakespeare", "new_clients": 89},
            {"name": "char-lstm", "hidden": 32}, 0.03, 8, (1_000, 5_000), max_clients=40),
    Setting("synthetic", "synthetic(1, 1)", {"source": "synthetic", "clients": 120,
            "new_clients": 20, "examples": 50}, RELU, 0.1, 20, (3_000, 30_000), seed_factor=4),
]  # fmt: skip
SINUSOID = Setting(
    "sinusoid", "sinusoids, 10 shots", {"source": "sinusoid", "clients": 1100, "new_clients": 100},
    {"name": "mlp", "hidden": [40, 40]}, 0.025, 10, (20_000, 200_000), shots=10, metric="rmse",
)  # fmt: skip
"""The classic check of few-shot regression, beside the sixteen cells."""
CELLS = [(setting, budget) for setting in SETTINGS for budget in setting.budgets]
ALL_CELLS = CELLS + [(SINUSOID, budget) for budget in SINUSOID.budgets]


def baseline_candidates() -> list[Table]:
    """Return as many settings of FedAvg + update as there are candidates of a recommendation."""
    kinds = [
        *((ADAM, 0.01, tau, alpha) for tau in (1, 5, 20) for alpha in (0.03, 0.1, 0.3)),
        *((ADAM, 0.01, tau, 0.01) for tau in (1, 5)),
        *((ADAM, 0.01, 50, alpha) for alpha in (0.1, 0.3)),
        *((ADAM, 0.0, 5, alpha) for alpha in (0.03, 0.1, 0.3)),
        *((MEAN, 0.0, tau, alpha) for tau in (5, 20) for alpha in (0.1, 0.3)),
    ]
    return [
        {"name": "fedavg", **server, **FULL, "local_lr": 0.5 if tau < 50 else 0.2,
         "weight_decay": decay, "local_steps": tau, "inner_lr": alpha}
        for server, decay, tau, alpha in kinds
    ]  # fmt: skip


def papers_candidates() -> list[Table]:
    """Return as many settings of the papers' Per-FedAvg: one α, plain averaging."""
    steps = [(alpha, beta) for alpha in (0.1, 0.3, 0.5) for beta in (0.2, 0.5, 1.0)]
    kinds = [(method, *each) for method in ("exact", "first-order") for each in steps]
    return [
        {"name": "per-fedavg", **MEAN, "method": method, "inner_steps": STEPS, "local_steps": 1,
         "inner_lr": alpha, "local_lr": beta}
        for method, alpha, beta in [*kinds, ("exact", 1.0, 0.2), ("exact", 1.0, 0.5)]
    ]  # fmt: skip


CANDIDATES: dict[str, list[Table]] = {
    FEDAVG: baseline_candidates(),
    RECOMMENDED: all_candidates(STEPS),
    ON_BATCHES: [{**each, "full_batch_adaptation": False} for each in baseline_candidates()],
    PAPERS: papers_candidates(),
}
LABELS = {
    FEDAVG: "FedAvg + update, all examples",
    RECOMMENDED: "recommended",
    ON_BATCHES: "FedAvg + update, batches",
    PAPERS: "Per-FedAvg as in the papers",
}
QUICK_CANDIDATES, QUICK_BUDGET = 3, 4_000
QUICK_CELLS = [each for each in CELLS if each[0].key == "mnist-groups"][:1]


def cell(setting: Setting, budget: int, side: str) -> str:
    """Return the name of a cell.

    >>> cell(SETTINGS[0], 3200, "fedavg")
    'digits/3200/fedavg'
    """
    return f"{setting.key}/{budget}/{side}"


class Recommended:
    """The study."""

    name = "recommended"
    title = "The recommended method against the best FedAvg + update"
    summary = "eight data sets, two budgets each; both sides searched on validation clients"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return the searches, then their winners with every seed; quick: one cell."""
        pieces: list[Piece] = []
        for setting, budget in QUICK_CELLS if quick else ALL_CELLS:
            for side in setting.sides:
                pieces += _side_pieces(setting, budget, side, seeds, quick, done)
        return pieces

    def section(self, records: Sequence[Record]) -> Section:
        """Show both sides of every cell, the difference, and what was chosen."""
        text = TEXT.format(
            count=len(CANDIDATES[FEDAVG]), table=_table(records), papers=_papers_table(records),
            sinusoid=_sinusoid_table(records), chosen=_chosen(records),
        )  # fmt: skip
        return Section(text, claims=_claims(records))


def _side_pieces(
    setting: Setting, budget: int, side: str, seeds: Sequence[int], quick: bool,
    done: Sequence[Record],
) -> list[Piece]:  # fmt: skip
    name, candidates = cell(setting, budget, side), CANDIDATES[side]
    if quick:
        budget, candidates = QUICK_BUDGET, candidates[:QUICK_CANDIDATES]
    plan = MethodSearch(candidates, budget, None if quick else setting.splits, setting.shots)
    search = replace(make_piece(f"{name}/search", setting.table(), quick), search=plan)
    found = next((r["chosen"] for r in done if r["fingerprint"] == search.fingerprint), None)
    if found is None:
        return [search]
    chosen = {"algorithm": found["algorithm"], "rounds": found["rounds"], "label": LABELS[side]}
    count = 1 if quick else setting.seed_factor
    return [search] + [
        make_piece(name, _scored_once({**setting.table(), **chosen, "seed": seed}), quick)
        for seed in range(FIRST_SEED, FIRST_SEED + count * len(seeds))
    ]


def _scored_once(table: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment with evaluations at the start and the end alone."""
    return {**table, "evaluation": {**table["evaluation"], "every": table["rounds"]}}


TEXT = """\
Searches on training data and validation clients: over {count} settings of FedAvg + update (1 to 50
local steps, Adam or plain averaging at the server, weight decay, four values of α), once with
adaptation to all of a client's examples and once on batches, as in the literature; and over as many
candidates of `headstart diagnose`, which are FedAvg and Per-FedAvg with learned rates. All have the
same budget. Accuracy of new clients after three steps in percent, paired by seed; no seed was used
in a search. The difference is to the better of the two FedAvg. *Ahead*: its 95 % interval lies
above 0. *Behind*: by more than half a point.

{table}

The papers' Per-FedAvg, with one α, plain averaging at the server and adaptation on batches:

{papers}

Sinusoids (Finn, Abbeel, Levine 2017), the classic few-shot regression: root mean squared error of
new clients after three steps on ten examples; lower is better.

{sinusoid}

<details><summary>What the searches chose</summary>

{chosen}

</details>
"""


def better_baseline(records: Sequence[Record], setting: Setting, budget: int) -> str:
    """Return the side of FedAvg + update with the higher mean: all examples, or batches."""
    means = {
        side: found.mean
        for side in BASELINES
        if (found := _mean(records, setting, budget, side)) is not None
    }
    return max(means, key=lambda side: means[side], default=FEDAVG)


def difference(
    records: Sequence[Record], setting: Setting, budget: int, other: str | None = None
) -> Gap | None:
    """Return the recommended method minus another side, by default the better FedAvg."""
    chosen = other or better_baseline(records, setting, budget)
    ours, theirs = (cell(setting, budget, side) for side in (RECOMMENDED, chosen))
    return gap(records, ours, theirs, setting.after_steps)


def differences(records: Sequence[Record]) -> dict[tuple[str, int], Gap]:
    """Return the differences of the sixteen cells, as far as there are results."""
    found = {
        (setting.title, budget): difference(records, setting, budget) for setting, budget in CELLS
    }
    return {key: value for key, value in found.items() if value is not None}


def _table(records: Sequence[Record]) -> str:
    head = [
        "setting", "gradients", *(LABELS[side] for side in BASELINES), "recommended", "difference",
        "",
    ]  # fmt: skip
    rows = []
    for setting, budget in CELLS:
        found = difference(records, setting, budget)
        if found is not None:
            means = [_mean(records, setting, budget, side) for side in (*BASELINES, RECOMMENDED)]
            shown = ["–" if each is None else str(each) for each in means]
            rows.append([setting.title, f"{budget:,}", *shown, found, describe_gap(found)])
    return markdown_table(head, rows)


def _papers_table(records: Sequence[Record]) -> str:
    rows = []
    for setting, budget in CELLS:
        found = difference(records, setting, budget, PAPERS)
        if found is not None:
            theirs = _mean(records, setting, budget, PAPERS)
            rows.append([setting.title, f"{budget:,}", theirs, found])
    return markdown_table(["setting", "gradients", LABELS[PAPERS], "recommended minus it"], rows)


def _sinusoid_table(records: Sequence[Record]) -> str:
    sides = (FEDAVG, RECOMMENDED)
    rows = [
        [f"{budget:,}", *(_precise(_mean(records, SINUSOID, budget, side)) for side in sides)]
        for budget in SINUSOID.budgets
    ]
    return markdown_table(["gradients", *(LABELS[side] for side in sides)], rows)


def _precise(found: Mean | None) -> str:
    if found is None:
        return "–"
    return f"{found.mean:.2f}" + ("" if found.ci95 is None else f" ± {found.ci95:.2f}")


def _mean(records: Sequence[Record], setting: Setting, budget: int, side: str) -> Mean | None:
    return mean(records, cell(setting, budget, side), setting.after_steps)


def _chosen(records: Sequence[Record]) -> str:
    lines = []
    for setting, budget in ALL_CELLS:
        for side in setting.sides:
            name = f"{cell(setting, budget, side)}/search"
            for record in records_of_cell(records, name).values():
                method = describe_method(record["chosen"]["algorithm"])
                lines.append(f"- {setting.title}, {budget:,}, {LABELS[side]}: {method}")
    return "\n".join(lines)


def describe_gap(found: Gap) -> str:
    """Return ahead, level or behind.

    >>> [describe_gap(Gap(values)) for values in ([1.0, 2.0, 1.5], [-1.0, 1.0], [-1.0])]
    ['ahead', 'level', 'behind']
    """
    if found.above() == HOLDS and found.mean > 0:
        return "ahead"
    return "behind" if found.mean < -BEHIND else "level"


def _claims(records: Sequence[Record]) -> list[Claim]:
    gaps = differences(records)
    verdicts = [describe_gap(found) for found in gaps.values()]
    ahead, behind = verdicts.count("ahead"), verdicts.count("behind")
    rest = OPEN if len(verdicts) < len(CELLS) else None
    evidence = [
        f"{title}, {budget:,}: {found}, {describe_gap(found)}"
        for (title, budget), found in gaps.items()
    ]
    if not gaps:
        return []
    return [
        Claim(
            f"new clients are nowhere more than {BEHIND:g} points behind the best FedAvg + update",
            FAILS if behind else rest or HOLDS,
            evidence,
        ),
        Claim(
            "they are ahead of it in at least half of the sixteen cells",
            HOLDS if 2 * ahead >= len(CELLS) else rest or FAILS,
            [f"ahead in {ahead} of {len(verdicts)} cells, behind in {behind}"],
        ),
    ]
