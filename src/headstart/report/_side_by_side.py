"""Separate runs set side by side: numbers and curves, but no verdicts.

Only ``headstart compare`` judges a difference, because it makes sure that all methods saw the same
clients. Here runs with the same label and different seeds are one method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headstart.errors import InputError
from headstart.records import (
    KNOWN,
    NEW,
    ComparisonRecord,
    ComparisonRow,
    StoredComparison,
    StoredMethod,
    StoredRun,
    curves_over_seeds,
    is_comparison,
    read_folder,
    read_run,
    scores_over_seeds,
)

Over = Literal["seeds", "clients"]


def read_folders(paths: Sequence[Path]) -> StoredRun | StoredComparison:
    """Read one run, one comparison, or several runs side by side."""
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
    return combine_runs([read_run(path) for path in paths])


def combine_runs(runs: Sequence[StoredRun]) -> StoredComparison:
    """Return the runs as a comparison without a baseline; all must have the same metric."""
    names = {run.metric.name: run for run in runs}
    if len(names) > 1:
        one, other = list(names.values())[:2]
        raise InputError(
            f"{one.path} is about {one.metric.word}, {other.path} about {other.metric.word}; "
            "report them separately"
        )
    by_label = group_by_label(runs)
    over: Over = "seeds" if any(len(same) > 1 for same in by_label.values()) else "clients"
    methods = tuple(
        StoredMethod(combine_method(label, same, over), tuple(same))
        for label, same in by_label.items()
    )
    first = runs[0].summary
    record = ComparisonRecord(
        data={"source": first.data},
        rounds=tuple(sorted({run.summary.rounds for run in runs})),
        seeds=tuple(sorted({run.summary.seed for run in runs if run.summary.seed is not None})),
        adapt_steps=first.adapt_steps,
        adapt_on="test" if any(run.summary.adapt_on == "test" for run in runs) else "train",
        metric=first.metric,
        rows=tuple(method.row for method in methods),
    )
    return StoredComparison(None, record, methods, over)


def group_by_label(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """Return runs by label; if a seed occurs twice, each run is named by its folder as well."""
    by_label: dict[str, list[StoredRun]] = defaultdict(list)
    for run in runs:
        by_label[run.summary.name].append(run)
    unique: dict[str, list[StoredRun]] = {}
    for label, same in by_label.items():
        if len({run.summary.seed for run in same}) == len(same):
            unique[label] = same
            continue
        for index, run in enumerate(same, start=1):
            name = f"{label} · {run.path.name}"
            unique[name if name not in unique else f"{name} ({index})"] = [run]
    return unique


def combine_method(label: str, runs: Sequence[StoredRun], over: Over) -> ComparisonRow:
    """Return one method: means and intervals over seeds, or of a single run over its clients."""
    summaries = [run.summary for run in runs]
    first, seconds = summaries[0], [summary.seconds for summary in summaries]
    single = over == "clients"
    return ComparisonRow(
        label=label,
        algorithm={"name": first.algorithm},
        seeds=tuple(summary.seed for summary in summaries if summary.seed is not None),
        runs=tuple(str(run.path) for run in runs),
        gradient_evaluations=first.gradient_evaluations,
        gradient_evaluations_per_client=first.gradient_evaluations_per_client,
        seconds=None if None in seconds else sum(filter(None, seconds)),
        known=first.known if single else scores_over_seeds(summaries, KNOWN),
        new=first.new if single else scores_over_seeds(summaries, NEW),
        adaptation=first.adaptation if single else curves_over_seeds(summaries),
    )
