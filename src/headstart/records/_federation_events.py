"""What happens in a federation: ``rounds.jsonl``, and the server's part of a checkpoint.

Every line is an event with a time. A program that shows progress reads the file while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from headstart.records._base import Number, Record, VersionedRecord, parse_table
from headstart.records._evaluation import Evaluation
from headstart.records._run_summary import ByteCounts


class _Event(VersionedRecord):
    time: float = 0.0
    """Seconds since 1970."""


class RunStarted(_Event):
    """The server began, or resumed after ``round`` rounds."""

    event: Literal["started"] = "started"
    round: int
    rounds: int


class RoundEnded(_Event):
    """One exchange with the sites is over."""

    event: Literal["round"] = "round"
    round: int
    done: bool
    """Whether enough sites trained for the round to count."""
    loss: Number
    seconds: float
    trained: tuple[str, ...]
    scored: tuple[str, ...]
    not_connected: tuple[str, ...]
    silent: tuple[str, ...]
    """Sites that did not answer in time."""
    rejected: dict[str, str]
    """Sites whose answer was not used, with the reason."""
    bytes_down: int
    bytes_up: int


class RoundRepeated(_Event):
    """A round had too few answers and is tried again."""

    event: Literal["again"] = "again"
    round: int
    attempt: int


class WaitingForSites(_Event):
    """Too few sites are connected."""

    event: Literal["waiting"] = "waiting"
    needed: int
    there: int
    absent: tuple[str, ...]


class Evaluated(Evaluation, _Event):
    """Sites scored the model as it was before round ``round``."""

    event: Literal["evaluated"] = "evaluated"

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, time: float) -> Evaluated:
        """Return the event of an evaluation."""
        return cls(**dict(evaluation), time=time)


class Notice(_Event):
    """A line for people."""

    event: Literal["notice"] = "notice"
    text: str


class KeyMissing(_Event):
    """The server has no public key of a site and will refuse it."""

    event: Literal["no key"] = "no key"
    site: str


class RunFailed(_Event):
    """The run ended with an error."""

    event: Literal["failed"] = "failed"
    why: str
    kind: str
    """The class of the error."""


class RunFinished(_Event):
    """The run is complete."""

    event: Literal["finished"] = "finished"


FederationEvent = Annotated[
    RunStarted
    | RoundEnded
    | RoundRepeated
    | WaitingForSites
    | Evaluated
    | Notice
    | KeyMissing
    | RunFailed
    | RunFinished,
    Field(discriminator="event"),
]
_EVENTS: TypeAdapter[FederationEvent] = TypeAdapter(FederationEvent)


def parse_event(line: str | bytes) -> FederationEvent:
    """Read one line of ``rounds.jsonl``."""
    return _EVENTS.validate_python(parse_table(line if isinstance(line, str) else line.decode()))


def follow_events(path: Path, position: int) -> Iterator[tuple[int, FederationEvent]]:
    """Yield the complete lines from a byte position on, each with the position after it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n"):
                return
            position += len(line)
            yield position, parse_event(line)


class SiteSizes(Record):
    """How much data a site has."""

    train_examples: int
    test_examples: int
    classes: int


class SiteChoice(Record):
    """The number of adaptation steps a site chose, and how many held-out examples that changed."""

    steps: NonNegativeInt
    fixed: tuple[NonNegativeInt, NonNegativeInt]
    """Examples better and worse than with 0 steps, after the configured number of steps."""
    chosen: tuple[NonNegativeInt, NonNegativeInt]
    """The same after the chosen number."""


class SiteScores(Record):
    """One site's score sums, a row per number of adaptation steps."""

    sums: tuple[tuple[float, ...], ...]
    choice: SiteChoice | None = None
    """The site's own number of steps, if it was asked to choose."""


class FederationProgress(Record):
    """What the server of a federation remembers between rounds besides the algorithm's state."""

    gradients: int
    """Gradient evaluations so far."""
    sizes: dict[int, SiteSizes]
    traffic: ByteCounts
    last: dict[int, SiteScores]
    """The scores of each site in the final exchange."""
