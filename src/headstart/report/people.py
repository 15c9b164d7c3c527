"""What the figures of single clients show, worked out once for paper and page."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.report.lines import When
from headstart.report.reading import Client, Method

MOST_ROWS = 60
"""Up to so many clients each have a row of their own; more are shown as a distribution."""
MOST_DOTS = 150
"""Up to so many clients of a method are drawn as dots beside its box."""
EDGES = tuple(range(0, 101, 5))
"""Bins of accuracy, in percent."""


def ranked(clients: Sequence[Client]) -> list[Client]:
    """Clients with both numbers, lowest after adaptation first."""
    whole = [c for c in clients if c.before is not None and c.after is not None]
    return sorted(whole, key=lambda c: (c.after, c.before))


def percents(clients: Sequence[Client], when: When) -> list[float]:
    """Accuracies in percent, of those that have one."""
    values = (getattr(client, when) for client in clients)
    return [100 * value for value in values if value is not None]


def pooled(method: Method, group: str) -> list[Client]:
    """The clients of all the method's runs together."""
    return [client for run in method.runs for client in run.clients_of(group)]


def short(text: str, most: int = 18) -> str:
    """A name that fits beside an axis, on one line.

    >>> short("a rather long client name", 12)
    'a rather lo…'
    """
    line = " ".join(text.split()) or "?"
    return line if len(line) <= most else line[: most - 1] + "…"


def jitter(count: int) -> list[float]:
    """Small fixed offsets between −1 and 1 that keep equal dots apart."""
    return [((i * 0.6180339887) % 1) * 2 - 1 for i in range(count)]
