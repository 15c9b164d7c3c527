"""What clients reach when each chooses its own number of adaptation steps."""

from __future__ import annotations

from pydantic import Field

from headstart._metric import Metric
from headstart.records._base import Number, Record
from headstart.records._scores import KNOWN, NEW, AdaptationCurves
from headstart.records._statistics import Statistic


class WorseOff(Record):
    """Shares of clients that are worse off with their own model than with the shared one."""

    lower: Number
    """Their primary metric on held-out examples is worse, if only by chance."""
    beyond_chance: Number
    """A sign test over held-out examples, one-sided at 2.5 %, says that it is worse."""


class GroupChoice(Record):
    """One group of clients, with the configured number of steps and with chosen ones."""

    metric: Statistic
    """The primary metric after the chosen steps."""
    mean_steps: float
    """The mean number of chosen steps."""
    unadapted: float
    """The share of clients that chose to take no step."""
    fixed: WorseOff
    """With the configured number of steps."""
    chosen: WorseOff
    """With the chosen number of steps."""


class StepChoices(Record):
    """What clients reach if each takes the steps it chose by cross-validation."""

    most_steps: int
    """Clients choose between 0 and this many: the configured number."""
    folds: int
    known: GroupChoice = Field(alias="known_clients")
    new: GroupChoice | None = Field(None, alias="new_clients")

    @property
    def groups(self) -> dict[str, GroupChoice]:
        """The choices by group; new clients only if there are any."""
        return {KNOWN: self.known} | ({} if self.new is None else {NEW: self.new})


class ShotScores(Record):
    """What clients reach after adapting to a few of their examples."""

    shots: int
    """The examples that a client adapts to; one with fewer adapts to all it has."""
    adaptation: AdaptationCurves


class ChosenSteps(Record):
    """The number of adaptation steps that one client chose, and why."""

    steps: int
    examples: int
    """The client's examples, by which it chose."""
    metric: Metric
    shared: Number = None
    """The primary metric of the shared model by cross-validation; None with a single example."""
    personal: Number = None
    """The primary metric after the chosen steps, by cross-validation."""

    def __str__(self) -> str:
        """The number of steps and the reason, in one line."""
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        if self.examples < 2:
            return f"{steps}, as configured: one example is too few to choose by"
        chosen = f"{steps}, chosen by cross-validation on the client's own {self.examples} examples"
        shared, personal = (self.metric.text(value) for value in (self.shared, self.personal))
        if self.steps == 0:
            return f"{chosen}: the shared model reaches {shared}, and adaptation raises the loss"
        return f"{chosen}: {personal} against {shared} with the shared model"
