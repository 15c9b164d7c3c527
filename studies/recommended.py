"""Beyond the papers: is the recommended method ahead of the best tuned FedAvg + update?

Sixteen cells: eight data sets with two budgets of gradient evaluations each. In every cell two
searches choose (a) the best FedAvg + update, of any number of local steps, and (b) what
:func:`headstart._experiments.recommendation.recommend` recommends. Both have 18 candidates, less
those of which one round is too dear, and the same budget, and use training data and validation
clients alone. Both winners are then trained with seeds that no search used, and scored on new
clients after three adaptation steps, paired by seed.

    python -m studies.recommended                      all cells; resumes
    python -m studies.recommended digits wisdm:1       some of them
    python -m studies.recommended --show               the table
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart._atomic_files import write_text
from headstart._experiments import results
from headstart._experiments.configuration import Experiment, Table
from headstart._experiments.recommendation import (
    ADAM,
    MEAN,
    all_candidates,
    recommend,
)
from headstart._simulation.simulation import Simulation
from headstart.records import paired_difference
from studies.settings import NETWORK

STEPS = 3
SEARCH_SEED = 1000
FIRST_SEED = 10
"""Lower seeds served to choose the candidates, so no result uses them."""
RESULTS = Path(__file__).parent / "results" / "recommended.jsonl"
SIDES = ("fedavg", "recommended")


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
    seeds: int = 5
    splits: int | None = None
    """Validation splits of the search: several where clients are few."""
    shots: int | None = None
    more_sides: tuple[str, ...] = ()
    """What is also run, beside the two sides of the comparison."""

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment; its algorithm is only a placeholder."""
        table = {
            "data": dict(self.data), "model": dict(self.model), "seed": seed,
            "participation": self.participation,
            "algorithm": {"name": "fedavg", "batch_size": self.batch_size},
            "evaluation": {"adapt_steps": STEPS, "max_clients": 200},
        }  # fmt: skip
        return Experiment.from_table(table)


OWN = {"partition": "iid", "own_labels": True}
RELU = {"name": "mlp", "hidden": [80, 60]}
SETTINGS = [
    Setting("digits", "digits, own labels", {"source": "digits", **OWN, "clients": 20,
            "new_clients": 4}, RELU, 0.5, 40, (3_200, 32_000), seeds=10, splits=3,
            more_sides=("per-fedavg",)),
    Setting("mnist-own", "MNIST, own labels", {"source": "mnist", **OWN, "clients": 600,
            "new_clients": 100}, RELU, 0.02, 40, (6_000, 60_000)),
    Setting("mnist-groups", "MNIST, class groups", {"source": "mnist", "partition": "class-groups",
            "clients": 60, "new_clients": 10}, RELU, 0.2, 40, (1_000, 10_000), seeds=10),
    Setting("cifar10", "CIFAR-10, Dirichlet 0.1", {"source": "cifar10", "partition": "dirichlet",
            "clients": 72, "new_clients": 12, "alpha": 0.1, "examples": 500}, RELU, 0.15, 40,
            (3_000, 30_000)),
    Setting("writers", "QMNIST by writer, 5 shots", {"source": "qmnist-writers"}, NETWORK, 0.05, 20,
            (3_000, 30_000), shots=5),
    Setting("wisdm", "WISDM by person", {"source": "wisdm", "new_clients": 9}, RELU, 0.3, 16,
            (3_000, 30_000), seeds=10, splits=3),
    Setting("shakespeare", "Shakespeare by role", {"source": "shakespeare", "new_clients": 89},
            {"name": "char-lstm", "hidden": 32}, 0.03, 8, (1_000, 5_000)),
    Setting("synthetic", "synthetic(1, 1)", {"source": "synthetic", "clients": 120,
            "new_clients": 20, "examples": 50}, RELU, 0.1, 20, (3_000, 30_000), seeds=10),
]  # fmt: skip


def baseline_candidates() -> list[Table]:
    """Return as many settings of FedAvg + update as there are candidates of a recommendation."""
    kinds = [
        *((ADAM, 0.01, tau, alpha) for tau in (1, 5, 20) for alpha in (0.03, 0.1, 0.3)),
        *((ADAM, 0.01, 50, alpha) for alpha in (0.1, 0.3)),
        *((ADAM, 0.0, 5, alpha) for alpha in (0.03, 0.1, 0.3)),
        *((MEAN, 0.0, tau, alpha) for tau in (5, 20) for alpha in (0.1, 0.3)),
    ]
    return [
        {"name": "fedavg", **server, "local_lr": 0.5 if tau < 50 else 0.2, "weight_decay": decay,
         "local_steps": tau, "inner_lr": alpha}
        for server, decay, tau, alpha in kinds
    ]  # fmt: skip


def papers_candidates() -> list[Table]:
    """Return as many settings of the papers' Per-FedAvg: one α, plain averaging."""
    return [
        {"name": "per-fedavg", **MEAN, "method": method, "inner_steps": STEPS, "local_steps": 1,
         "inner_lr": alpha, "local_lr": beta}
        for method in ("exact", "first-order")
        for alpha in (0.1, 0.3, 0.5)
        for beta in (0.2, 0.5, 1.0)
    ]  # fmt: skip


CANDIDATES = {
    "fedavg": baseline_candidates(),
    "recommended": all_candidates(STEPS),
    "per-fedavg": papers_candidates(),
}


def choose(setting: Setting, budget: int, side: str) -> dict[str, Any]:
    """Search on training data; return the record with the chosen options."""
    begin = time.perf_counter()
    chosen = recommend(
        setting.experiment(SEARCH_SEED), budget=budget, candidates=CANDIDATES[side],
        goal="new", validation_splits=setting.splits, shots=setting.shots,
        say=lambda line: print(f"  {line}", flush=True),
    )  # fmt: skip
    seen = chosen.winner.seen[-1]
    return {
        "algorithm": dict(chosen.experiment.algorithm),
        "validation": seen.value,
        "spent": chosen.search.spent,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def score(setting: Setting, budget: int, algorithm: Table, seed: int) -> dict[str, Any]:
    """Train with the chosen options; return accuracies of known and new clients by steps."""
    table = {**setting.experiment(seed).to_table(), "algorithm": dict(algorithm)}
    experiment = Experiment.from_table(table)
    data = experiment.build_data()
    simulation = Simulation(
        data, experiment.build_model(), experiment.build_algorithm(),
        participation=experiment.participation, seed=seed, evaluate_at_most=200,
    )  # fmt: skip
    rounds = max(1, int(budget / simulation.gradient_evaluations(1)))
    progress = simulation.advance(simulation.start(), rounds)
    scores = simulation.evaluate(progress, list(range(STEPS + 1)), most=STEPS, shots=setting.shots)
    rows = results.rows_by_group(scores, data)
    return {
        "rounds": rounds,
        "gradients": simulation.gradient_evaluations(rounds),
        "bytes": simulation.traffic.times(rounds * simulation.active).up,
        **{group: np.mean(scores.primary[rows[group]], axis=0).tolist() for group in rows},
    }


def read() -> list[dict[str, Any]]:
    """Return all stored records."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def keep(record: dict[str, Any]) -> None:
    """Store one more record."""
    lines = [json.dumps(each) for each in [*read(), record]]
    write_text(RESULTS, "\n".join(lines) + "\n")


def run_cell(setting: Setting, which: int) -> None:
    """Do what is missing of a cell."""
    budget = setting.budgets[which]
    cell = f"{setting.key}:{which}"
    for side in (*SIDES, *setting.more_sides):
        done = [r for r in read() if r["cell"] == cell and r["side"] == side]
        chosen = next((r for r in done if r["kind"] == "choice"), None)
        if chosen is None:
            print(f"{cell} {side}: search", flush=True)
            chosen = {"cell": cell, "side": side, "kind": "choice", **choose(setting, budget, side)}
            keep(chosen)
        have = {r["seed"] for r in done if r["kind"] == "score"}
        for seed in (
            seed for seed in range(FIRST_SEED, FIRST_SEED + setting.seeds) if seed not in have
        ):
            outcome = score(setting, budget, chosen["algorithm"], seed)
            keep({"cell": cell, "side": side, "kind": "score", "seed": seed, **outcome})
            shown = ", ".join(f"{g} {100 * outcome[g][-1]:.1f}" for g in ("known", "new"))
            print(f"{cell} {side} seed {seed}: {shown}", flush=True)


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return the cells as a Markdown table: both sides, and the difference with its interval."""
    lines = [
        "| setting | gradients | best FedAvg + update | recommended | difference, new clients | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for setting in SETTINGS:
        for which, budget in enumerate(setting.budgets):
            cell = f"{setting.key}:{which}"
            new = {
                side: {r["seed"]: 100 * r["new"][-1] for r in records
                       if (r["cell"], r["side"], r["kind"]) == (cell, side, "score")}
                for side in SIDES
            }  # fmt: skip
            shared = sorted(set(new["fedavg"]) & set(new["recommended"]))
            if len(shared) < 2:
                continue
            theirs, ours = ([new[side][seed] for seed in shared] for side in SIDES)
            gap = paired_difference(ours, theirs, "higher")
            half = gap.ci95 or 0.0
            mean = float(np.mean(ours) - np.mean(theirs))
            verdict = "ahead" if mean > half else "behind" if mean < -0.5 else "level"
            lines.append(
                f"| {setting.title} | {budget:,} | {np.mean(theirs):.1f} | {np.mean(ours):.1f} | "
                f"{mean:+.1f} ± {half:.1f} | {verdict} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the cells that are asked for, or show the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cells", nargs="*", help="as in digits or wisdm:1; default: all")
    parser.add_argument("--show", action="store_true", help="only print the table")
    options = parser.parse_args()
    for setting in () if options.show else SETTINGS:
        for which in (0, 1):
            names = (setting.key, f"{setting.key}:{which}")
            if not options.cells or any(name in options.cells for name in names):
                run_cell(setting, which)
    print(table(read()))


if __name__ == "__main__":
    main()
