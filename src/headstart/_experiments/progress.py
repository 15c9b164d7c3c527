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
"""At most this many finished runs stay visible."""
PLAIN_SECONDS = 10.0
"""The longest time between two lines when there is no terminal."""


class Pace:
    """Rounds per second, measured after the first piece, which also compiles."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def rate(self, done: int) -> float | None:
        """Return rounds per second so far; None until there is something to measure."""
        now = time.monotonic()
        if self.first is None:
            self.first = (done, now)
        rounds, seconds = done - self.first[0], now - self.first[1]
        return rounds / seconds if rounds and seconds > 0 else None


class PlainListener(Listener):
    """Prints a line per evaluation (if brief: only the last), and a few in between."""

    def __init__(self, label: str = "", *, brief: bool = False) -> None:
        self.prefix, self.brief = f"{label}: " if label else "", brief
        self.spoke, self.pace, self.rounds = time.monotonic(), Pace(), 0

    def started(self, done: int, rounds: int) -> None:
        """Print where training begins."""
        self.rounds = rounds
        if done or not self.brief:
            self.say(f"round {done} of {rounds}" + (" (resumed)" if done else ""))

    def advanced(self, done: int, rounds: int, loss: float) -> None:
        """Print the progress, but not too often."""
        rate = self.pace.rate(done)
        if rate is not None and time.monotonic() - self.spoke > PLAIN_SECONDS:
            left = f"{rate:.1f} rounds/s, {(rounds - done) / rate:.0f} s left"
            self.say(f"round {done} of {rounds}, loss {loss:.3f}, {left}")

    def evaluated(self, evaluation: Evaluation) -> None:
        """Print the scores."""
        if not self.brief or evaluation.round == self.rounds:
            self.say(f"round {evaluation.round}: {evaluation}")

    def note(self, message: str) -> None:
        """Print a message."""
        self.say(message)

    def say(self, message: str) -> None:
        """Print one line."""
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
        text = "compiling" if rate is None else f"{rate:.1f} rounds/s"
        self.bar.update(self.task, completed=done, rate=text)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Show the scores."""
        text = str(evaluation).replace(" %", "").replace(" →", "→")
        self.bar.update(self.task, latest=text)

    def note(self, message: str) -> None:
        """Print above the bar."""
        self.bar.console.print(message, markup=False)


class ProgressDisplay:
    """Creates listeners: bars on a terminal, plain lines elsewhere."""

    def __init__(self, bar: Progress | None) -> None:
        self.bar = bar

    def listener(self, label: str = "training", *, brief: bool = False) -> Listener:
        """Return a listener for one run; brief if it is one of many."""
        if self.bar is None:
            return PlainListener(label if brief else "", brief=brief)
        for task in [task for task in self.bar.tasks if task.finished][:-FINISHED_BARS]:
            self.bar.update(task.id, visible=False)
        return BarListener(self.bar, label)

    def say(self, line: str) -> None:
        """Print one line, above the bars if there are any."""
        if self.bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self.bar.console.print(line, markup=False, highlight=False)


@contextmanager
def open_display() -> Iterator[ProgressDisplay]:
    """Open the display of progress on standard error."""
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield ProgressDisplay(None)
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
        yield ProgressDisplay(bar)


@contextmanager
def progress_listeners(wanted: bool | None) -> Iterator[list[Listener]]:
    """Provide the listeners that show progress; by default on a terminal and in a notebook."""
    console = Console(stderr=True)
    if wanted is False or (wanted is None and not (console.is_terminal or console.is_jupyter)):
        yield []
        return
    with open_display() as display:
        yield [display.listener()]
