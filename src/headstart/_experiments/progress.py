"""Progress of long work: a bar on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from headstart._experiments.callbacks import Listener
from headstart.records import Evaluation

FINISHED_BARS = 8
"""Of many runs so many finished ones stay in sight."""
PLAIN_SECONDS = 10.0
"""At most so long without a line when there is no terminal."""


class Pace:
    """Rounds per second, counted from the end of the first piece: that one also compiles."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def rate(self, done: int) -> float | None:
        """Rounds per second so far; None until there is something to measure."""
        now = time.monotonic()
        if self.first is None:
            self.first = (done, now)
        rounds, seconds = done - self.first[0], now - self.first[1]
        return rounds / seconds if rounds and seconds > 0 else None


class PlainListener(Listener):
    """One line per evaluation (if brief: only the last), and now and then between."""

    def __init__(self, label: str = "", *, brief: bool = False) -> None:
        self.prefix, self.brief = f"{label}: " if label else "", brief
        self.spoke, self.pace, self.rounds = time.monotonic(), Pace(), 0

    def started(self, done: int, rounds: int) -> None:
        """Say where training begins."""
        self.rounds = rounds
        if done or not self.brief:
            self.say(f"round {done} of {rounds}" + (" (resumed)" if done else ""))

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        """Say how far it is, but not too often."""
        rate = self.pace.rate(done)
        if rate is not None and time.monotonic() - self.spoke > PLAIN_SECONDS:
            left = f"{rate:.1f} rounds/s, {(rounds - done) / rate:.0f} s left"
            self.say(f"round {done} of {rounds}, loss {loss:.3f}, {left}")

    def evaluated(self, evaluation: Evaluation) -> None:
        """Say how good the models are."""
        if not self.brief or evaluation.round == self.rounds:
            self.say(f"round {evaluation.round}: {evaluation}")

    def note(self, message: str) -> None:
        """Pass a message on."""
        self.say(message)

    def say(self, message: str) -> None:
        """One line."""
        self.spoke = time.monotonic()
        print(self.prefix + message, file=sys.stderr, flush=True)


class BarListener(Listener):
    """A bar with rate, time left and the latest scores."""

    def __init__(self, bar: Progress, label: str = "training") -> None:
        self.bar = bar
        self.task = bar.add_task(label, total=None, latest="", rate="")
        self.pace = Pace()

    def started(self, done: int, rounds: int) -> None:
        """Show the bar."""
        self.bar.update(self.task, total=rounds, completed=done)

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        """Move the bar."""
        rate = self.pace.rate(done)
        shown = "compiling" if rate is None else f"{rate:.1f} rounds/s"
        self.bar.update(self.task, completed=done, rate=shown)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show the scores."""
        text = str(evaluation).replace(" %", "").replace(" →", "→")
        self.bar.update(self.task, latest=text)

    def note(self, message: str) -> None:
        """Print above the bar."""
        self.bar.console.print(message, markup=False)


class Stage:
    """Gives out listeners that fit where standard error goes."""

    def __init__(self, bar: Progress | None) -> None:
        self.bar = bar

    def listener(self, label: str = "training", *, brief: bool = False) -> Listener:
        """A listener for one run; brief if it is one of many."""
        if self.bar is None:
            return PlainListener(label if brief else "", brief=brief)
        for task in [task for task in self.bar.tasks if task.finished][:-FINISHED_BARS]:
            self.bar.update(task.id, visible=False)
        return BarListener(self.bar, label)

    def say(self, line: str) -> None:
        """One line for the user, above the bars if there are any."""
        if self.bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self.bar.console.print(line, markup=False, highlight=False)


@contextmanager
def stage() -> Iterator[Stage]:
    """Where progress is shown."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield Stage(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[latest]}", style="cyan"),
    )
    with Progress(*columns, console=console) as bar:
        yield Stage(bar)


@contextmanager
def watch(wanted: bool | None) -> Iterator[list[Listener]]:
    """What shows the progress of a run started from Python: by default where somebody watches."""
    console = Console(stderr=True)
    if wanted is False or (wanted is None and not (console.is_terminal or console.is_jupyter)):
        yield []
        return
    with stage() as place:
        yield [place.listener()]
