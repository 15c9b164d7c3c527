"""What clients reach before and after adaptation, known and new clients apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from headstart._metric import ACCURACY, Metric
from headstart.records._base import JsonTable, Number, Record
from headstart.records._statistics import Statistic

KNOWN = "known"
"""The group of clients that took part in training."""
NEW = "new"
"""The group of clients that did not take part in training."""
GROUPS = (KNOWN, NEW)
"""Clients that took part in training, and clients that did not."""


class BeforeAfter(Record):
    """A number before and after adaptation."""

    before: Statistic
    after: Statistic


class GroupScores(Record):
    """Loss and metrics of one group of clients; ``scores["accuracy"].after.mean``."""

    loss: BeforeAfter | None = None
    metrics: dict[str, BeforeAfter]

    def __getitem__(self, metric: str) -> BeforeAfter:
        """Return the metric of this name before and after adaptation."""
        return self.metrics[metric]


class ScoreSummary(Record):
    """Loss and metrics of known and new clients.

    In files the scores of known clients are at the top level and those of new clients under
    ``new_clients``; ``metric`` describes the primary metric, ``metrics`` all if there are several.
    """

    metrics: tuple[Metric, ...] = (ACCURACY,)
    """The primary metric first."""
    known: GroupScores
    new: GroupScores | None = None

    @property
    def metric(self) -> Metric:
        """The primary metric."""
        return self.metrics[0]

    @property
    def groups(self) -> dict[str, GroupScores]:
        """The scores by group; new clients only if there are any."""
        return {KNOWN: self.known} | ({} if self.new is None else {NEW: self.new})

    def primary(self, group: str) -> BeforeAfter:
        """Return the primary metric of a group."""
        return self.groups[group][self.metric.name]

    @classmethod
    def gather(cls, table: JsonTable) -> ScoreSummary:
        """Read the scores out of a larger JSON object."""
        metrics = metrics_of(table)
        new = table.get("new_clients")
        return cls(
            metrics=metrics,
            known=_group(table, metrics),
            new=None if new is None else _group(new, metrics),
        )

    def spread(self) -> JsonTable:
        """Return the keys that :meth:`gather` reads."""
        described = [metric.to_table() for metric in self.metrics]
        several = {"metrics": described} if len(described) > 1 else {}
        new = None if self.new is None else _group_table(self.new)
        return {"metric": described[0], **several, **_group_table(self.known), "new_clients": new}


class ScoredRecord(Record):
    """A record with scores in it; in files they are not nested."""

    AFTER_SCORES: ClassVar[tuple[str, ...]] = ()
    """Fields that follow the scores in a file, and are left out if they are None."""

    scores: ScoreSummary

    @property
    def metric(self) -> Metric:
        """The primary metric."""
        return self.scores.metric

    @property
    def known(self) -> GroupScores:
        """The scores of clients that took part in training."""
        return self.scores.known

    @property
    def new(self) -> GroupScores | None:
        """The scores of clients that did not, if there are any."""
        return self.scores.new

    @model_validator(mode="before")
    @classmethod
    def _gather_scores(cls, table: object) -> object:
        if not isinstance(table, Mapping) or "scores" in table:
            return table
        for name, field in cls.model_fields.items():
            if field.is_required() and name != "scores" and name not in table:
                raise ValueError(f"it has no {name!r}")
        return {**table, "scores": ScoreSummary.gather(dict(table))}

    @model_serializer(mode="wrap")
    def _spread_scores(self, handler: SerializerFunctionWrapHandler) -> JsonTable:
        table: JsonTable = handler(self)
        del table["scores"]
        last = {name: table.pop(name) for name in self.AFTER_SCORES}
        present = {name: value for name, value in last.items() if value is not None}
        return {**table, **self.scores.spread(), **present}


class GroupCurve(Record):
    """Metrics of one group after 0, 1, 2 … adaptation steps; ``ci95`` is of the primary one."""

    means: dict[str, tuple[Number, ...]]
    ci95: tuple[Number, ...]

    @model_validator(mode="before")
    @classmethod
    def _gather_means(cls, table: object) -> object:
        if not isinstance(table, Mapping) or "means" in table:
            return table
        return {"means": {k: v for k, v in table.items() if k != "ci95"}, "ci95": table["ci95"]}

    @model_serializer(mode="wrap")
    def _spread_means(self, handler: SerializerFunctionWrapHandler) -> JsonTable:
        table: JsonTable = handler(self)
        return {**table["means"], "ci95": table["ci95"]}


class AdaptationCurves(Record):
    """Mean metrics against adaptation steps; None where a client's model diverged."""

    steps: tuple[int, ...]
    known: GroupCurve | None = Field(None, alias="known_clients")
    new: GroupCurve | None = Field(None, alias="new_clients")

    @property
    def groups(self) -> dict[str, GroupCurve]:
        """The curves by group, as far as there are any."""
        both = {KNOWN: self.known, NEW: self.new}
        return {group: curve for group, curve in both.items() if curve is not None and self.steps}

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for curve in self.groups.values():
            columns = [*curve.means.values(), curve.ci95]
            if any(len(column) != len(self.steps) for column in columns):
                raise ValueError("an adaptation curve has too few or too many points")
        return self


def metrics_of(table: JsonTable) -> tuple[Metric, ...]:
    """Return the metrics a record is about; records that name none are about accuracy."""
    several = table.get("metrics")
    if several:
        return tuple(Metric(**each) for each in several)
    return (Metric.of(table),)


def _group(table: JsonTable, metrics: tuple[Metric, ...]) -> GroupScores:
    loss = table.get("loss")
    return GroupScores.from_table(
        {"loss": loss, "metrics": {metric.name: table[metric.name] for metric in metrics}}
    )


def _group_table(scores: GroupScores) -> JsonTable:
    table = scores.model_dump(mode="json")
    loss = {} if scores.loss is None else {"loss": table["loss"]}
    return {**loss, **table["metrics"]}
