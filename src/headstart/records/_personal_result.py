"""What one client's own model reaches: the JSON file beside a personal model."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from headstart._metric import Metric
from headstart.records._base import JsonTable, VersionedRecord
from headstart.records._client_result import Change
from headstart.records._step_choice import ChosenSteps


class PersonalResult(VersionedRecord):
    """Scores before and after adaptation on examples that were kept aside."""

    run: str
    data: str | None = None
    """The file with the client's examples, or None if ``client`` is given."""
    client: str | None = None
    """The name of one of the run's own clients."""
    site: str | None = None
    """The name of a federation's site, which made its model itself."""
    steps: int
    chosen: ChosenSteps | None = None
    """Why that many steps; None if the number was given."""
    train_examples: int
    test_examples: int
    metric: Metric
    """The primary metric."""
    scores: dict[str, Change]
    model: str
    """The model file."""

    @property
    def primary(self) -> Change:
        """The primary metric before and after."""
        return self.scores[self.metric.name]

    def __str__(self) -> str:
        """The primary metric before and after, and why that many steps."""
        before, after = (self.metric.text(v) for v in (self.primary.before, self.primary.after))
        text = f"{self.metric.word} on these: {before} before, {after} after {self.steps} steps"
        return text if self.chosen is None else f"{self.chosen}\n{text}"

    @model_validator(mode="before")
    @classmethod
    def _gather_scores(cls, table: object) -> object:
        if not isinstance(table, Mapping) or "scores" in table:
            return table
        names = [name.removesuffix("_before") for name in table if name.endswith("_before")]
        scores = {
            name: {"before": table[f"{name}_before"], "after": table[f"{name}_after"]}
            for name in names
        }
        return {**table, "scores": scores}

    @model_serializer(mode="wrap")
    def _spread_scores(self, handler: SerializerFunctionWrapHandler) -> JsonTable:
        table: JsonTable = handler(self)
        scores, model = table.pop("scores"), table.pop("model")
        for name in ("data", "client", "site", "chosen"):
            if table[name] is None:
                del table[name]
        for name, change in scores.items():
            table |= {f"{name}_before": change["before"], f"{name}_after": change["after"]}
        return {**table, "model": model}
