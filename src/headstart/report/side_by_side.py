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
    GROUPS,
    AdaptationCurves,
    BeforeAfter,
    ComparisonRecord,
    ComparisonRow,
    GroupCurve,
    GroupScores,
    Statistic,
    StoredComparison,
    StoredMethod,
    StoredRun,
    is_comparison,
    mean_or_none,
    over_seeds,
    read_folder,
    read_run,
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
    first = runs[0].summary
    seconds = [run.summary.seconds for run in runs]
    single = over == "clients"
    scores = first.scores.groups if single else {g: _scores(runs, g) for g in GROUPS}
    return ComparisonRow(
        label=label,
        algorithm={"name": first.algorithm},
        seeds=tuple(run.summary.seed for run in runs if run.summary.seed is not None),
        runs=tuple(str(run.path) for run in runs),
        gradient_evaluations=first.gradient_evaluations,
        gradient_evaluations_per_client=first.gradient_evaluations_per_client,
        seconds=None if None in seconds else sum(filter(None, seconds)),
        known=scores.get("known"),
        new=scores.get("new"),
        adaptation=first.adaptation if single else _curves(runs),
    )


def _scores(runs: Sequence[StoredRun], group: str) -> GroupScores | None:
    """Return the primary metric over seeds, if every run has the group."""
    if not all(group in run.summary.scores.groups for run in runs):
        return None
    pairs = [run.summary.scores.primary(group) for run in runs]
    before, after = _over_seeds([p.before for p in pairs]), _over_seeds([p.after for p in pairs])
    return GroupScores(metrics={runs[0].metric.name: BeforeAfter(before=before, after=after)})


def _over_seeds(statistics: Sequence[Statistic]) -> Statistic:
    """Return mean and interval of the means over clients; percentiles are averaged."""
    p10, p90 = (mean_or_none([getattr(s, name) for s in statistics]) for name in ("p10", "p90"))
    return over_seeds([s.mean for s in statistics]).model_copy(update={"p10": p10, "p90": p90})


def _curves(runs: Sequence[StoredRun]) -> AdaptationCurves | None:
    """Return the adaptation curves over seeds, if every run measured the same steps."""
    curves = [run.summary.adaptation for run in runs]
    measured = [each for each in curves if each is not None]
    if len(measured) < len(runs) or len({each.steps for each in measured}) > 1:
        return None
    name = runs[0].metric.name
    groups = {
        group: _over_seeds_curve([each.groups[group].means[name] for each in measured], name)
        for group in GROUPS
        if all(group in each.groups for each in measured)
    }
    return AdaptationCurves(
        steps=measured[0].steps, known=groups.get("known"), new=groups.get("new")
    )


def _over_seeds_curve(curves: Sequence[Sequence[float | None]], name: str) -> GroupCurve:
    columns = [over_seeds(column) for column in zip(*curves, strict=True)]
    means = tuple(column.mean for column in columns)
    return GroupCurve(means={name: means}, ci95=tuple(column.ci95 for column in columns))
