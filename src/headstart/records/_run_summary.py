"""The result of a run: ``summary.json``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headstart._metric import ACCURACY, DASH
from headstart.records._base import Record, VersionedRecord
from headstart.records._evaluation import AdaptOn
from headstart.records._scores import KNOWN, NEW, AdaptationCurves, ScoredRecord
from headstart.records._statistics import Statistic
from headstart.records._step_choice import ShotScores, StepChoices

SMALLER_STEPS = "the steps may be too large: lower algorithm.local_lr or algorithm.inner_lr"
"""The advice for a run that failed."""


class ClientCounts(Record):
    """Numbers of clients that took part in training, and that did not."""

    known: int
    new: int = 0


class GradientsPerClient(Record):
    """Gradient evaluations of one client: in a round, and for one adaptation."""

    round: int | float | None = None
    """A mean over sites of a federation need not be whole."""
    adaptation: int | None = None


class ByteCounts(Record):
    """Bytes sent to clients and received from them."""

    down: int
    up: int


class HostFacts(Record):
    """Where the numbers were computed, without the machine's name."""

    python: str = ""
    system: str = ""
    machine: str = ""
    cores: int | None = None
    devices: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)


class RunSummary(ScoredRecord, VersionedRecord):
    """A finished run in numbers; prints as a few readable lines."""

    AFTER_SCORES: ClassVar[tuple[str, ...]] = ("adaptation", "choice", "shots", "host")

    algorithm: str
    label: str = ""
    engine: Literal["simulation", "flower"] = "simulation"
    data: str = ""
    """The data in words."""
    data_digest: str = ""
    rounds: int
    clients: ClientCounts
    evaluated_clients: ClientCounts | None = None
    active_clients: int | None = None
    """Clients in a round."""
    stopped_early: str | None = None
    """Why the run ended before its last round, if it did."""
    seed: int
    seconds: float | None
    """In training; None if they were not recorded."""
    evaluation_seconds: float = 0.0
    gradient_evaluations: int
    gradient_evaluations_per_client: GradientsPerClient = GradientsPerClient()
    bytes: ByteCounts | None = None
    adapt_steps: int
    adapt_on: AdaptOn
    warning: str | None = None
    note: str | None = None
    failures: tuple[str, ...] = ()
    """Why the model is useless although its numbers are finite; empty if it is not."""
    adaptation: AdaptationCurves | None = None
    rates: dict[str, tuple[float, ...]] | None = None
    """How far an adaptation step moves each array of the model, if that was learned.

    The geometric mean of the array's rates, for every step that has rates of its own.
    """
    choice: StepChoices | None = None
    """With numbers of steps that clients chose by cross-validation, if they did."""
    shots: tuple[ShotScores, ...] | None = None
    """After adaptation to a few examples, if it was measured."""
    host: HostFacts = HostFacts()

    @property
    def name(self) -> str:
        """The label, or the algorithm's name."""
        return self.label or self.algorithm

    def __str__(self) -> str:
        """Before and after adaptation, known and new clients, warnings and failures."""
        lines = [
            f"{self.name}: {self.rounds} rounds, "
            f"{self.gradient_evaluations:,} gradient evaluations, {self.seconds or 0.0:.1f} s "
            f"(evaluation {self.evaluation_seconds:.1f} s)",
            *self._primary_lines(),
            *self._other_lines(),
            *self._choice_lines(),
            *self._shots_lines(),
        ]
        if self.warning:
            lines.append(f"  warning: {self.warning}")
        if self.note:
            lines.append(f"  note: {self.note}")
        lines += [f"  FAILED: {failure}" for failure in self.failures]
        if self.failures:
            lines.append(f"  {SMALLER_STEPS}")
        return "\n".join(lines)

    __repr__ = __str__

    def _primary_lines(self) -> list[str]:
        metric = self.metric
        name = "" if metric == ACCURACY else f"{metric.word} "
        lines = []
        for group, part in self.scores.groups.items():
            pair = part[metric.name]
            change = " → ".join(
                metric.with_interval(s.mean, s.ci95) for s in (pair.before, pair.after)
            )
            lines.append(
                f"  {group + ' clients:':15} {name}{change} "
                f"after {self.adapt_steps} adaptation steps{self._sampled(group)}"
            )
        return lines

    def _other_lines(self) -> list[str]:
        """A line for every metric but the primary one."""
        lines = []
        for metric in self.scores.metrics[1:]:
            texts = [
                f"{group} {metric.text(part[metric.name].before.mean)} → "
                f"{metric.text(part[metric.name].after.mean)}"
                for group, part in self.scores.groups.items()
            ]
            lines.append(f"  {metric.word}: {', '.join(texts)}")
        return lines

    def _choice_lines(self) -> list[str]:
        """What own numbers of steps change, in one line."""
        if self.choice is None:
            return []
        texts = [
            f"{group} {self.metric.text(part.metric.mean)} (worse off beyond chance "
            f"{_percent(part.chosen.beyond_chance)}, else {_percent(part.fixed.beyond_chance)})"
            for group, part in self.choice.groups.items()
        ]
        return [f"  with own choice of steps: {', '.join(texts)}"]

    def _shots_lines(self) -> list[str]:
        """A line for each group: the metric by the number of own examples."""
        lines = []
        for group in self.scores.groups if self.shots else ():
            texts = [
                f"{self.metric.text(point.mean)} with {examples}"
                for examples, point in self.by_shots(group)
            ]
            lines.append(f"  {group} clients by number of own examples: {', '.join(texts)}")
        return lines

    def by_shots(self, group: str) -> list[tuple[str, Statistic]]:
        """Return the primary metric of a group by the number of own examples, at last all."""
        points = []
        for each in self.shots or ():
            curve = each.adaptation.groups[group]
            mean, ci95 = (
                curve.means[self.metric.name][self.adapt_steps],
                curve.ci95[self.adapt_steps],
            )
            points.append((str(each.shots), Statistic(mean=mean, ci95=ci95)))
        return [*points, ("all", self.scores.primary(group).after)]

    def _sampled(self, group: str) -> str:
        """How many clients of a group were evaluated, if not all."""
        if self.evaluated_clients is None:
            return ""
        total = {KNOWN: self.clients.known, NEW: self.clients.new}[group]
        evaluated = {KNOWN: self.evaluated_clients.known, NEW: self.evaluated_clients.new}[group]
        if evaluated == total:
            return ""
        if self.engine == "flower":
            return f" ({evaluated} of {total} sites answered)"
        return f" ({evaluated:,} of {total:,} clients, drawn at random)"


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{100 * share:.1f} %"
