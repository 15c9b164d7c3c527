"""Several seeds of one method as one: means and intervals over seeds of the means over clients."""

from __future__ import annotations

from collections.abc import Sequence

from headstart._metric import Metric
from headstart.records._run_summary import RunSummary
from headstart.records._scores import AdaptationCurves, BeforeAfter, GroupCurve, GroupScores
from headstart.records._statistics import Statistic, mean_or_none, over_seeds


def scores_over_seeds(summaries: Sequence[RunSummary], group: str) -> GroupScores | None:
    """Return every metric of a group over seeds; None if a run lacks the group."""
    scores = [summary.scores.groups.get(group) for summary in summaries]
    present = [each for each in scores if each is not None]
    if not present or len(present) < len(scores):
        return None
    metrics = summaries[0].scores.metrics
    return GroupScores(
        metrics={m.name: _pair_over_seeds([each[m.name] for each in present], m) for m in metrics}
    )


def curves_over_seeds(summaries: Sequence[RunSummary]) -> AdaptationCurves | None:
    """Return the primary metric against adaptation steps; None if runs measured other steps."""
    curves = [summary.adaptation for summary in summaries]
    present = [each for each in curves if each is not None]
    if not present or len(present) < len(curves) or len({each.steps for each in present}) > 1:
        return None
    name, groups = summaries[0].metric.name, dict[str, GroupCurve]()
    for group in set.intersection(*(set(each.groups) for each in present)):
        columns = zip(*(each.groups[group].means[name] for each in present), strict=True)
        points = [over_seeds(column) for column in columns]
        groups[group] = GroupCurve(
            means={name: tuple(p.mean for p in points)}, ci95=tuple(p.ci95 for p in points)
        )
    return AdaptationCurves(
        steps=present[0].steps, known=groups.get("known"), new=groups.get("new")
    )


def _pair_over_seeds(pairs: Sequence[BeforeAfter], metric: Metric) -> BeforeAfter:
    before = _statistic_over_seeds([pair.before for pair in pairs], metric)
    return BeforeAfter(
        before=before, after=_statistic_over_seeds([pair.after for pair in pairs], metric)
    )


def _statistic_over_seeds(statistics: Sequence[Statistic], metric: Metric) -> Statistic:
    """Return mean and interval; ``p10`` and ``p90`` are the mean deciles of clients."""
    means = over_seeds([each.mean for each in statistics])
    names = ("p10",) if metric.direction == "higher" else ("p10", "p90")
    deciles = {name: mean_or_none([getattr(each, name) for each in statistics]) for name in names}
    if means.mean is None:
        deciles = dict.fromkeys(deciles)
    return Statistic(mean=means.mean, ci95=means.ci95, values=means.values, **deciles)
