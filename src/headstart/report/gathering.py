"""Runs that were made one by one, set side by side: numbers and curves, but no verdicts.

A difference is judged only by ``headstart compare``, which makes sure that both methods saw the
same clients. Here runs with one label and different seeds are one method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headstart.errors import InputError
from headstart.report.reading import (
    Comparison,
    Method,
    Run,
    is_comparison,
    read_folder,
    read_run,
)
from headstart.report.records import GROUPS, Board, Curve, Pair, Row, Stat
from headstart.report.spread import mean_of, over_seeds


def read(paths: Sequence[Path]) -> Run | Comparison:
    """One run, one comparison, or several runs side by side."""
    if not paths:
        raise InputError("nothing to report; give a run folder or a comparison folder")
    if len(paths) == 1:
        return read_folder(paths[0])
    for path in paths:
        if is_comparison(path):
            raise InputError(
                f"{path} is a comparison; report it alone, or give run folders such as "
                f"{path / '*' / 'seed-*'}"
            )
    return gather([read_run(path) for path in paths])


def gather(runs: Sequence[Run]) -> Comparison:
    """The runs as a comparison without a baseline; they must be about one metric."""
    names = {run.metric.name: run for run in runs}
    if len(names) > 1:
        one, other = list(names.values())[:2]
        raise InputError(
            f"{one.path} is about {one.metric.word}, {other.path} about {other.metric.word}; "
            "report them apart"
        )
    labelled = by_label(runs)
    over = "seeds" if any(len(some) > 1 for some in labelled.values()) else "clients"
    methods = tuple(Method(row(label, some, over), tuple(some)) for label, some in labelled.items())
    first = runs[0].summary
    board = Board(
        rows=tuple(method.row for method in methods),
        baseline=None,
        seeds=tuple(sorted({run.summary.seed for run in runs if run.summary.seed is not None})),
        rounds=tuple(sorted({run.summary.rounds for run in runs})),
        adapt_steps=first.adapt_steps,
        adapt_on="test" if any(r.summary.adapt_on == "test" for r in runs) else "train",
        data=first.data,
        metric=first.metric,
    )
    return Comparison(None, board, methods, over)


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one label together, unless a seed occurs twice: then each is known by its folder."""
    together: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        together[run.summary.label].append(run)
    apart: dict[str, list[Run]] = {}
    for label, some in together.items():
        if len({run.summary.seed for run in some}) == len(some):
            apart[label] = some
            continue
        for index, run in enumerate(some, start=1):
            name = f"{label} · {run.path.name}"
            apart[name if name not in apart else f"{name} ({index})"] = [run]
    return apart


def row(label: str, runs: Sequence[Run], over: str) -> Row:
    """One method: mean and interval over seeds, or of a single run over its clients."""
    first = runs[0].summary
    single = over == "clients"
    seconds = [run.summary.seconds for run in runs]
    return Row(
        label=label,
        algorithm=first.algorithm,
        seeds=tuple(run.summary.seed for run in runs if run.summary.seed is not None),
        diverged={},
        budget=first.budget,
        seconds=None if None in seconds else sum(filter(None, seconds)),
        groups=first.groups if single else {g: pair(runs, g) for g in shared_groups(runs)},
        curves=first.curves if single else {g: curve(runs, g) for g in shared_curves(runs)},
        differences={},
        folders=tuple(str(run.path) for run in runs),
    )


def shared_groups(runs: Sequence[Run]) -> list[str]:
    """The groups every run has."""
    return [g for g in GROUPS if all(g in run.summary.groups for run in runs)]


def shared_curves(runs: Sequence[Run]) -> list[str]:
    """The groups for which every run measured the same numbers of steps."""
    return [
        g
        for g in GROUPS
        if all(g in run.summary.curves for run in runs)
        and len({run.summary.curves[g].steps for run in runs}) == 1
    ]


def pair(runs: Sequence[Run], group: str) -> Pair:
    """Before and after, over seeds."""
    pairs = [run.summary.groups[group] for run in runs]
    return Pair(stat([p.before for p in pairs]), stat([p.after for p in pairs]))


def stat(stats: Sequence[Stat]) -> Stat:
    """Mean and interval of the means over clients; the percentiles are averaged."""
    merged = over_seeds([s.mean for s in stats])
    p10, p90 = mean_of([s.p10 for s in stats]), mean_of([s.p90 for s in stats])
    return replace(merged, p10=p10, p90=p90)


def curve(runs: Sequence[Run], group: str) -> Curve:
    """The adaptation curve, over seeds."""
    some = [run.summary.curves[group] for run in runs]
    columns = [over_seeds(column) for column in zip(*(c.mean for c in some), strict=True)]
    return Curve(some[0].steps, tuple(c.mean for c in columns), tuple(c.ci95 for c in columns))
