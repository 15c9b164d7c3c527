"""One evaluation of a run: a line of ``metrics.jsonl``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headstart.records._base import Number, VersionedRecord
from headstart.records._scores import ScoredRecord

AdaptOn = Literal["train", "test"]
"""Which split clients adapt on; ``test`` only to mirror paper P."""
ADAPTED_ON_TEST = (
    "adapted on the data that is scored (adapt_on = test), as in paper P: "
    "not an estimate for unseen data"
)
"""The warning beside every number that was adapted on test data."""


class Evaluation(ScoredRecord, VersionedRecord):
    """What clients reach with the shared model after ``round`` rounds."""

    AFTER_SCORES: ClassVar[tuple[str, ...]] = ("gradient_norm_squared",)

    round: int
    seconds: float = 0.0
    """Training time so far."""
    evaluation_seconds: float = 0.0
    gradient_evaluations: int
    train_loss: Number = None
    """Mean training loss since the previous evaluation."""
    reported: dict[str, Number] = Field(default_factory=dict)
    """What clients and server reported since the previous evaluation, on average."""
    adapt_steps: int
    adapt_on: AdaptOn
    gradient_norm_squared: Number = None
    """‖∇F‖² at the random iterates of P Remark 4.7, if it was measured."""

    def __str__(self) -> str:
        """Before → after for known and new clients, in one line."""
        metric = self.metric
        texts = [
            f"{name} {metric.text(part[metric.name].before.mean)} → "
            f"{metric.text(part[metric.name].after.mean)}"
            for name, part in self.scores.groups.items()
        ]
        name = "" if metric.is_share else f"{metric.word} "
        marked = " (adapted on test data)" if self.adapt_on == "test" else ""
        return name + ", ".join(texts) + marked
