"""What the figures of single clients show, worked out once for paper and page."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.metric import Metric
from headstart.report.lines import When
from headstart.report.reading import Client, Method
from headstart.report.spread import floor_ten

WHENS: tuple[When, ...] = ("before", "after")
MOST_ROWS = 60
"""Up to so many clients each have a row of their own; more are shown as a distribution."""
MOST_DOTS = 150
"""Up to so many clients of a method are drawn as dots beside its box."""
SHARES = tuple(float(edge) for edge in range(0, 101, 5))
"""Bins of a share, in percent."""


def ranked(clients: Sequence[Client], metric: Metric) -> list[Client]:
    """Clients with both numbers, the worst after adaptation first."""
    whole = [c for c in clients if c.before is not None and c.after is not None]
    return sorted(whole, key=lambda c: (metric.gain(c.after, 0.0), metric.gain(c.before, 0.0)))


def shown_values(clients: Sequence[Client], when: When, metric: Metric) -> list[float]:
    """The metric as it is shown (shares in percent), of those that have one."""
    values = (getattr(client, when) for client in clients)
    return [metric.scale * value for value in values if value is not None]


def edges(clients: Sequence[Client], metric: Metric) -> tuple[float, ...]:
    """Bins for a histogram of clients: of shares, or twenty between the extremes."""
    if metric.is_share:
        return SHARES
    both = [v for when in WHENS for v in shown_values(clients, when, metric)]
    low, high = min(both, default=0.0), max(both, default=1.0)
    step = (high - low or abs(high) or 1.0) / 20
    return tuple(low + step * i for i in range(21))


def limits(values: Sequence[float], metric: Metric, *, floor: bool = False) -> tuple[float, float]:
    """The range of an axis with a little room: all of 0 … 100 %, or what there is.

    ``floor`` begins a share's axis at the ten below the smallest value.
    """
    if metric.is_share:
        return (floor_ten(values) if floor else 0.0), 100.0
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.05 * (high - low or abs(high) or 1.0)
    return (0.0 if 0 <= low < high / 3 else low - room), high + room


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
