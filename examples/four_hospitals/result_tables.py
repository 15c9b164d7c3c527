"""Tables that are readable in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hospitals
import numpy as np
import trials
from trials import (
    AFTER,
    BEFORE,
    LONG_AFTER,
    Difference,
    Get,
    Mean,
    Trial,
    accuracy,
    loss,
)

from headstart.data._example_pool import Pool

ROLES = {
    "known": "Hospitals that trained together",
    "new": "The hospital that joined later, with all its training patients",
    "few": f"The hospital that joined later, with {trials.FEW} patients",
}
WAYS = {"fedavg": "FedAvg", "per-fedavg": "Per-FedAvg"}
AFTERS = (AFTER, LONG_AFTER)
OTHERS = {"fedavg": "FedAvg + update", "local": "alone"}
LEGEND = (
    "Differences are paired by split: mean ± 95 % interval over splits (± the interval corrected "
    "for splits that share patients). A difference is shown if the wider interval excludes 0."
)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right.

    >>> print(table(["a", "b"], [["x", 10]]))
    | a |  b |
    | - | -: |
    | x | 10 |
    """
    lines = [[str(cell) for cell in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0])]
        + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]) + " |"
        for line in lines
    )  # fmt: skip


def hospitals_table(pool: Pool) -> str:
    """Return a table that describes the hospitals."""
    return table(
        ["hospital", "patients", "with disease", "values missing"],
        [
            [name, f["patients"], f"{100 * f['ill']:.0f} %", f"{100 * f['missing']:.1f} %"]
            for name, f in hospitals.facts(pool).items()
        ],
    )


def federation_table(
    results: Mapping[str, Any], simulated: Mapping[str, Mapping[str, float]]
) -> str:
    """Return a table of every hospital's accuracy before and after adaptation."""
    sites, again = results["sites"], results["again"]
    rows = [
        [
            name + (" (joined later)" if name == hospitals.LATE else ""),
            one["train_examples"],
            one["test_examples"],
            *(f"{100 * one[column]:.1f} %" for column in ("accuracy_before", "accuracy_after")),
        ]
        for name, one in sites.items()
    ]
    after = f"after {sites[hospitals.LATE]['steps']} steps"
    return "\n\n".join([
        table(["hospital", "adapts on", "scored on", "before", after], rows),
        f"{again['site']} again, on its own, with {again['steps']} steps: "
        f"{100 * again['accuracy_after']:.1f} %.",
        _agreement(sites, simulated),
    ])  # fmt: skip


def _agreement(
    sites: Mapping[str, Mapping[str, float]], simulated: Mapping[str, Mapping[str, float]]
) -> str:
    apart = max(
        abs(one[column] - sites[name][column]) for name, one in simulated.items() for column in one
    )
    same = "A simulation of the same hospitals, files and draws gives the same accuracies"
    return same + ("." if apart < 5e-4 else f", except for at most {100 * apart:.1f} points.")


def methods_table(found: Sequence[Trial], few_steps: int) -> str:
    """Return every method's accuracies by hospital and mean losses, ± 95 % interval over splits."""
    names = sorted({one.hospital for one in found})
    head, parts = _head(few_steps), []
    for role, title in ROLES.items():
        rows = [[name or "mean", *_means(found, role, accuracy, name)] for name in (*names, None)]
        parts.append(f"{title}; accuracy, %:\n\n{table(['hospital', *head], rows)}")
    losses = [
        [role, *(f"{one.mean:.3f} ± {one.over_splits:.3f}" for one in _means(found, role, loss))]
        for role in ROLES
    ]
    parts.append(f"Loss, mean over hospitals, nats:\n\n{table(['role', *head], losses)}")
    return "\n\n".join(parts)


def _head(few_steps: int) -> list[str]:
    when = ("before", f"{few_steps} steps", f"{trials.MANY_STEPS} steps")
    return ["guess", "alone", *(f"{way}, {at}" for way in WAYS.values() for at in when)]


def _means(
    found: Sequence[Trial], role: str, of: Callable[[int], Get], name: str | None = None
) -> list[Mean]:
    shown = [("guess", BEFORE), ("local", BEFORE)]
    shown += [(way, w) for way in WAYS for w in (BEFORE, *AFTERS)]
    return [Mean(trials.by_split(found, way, role, of(w), name).tolist()) for way, w in shown]


def differences_table(found: Sequence[Trial], few_steps: int, hospital: str | None = None) -> str:
    """Return a table of Per-FedAvg minus the others, over all hospitals or at one."""
    rows = []
    for role in ROLES:
        for other, label in OTHERS.items():
            for when, steps in enumerate((0, few_steps, trials.MANY_STEPS)):
                right, cost = (
                    trials.difference(found, other, role, of(when), hospital)
                    for of in (accuracy, loss)
                )
                row = [role, label, steps, _interval(right, 1), _interval(cost, 3)]
                rows.append([*row, _verdict(right, cost)])
    head = ["role", "Per-FedAvg minus", "steps", "accuracy, points", "loss, nats", "shown"]
    return table(head, rows)


def gains_table(found: Sequence[Trial], few_steps: int) -> str:
    """Return a table of the accuracy that adaptation adds, over all hospitals."""
    rows = [
        [
            role,
            WAYS[way],
            *(_interval(trials.gain(found, way, role, when), 1) for when in AFTERS),
        ]
        for role in ROLES
        for way in WAYS
    ]
    steps = (f"{steps} steps minus before, points" for steps in (few_steps, trials.MANY_STEPS))
    return table(["role", "start", *steps], rows)


def _interval(one: Difference, digits: int) -> str:
    return f"{one.mean:+.{digits}f} ± {one.over_splits:.{digits}f} (± {one.corrected:.{digits}f})"


def _verdict(right: Difference, cost: Difference) -> str:
    """Say in words what is shown; a lower loss is better."""
    words = []
    for what, one, better in (("accuracy", right, 1), ("loss", cost, -1)):
        if one.shown:
            words.append(("better " if np.sign(one.mean) == better else "worse ") + what)
    return ", ".join(words) or "nothing"
