"""What the convergence theorem guarantees for a run: ``theory.json``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from headstart.records._base import Number, Record, VersionedRecord


class BoundByRounds(Record):
    """The bound on E‖∇F‖² after each number of rounds."""

    rounds: tuple[int, ...]
    total: tuple[Number, ...]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.rounds) != len(self.total):
            raise ValueError("rounds and totals of the bound are not of one length")
        return self


class TheoryBound(VersionedRecord):
    """The bound, or the reason why the theorem does not apply."""

    constants: dict[str, Number] = Field(default_factory=dict)
    what: str = ""
    """How the constants were estimated, in words."""
    initial_gap: Number = None
    bound: BoundByRounds | None
    reason: str | None
