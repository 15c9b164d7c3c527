"""Lines of the line charts: metric and loss over training, metric against adaptation steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from headstart._metric import Metric
from headstart.records import (
    GROUPS,
    KNOWN,
    NEW,
    AdaptationCurves,
    Evaluation,
    Statistic,
    StoredComparison,
    StoredMethod,
    StoredRun,
    over_seeds,
)
from headstart.report._charts import Axis, Guide, Line, Numbers, Panel
from headstart.report._palette import BLUE, GREY, GROUP_COLOURS, SKY, SeriesStyle, method_styles

When = Literal["before", "after"]
Unit = Literal["round", "gradient_evaluations"]
"""What the progress of training is counted in."""
UNIT_TITLES: dict[Unit, str] = {
    "round": "round",
    "gradient_evaluations": "gradient evaluations in training",
}
STEPS_TITLE = "adaptation steps on own data"
SHOTS_TITLE = "own examples to adapt to"
LOSS = Metric("loss", "lower")
BRIEF_NAMES = {KNOWN: "in training", NEW: "joined later"}


def groups_of(stored: StoredRun | StoredComparison) -> list[str]:
    """Return the groups of clients with scores: known, and new if there are any."""
    if isinstance(stored, StoredRun):
        return list(stored.summary.scores.groups)
    return [g for g in GROUPS if any(g in method.row.groups for method in stored.methods)]


def styles_of(comparison: StoredComparison) -> dict[str, SeriesStyle]:
    """Return the style of each method, by label."""
    labels = [method.row.label for method in comparison.methods]
    return method_styles(labels, comparison.record.baseline)


def group_style(group: str, when: When = "after") -> SeriesStyle:
    """Return the style of a group in the charts of one run: dashed before, solid after."""
    dash = "dash" if when == "before" else "solid"
    return SeriesStyle(group, f"{BRIEF_NAMES[group]}, {when}", GROUP_COLOURS[group], dash)


def run_learning(run: StoredRun, unit: Unit) -> list[Line]:
    """Return the metric over training: all groups, before and after, with a band over clients."""
    x = [float(getattr(evaluation, unit)) for evaluation in run.evaluations]
    lines = []
    for group in groups_of(run):
        after, before = (
            [_statistic(evaluation, group, when) for evaluation in run.evaluations]
            for when in ("after", "before")
        )
        lines.append(_line(group_style(group), x, after, run.metric))
        faint = _line(group_style(group, "before"), x, before, run.metric)
        lines.append(replace(faint, low=(), high=()))
    return lines


def run_adaptation(run: StoredRun) -> list[Line]:
    """Return the metric against adaptation steps, with a band over clients."""
    styles = {g: replace(group_style(g), label=BRIEF_NAMES[g]) for g in GROUPS}
    lines = (_adaptation(styles[g], run.summary.adaptation, g, run.metric) for g in GROUPS)
    return [line for line in lines if line is not None]


def run_shots(run: StoredRun) -> list[Line]:
    """Return the metric against the number of own examples, with a band over clients."""
    lines = []
    for group in groups_of(run) if run.summary.shots else ():
        counts, statistics = zip(*run.summary.by_shots(group), strict=True)
        sizes = [client.train_examples for client in run.clients_of(group)]
        # All examples: at their mean number, but to the right of every other point.
        shown = max([sum(sizes) / max(1, len(sizes)), *(float(n) for n in counts[:-1])])
        style = replace(group_style(group), label=BRIEF_NAMES[group])
        x = [*(float(n) for n in counts[:-1]), shown]
        lines.append(_line(style, x, statistics, run.metric))
    return lines


def run_loss(run: StoredRun, unit: Unit) -> list[Line]:
    """Return the loss that clients reported while training."""
    style = SeriesStyle("loss", "training loss", GROUP_COLOURS[KNOWN])
    reported = [e for e in run.evaluations if e.train_loss is not None]
    x = [float(getattr(evaluation, unit)) for evaluation in reported]
    return [_plain_line(style, x, [e.train_loss for e in reported])] if reported else []


def run_stationarity(run: StoredRun) -> list[Line]:
    """Return ‖∇F‖² at the random iterates, its mean so far, and the bound on that mean."""
    measured = [
        (float(e.round), e.gradient_norm_squared)
        for e in run.evaluations
        if e.gradient_norm_squared is not None and e.round > 0
    ]
    if not measured:
        return []
    rounds, values = zip(*measured, strict=True)
    means = [sum(values[: i + 1]) / (i + 1) for i in range(len(values))]
    lines = [
        _plain_line(SeriesStyle("each", "at a random iterate", SKY, "dot"), rounds, values),
        _plain_line(SeriesStyle("mean", "mean so far", BLUE), rounds, means),
    ]
    if run.bound is not None and run.bound.bound is not None:
        bound = run.bound.bound
        style = SeriesStyle("bound", "guaranteed at most", GREY, "dash")
        lines.append(_plain_line(style, [float(k) for k in bound.rounds], bound.total))
    return lines


def method_learning(comparison: StoredComparison, group: str, when: When, unit: Unit) -> list[Line]:
    """Return the metric over training, one line per method, with a band over seeds or clients."""
    styles = styles_of(comparison)
    lines = []
    for method in comparison.methods:
        rounds = _shared_rounds(method)
        by_round = [[_statistic(_at(r, k), group, when) for r in method.runs] for k in rounds]
        statistics = (
            [each[0] for each in by_round]
            if comparison.over == "clients"
            else [over_seeds([s.mean for s in each]) for each in by_round]
        )
        if any(s.mean is not None for s in statistics):
            x = _positions(method, rounds, unit)
            lines.append(_line(styles[method.row.label], x, statistics, comparison.metric))
    return lines


def method_loss(comparison: StoredComparison, unit: Unit) -> list[Line]:
    """Return the loss that clients reported while training, mean over seeds."""
    styles = styles_of(comparison)
    lines = []
    for method in comparison.methods:
        rounds = _shared_rounds(method)
        means = [over_seeds([_at(r, k).train_loss for r in method.runs]).mean for k in rounds]
        if any(mean is not None for mean in means):
            x = _positions(method, rounds, unit)
            lines.append(_plain_line(styles[method.row.label], x, means))
    return lines


def method_adaptation(comparison: StoredComparison, group: str) -> list[Line]:
    """Return the metric against adaptation steps, one line per method."""
    styles = styles_of(comparison)
    lines = (
        _adaptation(styles[m.row.label], m.row.adaptation, group, comparison.metric)
        for m in comparison.methods
    )
    return [line for line in lines if line is not None]


def line_panels(
    lines: Mapping[str, Sequence[Line]], x: Axis, y_title: str, metric: Metric, steps: int = 0
) -> list[Panel]:
    """Return a panel for each title, with the same y axis and a dotted line at ``steps``."""
    y = Axis(y_title, metric_limits([line for each in lines.values() for line in each], metric))
    guides = [Guide(x=steps)] if steps else ()
    return [Panel(x, y, each, title, guides) for title, each in lines.items() if each]


def metric_limits(lines: Sequence[Line], metric: Metric) -> tuple[float, float]:
    """Return the range of the y axis: shares up to 100 %, other metrics from or to zero."""
    values = [v for line in lines for v in (*line.y, *line.low, *line.high) if v is not None]
    if metric.is_share:
        return floor_to_ten(values) - 1, 101
    return 1.08 * min([0.0, *values]), 1.08 * max([0.0, *values]) or 1.0


def floor_to_ten(values: Sequence[float]) -> float:
    """Return the multiple of ten below the smallest value, with a little room.

    >>> floor_to_ten([47.0, 93.0]), floor_to_ten([])
    (40.0, 0.0)
    """
    return max(0.0, (min(values, default=0.0) - 2) // 10 * 10)


def _shared_rounds(method: StoredMethod) -> list[int]:
    """Return the rounds at which every run of the method was evaluated."""
    rounds = [{e.round for e in run.evaluations} for run in method.runs]
    return sorted(set.intersection(*rounds)) if rounds else []


def _positions(method: StoredMethod, rounds: Sequence[int], unit: Unit) -> list[float]:
    return [float(getattr(_at(method.runs[0], k), unit)) for k in rounds]


def _at(run: StoredRun, round: int) -> Evaluation:
    return next(e for e in run.evaluations if e.round == round)


def _statistic(evaluation: Evaluation, group: str, when: When) -> Statistic:
    if group not in evaluation.scores.groups:
        return Statistic()
    pair = evaluation.scores.primary(group)
    return pair.before if when == "before" else pair.after


def _adaptation(
    style: SeriesStyle, curves: AdaptationCurves | None, group: str, metric: Metric
) -> Line | None:
    if curves is None or group not in curves.groups:
        return None
    curve = curves.groups[group]
    points = zip(curve.means[metric.name], curve.ci95, strict=True)
    statistics = [Statistic(mean=mean, ci95=ci95) for mean, ci95 in points]
    return _line(style, [float(step) for step in curves.steps], statistics, metric)


def _plain_line(style: SeriesStyle, x: Sequence[float], y: Numbers) -> Line:
    """Return a line without a band, of numbers that are not shares."""
    return _line(style, x, [Statistic(mean=value) for value in y], LOSS)


def _line(
    style: SeriesStyle, x: Sequence[float], statistics: Sequence[Statistic], metric: Metric
) -> Line:
    """Return a line through means; its band is cut where it would hide the line."""
    y = tuple(None if s.mean is None else metric.scale * s.mean for s in statistics)
    limits = _band_limits([value for value in y if value is not None], metric)
    ends = [_band_ends(statistic, metric, limits) for statistic in statistics]
    low, high = tuple(end[0] for end in ends), tuple(end[1] for end in ends)
    texts = [_text(*point, metric) for point in zip(y, low, high, strict=True)]
    return Line(style, tuple(x), y, low, high, texts)


def _band_limits(y: Sequence[float], metric: Metric) -> tuple[float, float]:
    """Limit a band: a share from 0 to 100 %, an error from 0 to twice the largest mean.

    The interval of two or three clients may be many times as wide as everything else.
    """
    if metric.is_share:
        return 0.0, metric.scale
    top, bottom = max(y, default=0.0), min(y, default=0.0)
    reach = max(abs(top), abs(bottom))
    return (0.0 if bottom >= 0 else bottom - reach), top + reach


def _band_ends(
    statistic: Statistic, metric: Metric, limits: tuple[float, float]
) -> tuple[float | None, float | None]:
    if statistic.mean is None or statistic.ci95 is None:
        return None, None
    low, high = statistic.mean - statistic.ci95, statistic.mean + statistic.ci95
    return max(limits[0], metric.scale * low), min(limits[1], metric.scale * high)


def _text(value: float | None, low: float | None, high: float | None, metric: Metric) -> str:
    """Return what the page says of one point."""
    if value is None:
        return "–"
    if not metric.is_share:
        return f"{value:.4g}"
    interval = "" if low is None or high is None else f" (95 % CI {low:.1f} … {high:.1f})"
    return f"{value:.1f} %{interval}"
