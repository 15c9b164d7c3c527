"""Several methods on the same clients with the same seeds: ``comparison.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from headstart._metric import ACCURACY, Metric
from headstart.records._base import JsonTable, Record, VersionedRecord
from headstart.records._client_result import CsvCell, to_csv
from headstart.records._evaluation import AdaptOn
from headstart.records._run_summary import GradientsPerClient
from headstart.records._scores import GROUPS, KNOWN, NEW, AdaptationCurves, BeforeAfter, GroupScores
from headstart.records._statistics import FAILED, PairedDifference, verdict_of


class Differences(Record):
    """The primary metric after adaptation minus the baseline's; None if it cannot be computed."""

    known: PairedDifference | None = Field(None, alias="known_clients")
    new: PairedDifference | None = Field(None, alias="new_clients")

    @property
    def groups(self) -> dict[str, PairedDifference]:
        """The differences by group, as far as there are any."""
        both = {KNOWN: self.known, NEW: self.new}
        return {group: each for group, each in both.items() if each is not None}


class ComparisonRow(Record):
    """One method: means over seeds of the means over clients."""

    label: str
    algorithm: dict[str, object]
    """The options of its ``[algorithm]`` table."""
    seeds: tuple[int, ...]
    """Seeds whose run finished."""
    runs: tuple[str, ...] = ()
    """Folders of the runs, relative to the comparison's."""
    diverged: dict[str, str] = Field(default_factory=dict)
    """Seeds whose run diverged, with the reason."""
    failed: dict[str, str] = Field(default_factory=dict)
    """Seeds whose run ended with a useless model, with the reason."""
    gradient_evaluations: int | None = None
    gradient_evaluations_per_client: GradientsPerClient = GradientsPerClient()
    seconds: float | None = None
    known: GroupScores | None = None
    new: GroupScores | None = None
    adaptation: AdaptationCurves | None = None
    differences: Differences = Field(Differences(), alias="difference")

    @property
    def groups(self) -> dict[str, GroupScores]:
        """The scores by group, as far as there are any."""
        both = {KNOWN: self.known, NEW: self.new}
        return {group: scores for group, scores in both.items() if scores is not None}

    @field_validator("failed", "diverged", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return value or {}

    @field_validator("gradient_evaluations_per_client", "differences", mode="before")
    @classmethod
    def _none_is_default(cls, value: object) -> object:
        return {} if value is None else value

    def difference(self, group: str) -> PairedDifference | None:
        """Return the paired difference to the baseline, if there is one."""
        return self.differences.groups.get(group)


class ComparisonRecord(VersionedRecord):
    """What all methods share, and a row for each."""

    data: dict[str, object] = Field(default_factory=dict)
    """The ``[data]`` table."""
    rounds: tuple[int, ...] = ()
    seeds: tuple[int, ...]
    adapt_steps: int
    adapt_on: AdaptOn
    baseline: str | None = None
    metric: Metric = ACCURACY
    """The primary metric."""
    rows: tuple[ComparisonRow, ...]

    @property
    def data_name(self) -> str:
        """The data in words."""
        words = (self.data.get("source") or self.data.get("path"), self.data.get("partition"))
        return ", ".join(str(word) for word in words if word)

    def primary(self, row: ComparisonRow, group: str) -> BeforeAfter:
        """Return the primary metric of a row's group."""
        return row.groups[group][self.metric.name]

    def to_csv(self) -> str:
        """Return the text of ``comparison.csv``."""
        return to_csv([self._flat(row) for row in self.rows])

    @model_validator(mode="before")
    @classmethod
    def _gather_scores(cls, table: object) -> object:
        """In files the primary metric of a group is not nested, and the others are beside it."""
        if not isinstance(table, Mapping) or "rows" not in table:
            return table
        metric = table.get("metric") or ACCURACY
        name = metric.name if isinstance(metric, Metric) else metric["name"]
        rows = [
            row if isinstance(row, ComparisonRow) else _nested(row, name) for row in table["rows"]
        ]
        return {**table, "metric": metric, "rows": rows}

    @model_validator(mode="after")
    def _judge_again(self) -> Self:
        """Verdicts follow from the intervals; those in a file are not trusted."""
        failed = {row.label for row in self.rows if row.failed}
        for row in self.rows:
            for difference in row.differences.groups.values():
                verdict = verdict_of(difference.mean, difference.ci95, self.metric.direction)
                either = row.label in failed or self.baseline in failed
                object.__setattr__(difference, "verdict", FAILED if either else verdict)
        return self

    @model_serializer(mode="wrap")
    def _spread_scores(self, handler: SerializerFunctionWrapHandler) -> JsonTable:
        table: JsonTable = handler(self)
        table["rows"] = [_flattened(row, self.metric.name) for row in table["rows"]]
        return table

    def _flat(self, row: ComparisonRow) -> dict[str, CsvCell]:
        line: dict[str, CsvCell] = {
            "label": row.label,
            "algorithm": str(row.algorithm["name"]),
            "seeds": len(row.seeds),
            "diverged": len(row.diverged),
            "gradient_evaluations": row.gradient_evaluations,
        }
        for group in GROUPS:
            scores = row.groups.get(group)
            for when in ("before", "after"):
                pair = None if scores is None else getattr(scores[self.metric.name], when)
                line[f"{group}_clients_{when}_mean"] = pair and pair.mean
                line[f"{group}_clients_{when}_ci95"] = pair and pair.ci95
            difference = row.difference(group)
            line[f"{group}_clients_difference"] = None if difference is None else difference.mean
            line[f"{group}_clients_difference_ci95"] = (
                None if difference is None else difference.ci95
            )
        return line


def _nested(row: JsonTable, primary: str) -> JsonTable:
    table = dict(row)
    for group in GROUPS:
        part = table.pop(f"{group}_clients", None)
        if part is not None:
            others = {name: pair for name, pair in part.items() if name not in ("before", "after")}
            own = {"before": part["before"], "after": part["after"]}
            table[group] = {"metrics": {primary: own, **others}}
    return table


def _flattened(table: JsonTable, primary: str) -> JsonTable:
    last = {name: table.pop(name) for name in ("adaptation", "difference")}
    for group in GROUPS:
        part = table.pop(group)
        metrics = None if part is None else dict(part["metrics"])
        table[f"{group}_clients"] = None if metrics is None else metrics.pop(primary) | metrics
    return table | last
