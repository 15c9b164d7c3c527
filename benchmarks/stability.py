"""Does every method train stably with its defaults, whatever the step size?

    python -m benchmarks.stability                               all data sets and methods
    python -m benchmarks.stability digits wisdm --methods fedavg aruba
    python -m benchmarks.stability digits --norm inf             without clipping

Trains each method with its default options on data sets of `studies/recommended.py`: over 100
rounds with local step sizes β from 0.01 to 0.3, and over 1,000 rounds with β = 0.3. Prints, as a
Markdown table, the accuracy of known clients after three adaptation steps; a run that diverges or
is marked as failed says so. Nothing is timed. Real data sets are looked for in ``HEADSTART_DATA``.
"""

from __future__ import annotations

import argparse
from typing import Any

import headstart as hs
from headstart._experiments.configuration import Experiment
from headstart.errors import DivergedError
from studies.recommended import SETTINGS, STEPS, Setting

DATA_SETS = ("digits", "wisdm", "synthetic", "mnist-groups", "mnist-own")
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "per-fedavg": {"name": "per-fedavg"},
    "per-fedavg-3": {"name": "per-fedavg", "inner_steps": 3},
    "local": {"name": "local"},
    "apfl": {"name": "apfl"},
    "aruba": {"name": "aruba"},
}
STEP_SIZES = (0.01, 0.03, 0.1, 0.3)
SHORT, LONG = 100, 1000
"""Numbers of rounds; the long run is the short one with the largest step size, continued."""
EVALUATED = 60
HEAD = [*(f"β = {beta:g}" for beta in STEP_SIZES), f"β = {STEP_SIZES[-1]:g}, {LONG:,} rounds"]


def train(setting: Setting, options: dict[str, Any], rounds: int, seed: int = 0) -> list[str]:
    """Train once; return the accuracies after each ``SHORT`` rounds, or what went wrong."""
    algorithm = {"batch_size": setting.batch_size, **options}
    table = {**setting.table(), "seed": seed, "algorithm": algorithm}
    chosen = Experiment.from_table(table)
    evaluation = hs.EvaluationOptions(
        every=SHORT, adapt_steps=STEPS, curve_steps=STEPS, max_clients=EVALUATED, choose_steps=False
    )
    try:
        run = hs.train(
            chosen.build_data(), chosen.build_model(), chosen.build_algorithm(), rounds=rounds,
            participation=chosen.participation, seed=seed, evaluation=evaluation,
        )  # fmt: skip
    except DivergedError as error:
        return [f"diverged in round {error.round}"]
    found = [e.known["accuracy"].after for e in run.evaluations if e.round]
    texts = ["–" if each.mean is None else f"{100 * each.mean:.1f}" for each in found]
    return [*texts[:-1], texts[-1] + " (failed)" * bool(run.summary.failures)]


def row(setting: Setting, method: dict[str, Any]) -> list[str]:
    """Return the cells of a method's row."""
    *small, largest = STEP_SIZES
    cells = [train(setting, {**method, "local_lr": beta}, SHORT)[-1] for beta in small]
    long = train(setting, {**method, "local_lr": largest}, LONG)
    if len(long) == 1:
        return [*cells, train(setting, {**method, "local_lr": largest}, SHORT)[-1], long[-1]]
    return [*cells, long[0], long[-1]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data_sets", nargs="*", metavar="DATA", help=", ".join(DATA_SETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--norm", type=float, help="max_gradient_norm; default: each method's own")
    given = parser.parse_args()
    clipping = {} if given.norm is None else {"max_gradient_norm": given.norm}
    print("| data | method | " + " | ".join(HEAD) + " |")
    print("| --- | --- |" + " --- |" * len(HEAD), flush=True)
    for setting in SETTINGS:
        if setting.key not in (given.data_sets or DATA_SETS):
            continue
        for name in given.methods:
            cells = row(setting, {**METHODS[name], **clipping})
            print(f"| {setting.title} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
