"""Callbacks: follow a run's progress, and end it early."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.errors import ConfigError
from headstart.options import require_at_least
from headstart.records import Evaluation


class Listener:
    """Follows a run's progress. It does nothing itself: override the methods that you need."""

    def started(self, done: int, rounds: int) -> None:
        """Called when training begins, or is resumed after ``done`` rounds."""

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        """Called after some rounds; ``loss`` is the mean training loss of the last one."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Called with every evaluation, a line of ``metrics.jsonl``."""

    def note(self, message: str) -> None:
        """Called with a message for the user."""

    def stops(self) -> str | None:
        """Return why the run should end now, or None; called after every evaluation."""
        return None


class Listeners(Listener):
    """Several listeners as one."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)

    def started(self, done: int, rounds: int) -> None:
        """Forward to all."""
        for listener in self.listeners:
            listener.started(done, rounds)

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        """Forward to all."""
        for listener in self.listeners:
            listener.advanced(done, rounds, loss)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Forward to all."""
        for listener in self.listeners:
            listener.evaluated(evaluation)

    def note(self, message: str) -> None:
        """Forward to all."""
        for listener in self.listeners:
            listener.note(message)

    def stops(self) -> str | None:
        """Return the first reason that a listener has."""
        return next((why for each in self.listeners if (why := each.stops())), None)


class EarlyStopping(Listener):
    """End a run when its primary metric after adaptation has not improved for a while.

    The trained model is kept and evaluated; ``run.summary.stopped_early`` says why it stopped. The
    held-out examples then decide how long to train: report such a run as tuned on them, or use
    data from ``data.for_tuning()``.
    """

    def __init__(self, patience: int = 5, least: float = 0.0) -> None:
        """Stop after ``patience`` evaluations without an improvement of more than ``least``."""
        require_at_least(1, patience=patience)
        if least < 0:
            raise ConfigError(f"least={least} must be at least 0")
        self.patience, self.least = patience, least
        self.best: float | None = None
        self.without = 0
        self._why: str | None = None

    def evaluated(self, evaluation: Evaluation) -> None:
        """Compare the known clients' score after adaptation with the best so far."""
        metric = evaluation.metric
        value = evaluation.known[metric.name].after.mean
        if value is not None and (self.best is None or metric.gain(value, self.best) > self.least):
            self.best, self.without = value, 0
        else:
            self.without += 1
        if self.without >= self.patience:
            self._why = f"{metric.name} did not improve in {self.without} evaluations"

    def stops(self) -> str | None:
        """Return the reason, once there is one."""
        return self._why
