"""What the line figures show, worked out once for paper (Matplotlib) and page (Plotly)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headstart.metric import Metric
from headstart.report.palette import BLUE, GREY, GROUP_COLOURS, SKY, Look, method_looks
from headstart.report.reading import Comparison, Evaluation, Method, Run
from headstart.report.records import GROUPS, KNOWN, NEW, Curve, Numbers, Stat
from headstart.report.spread import over_seeds

When = Literal["before", "after"]
Axis = Literal["round", "gradients"]
AXIS_TITLES = {"round": "round", "gradients": "gradient evaluations in training"}
LOSS = Metric("loss", "lower")
SHORT = {KNOWN: "in training", NEW: "joined later"}


@dataclass(frozen=True)
class Line:
    """One line with its band; shares in percent, None where there is no number."""

    look: Look
    x: tuple[float, ...]
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()

    @property
    def has_band(self) -> bool:
        """Whether any point has an interval."""
        return any(v is not None for v in self.low)


def groups_of(thing: Run | Comparison) -> list[str]:
    """Known clients, and new ones if there are any."""
    if isinstance(thing, Run):
        return [g for g in GROUPS if g in thing.summary.groups]
    return [g for g in GROUPS if any(g in m.row.groups for m in thing.methods)]


def looks_of(comparison: Comparison) -> dict[str, Look]:
    """The look of each method."""
    labels = [method.row.label for method in comparison.methods]
    return method_looks(labels, comparison.board.baseline)


def group_look(group: str, when: When = "after") -> Look:
    """The look of a group in the figures of one run: dashed is before, solid is after."""
    dash = "dash" if when == "before" else "solid"
    return Look(group, f"{SHORT[group]}, {when}", GROUP_COLOURS[group], dash)


def run_learning(run: Run, axis: Axis) -> list[Line]:
    """The metric over training: both groups, before and after adaptation, band over clients."""
    x = tuple(float(getattr(e, axis)) for e in run.evaluations)
    lines = []
    for group in groups_of(run):
        pairs = [e.groups.get(group) for e in run.evaluations]
        after = [Stat(None) if p is None else p.after for p in pairs]
        before = [Stat(None) if p is None else p.before for p in pairs]
        lines.append(_line(group_look(group), x, after, run.metric))
        faint = _line(group_look(group, "before"), x, before, run.metric)
        lines.append(replace(faint, low=(), high=()))
    return lines


def run_adaptation(run: Run) -> list[Line]:
    """The metric against adaptation steps, band over clients."""
    looks = {g: replace(group_look(g), label=SHORT[g]) for g in GROUPS}
    return [_curve_line(looks[g], curve, run.metric) for g, curve in run.summary.curves.items()]


def run_stationarity(run: Run) -> list[Line]:
    """‖∇F‖² at the random iterates, its mean so far, and what the theorem promises of that mean."""
    found = [(e.round, e.gradient_norm_squared) for e in run.evaluations]
    some = [(k, v) for k, v in found if v is not None and k > 0]
    if not some:
        return []
    rounds = tuple(float(k) for k, _ in some)
    values = tuple(v for _, v in some)
    means = tuple(sum(values[: i + 1]) / (i + 1) for i in range(len(values)))
    lines = [
        Line(Look("each", "at a random iterate", SKY, "dot"), rounds, values),
        Line(Look("mean", "mean so far", BLUE), rounds, means),
    ]
    if run.promise is not None and run.promise.rounds:
        look = Look("bound", "promised at most", GREY, "dash")
        lines.append(Line(look, tuple(map(float, run.promise.rounds)), run.promise.total))
    return lines


def run_loss(run: Run, axis: Axis) -> list[Line]:
    """The loss clients reported while training."""
    look = Look("loss", "training loss", GROUP_COLOURS[KNOWN])
    points = [e for e in run.evaluations if e.train_loss is not None]
    x = tuple(float(getattr(e, axis)) for e in points)
    return [Line(look, x, tuple(e.train_loss for e in points))] if points else []


def learning(comparison: Comparison, group: str, when: When, axis: Axis) -> list[Line]:
    """The metric over training, one line per method, band over seeds (or clients)."""
    looks = looks_of(comparison)
    lines = []
    for method in comparison.methods:
        x, stats = _over_training(method, group, when, axis, comparison.over)
        if any(s.mean is not None for s in stats):
            lines.append(_line(looks[method.row.label], x, stats, comparison.metric))
    return lines


def loss(comparison: Comparison, axis: Axis) -> list[Line]:
    """The loss clients reported while training, mean over seeds."""
    looks = looks_of(comparison)
    lines = []
    for method in comparison.methods:
        rounds = _shared_rounds(method)
        points = [[_at(run, r).train_loss for run in method.runs] for r in rounds]
        stats = [over_seeds(values) for values in points]
        line = _line(looks[method.row.label], _positions(method, rounds, axis), stats, LOSS)
        if any(y is not None for y in line.y):
            lines.append(replace(line, low=(), high=()))
    return lines


def adaptation(comparison: Comparison, group: str) -> list[Line]:
    """The metric against adaptation steps, one line per method."""
    looks = looks_of(comparison)
    return [
        _curve_line(looks[m.row.label], m.row.curves[group], comparison.metric)
        for m in comparison.methods
        if group in m.row.curves
    ]


def _over_training(
    method: Method, group: str, when: When, axis: Axis, over: str
) -> tuple[tuple[float, ...], list[Stat]]:
    rounds = _shared_rounds(method)
    table = [[_stat(run, r, group, when) for run in method.runs] for r in rounds]
    if over == "clients":
        return _positions(method, rounds, axis), [row[0] for row in table]
    return _positions(method, rounds, axis), [over_seeds([s.mean for s in row]) for row in table]


def _shared_rounds(method: Method) -> list[int]:
    """The rounds at which every run of the method was evaluated."""
    seen = [{e.round for e in run.evaluations} for run in method.runs]
    return sorted(set.intersection(*seen)) if seen else []


def _positions(method: Method, rounds: Sequence[int], axis: Axis) -> tuple[float, ...]:
    return tuple(float(getattr(_at(method.runs[0], r), axis)) for r in rounds)


def _at(run: Run, round: int) -> Evaluation:
    return next(e for e in run.evaluations if e.round == round)


def _stat(run: Run, round: int, group: str, when: When) -> Stat:
    pair = _at(run, round).groups.get(group)
    return Stat(None) if pair is None else getattr(pair, when)


def _curve_line(look: Look, curve: Curve, metric: Metric) -> Line:
    stats = [Stat(m, c) for m, c in zip(curve.mean, curve.ci95, strict=True)]
    return _line(look, tuple(map(float, curve.steps)), stats, metric)


def _line(look: Look, x: tuple[float, ...], stats: Sequence[Stat], metric: Metric) -> Line:
    """A line through means; its band is cut where it would hide the line (:func:`_limits`)."""
    y = tuple(None if s.mean is None else metric.scale * s.mean for s in stats)
    limits = _limits([value for value in y if value is not None], metric)
    low, high = zip(*(_ends(s, metric, limits) for s in stats), strict=True) if stats else ((), ())
    return Line(look, x, y, low, high)


def _limits(y: Sequence[float], metric: Metric) -> tuple[float, float]:
    """How far a band may reach: a share from 0 to 100 %, an error from 0 to twice the largest mean.

    The interval of two or three clients may be many times as wide as everything else.
    """
    if metric.is_share:
        return 0.0, metric.scale
    top, bottom = max(y, default=0.0), min(y, default=0.0)
    reach = max(abs(top), abs(bottom))
    return (0.0 if bottom >= 0 else bottom - reach), top + reach


def _ends(
    stat: Stat, metric: Metric, limits: tuple[float, float]
) -> tuple[float | None, float | None]:
    if stat.mean is None or stat.ci95 is None:
        return None, None
    low, high = metric.scale * (stat.mean - stat.ci95), metric.scale * (stat.mean + stat.ci95)
    return max(limits[0], low), min(limits[1], high)
