"""Single panels, drawn with Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headstart.metric import Metric
from headstart.report.lines import Line
from headstart.report.palette import GROUP_COLOURS, Look
from headstart.report.people import (
    MOST_DOTS,
    MOST_ROWS,
    WHENS,
    edges,
    jitter,
    limits,
    pooled,
    ranked,
    short,
    shown_values,
)
from headstart.report.reading import Client, Comparison
from headstart.report.records import GROUP_NAMES, Board, Difference
from headstart.report.spread import box, counts, floor_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.5)), "dashdot": (0, (5, 2, 1, 2))}
INK = "#444444"


def draw_lines(
    ax: Axes, lines: Sequence[Line], x_title: str, y_title: str, title: str = ""
) -> None:
    """Lines with their bands."""
    for line in lines:
        look, gap = line.look, float("nan")
        y = [gap if v is None else v for v in line.y]
        marker = "o" if len(y) <= 15 else None
        ax.plot(line.x, y, color=look.colour, linestyle=DASHES[look.dash], marker=marker,
                markersize=3, linewidth=1.6, label=short(look.label, 24))  # fmt: skip
        if line.has_band:
            low, high = ([gap if v is None else v for v in side] for side in (line.low, line.high))
            ax.fill_between(line.x, low, high, color=look.colour, alpha=0.1, linewidth=0)
            for side in (low, high):
                ax.plot(line.x, side, color=look.colour, alpha=0.35, linewidth=0.6)
    ax.set(xlabel=x_title, ylabel=y_title, title=title)
    ax.margins(x=0.02)


def metric_range(ax: Axes, lines: Sequence[Line], metric: Metric) -> None:
    """A share from the ten below the lowest number up to 100 %, other metrics as they are."""
    if metric.is_share:
        values = [v for line in lines for v in (*line.y, *line.low) if v is not None]
        ax.set_ylim(floor_ten(values) - 1, 101)


def label_ends(ax: Axes, lines: Sequence[Line]) -> None:
    """Each line's name at its right end, moved apart where names would touch."""
    ends = [(next(v for v in reversed(line.y) if v is not None), line) for line in lines
            if any(v is not None for v in line.y)]  # fmt: skip
    low, high = ax.get_ylim()
    gap = (high - low) * 0.072
    for height, (_, line) in zip(
        apart([end for end, _ in ends], gap, high), sorted(ends, key=lambda e: e[0]), strict=True
    ):
        ax.annotate(short(line.look.label, 24), (1.015, height), color=line.look.colour,
                    xycoords=ax.get_yaxis_transform(), va="center", fontsize=8.5)  # fmt: skip


def apart(heights: Sequence[float], gap: float, most: float) -> list[float]:
    """Ascending heights at least ``gap`` apart and at most ``most``, near where they were.

    >>> apart([1.0, 1.0, 5.0], gap=1.0, most=5.0)
    [1.0, 2.0, 5.0]
    """
    placed: list[float] = []
    for height in sorted(heights):
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = most
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def clients_height(most: int) -> float:
    """Inches for a panel of so many clients."""
    return 3.0 if most > MOST_ROWS else max(2.2, 1.1 + 0.17 * most)


def draw_clients(ax: Axes, clients: Sequence[Client], group: str, metric: Metric) -> None:
    """A row for each client, or a distribution where there are too many for rows."""
    draw = draw_rows if len(clients) <= MOST_ROWS else draw_histogram
    draw(ax, ranked(clients, metric), GROUP_COLOURS[group], metric)
    ax.set_title(f"{GROUP_NAMES[group]} ({len(clients):,})")


def draw_rows(ax: Axes, clients: Sequence[Client], colour: str, metric: Metric) -> None:
    """Before (hollow) and after (filled), joined by a line."""
    before, after = (shown_values(clients, when, metric) for when in WHENS)
    low, high = limits([*before, *after], metric)
    room = 0.03 * (high - low)
    rows = list(range(len(clients)))
    ax.hlines(rows, before, after, color=colour, alpha=0.45, linewidth=1.6)
    ax.scatter(before, rows, s=22, facecolor="white", edgecolor=colour, zorder=3)
    ax.scatter(after, rows, s=22, color=colour, zorder=3)
    ax.set(xlabel=f"{metric.title}:  ○ before  ● after adaptation", ylabel="client")
    ax.set(xlim=(low - room, high + room), ylim=(-0.7, len(rows) - 0.3))
    ax.set_yticks(rows, [short(c.name, 14) for c in clients], fontsize=7)
    ax.grid(axis="y", visible=False)


def draw_histogram(ax: Axes, clients: Sequence[Client], colour: str, metric: Metric) -> None:
    """How many clients reach which value, before (outline) and after (filled)."""
    bins = edges(clients, metric)
    before, after = (counts(shown_values(clients, when, metric), bins) for when in WHENS)
    ax.stairs(after, bins, fill=True, color=colour, alpha=0.75, label="after adaptation")
    ax.stairs(before, bins, color=INK, linewidth=1.3, label="before")
    ax.set(xlabel=metric.title, ylabel="clients", xlim=(bins[0], bins[-1]))
    ax.legend(loc="upper left", fontsize=8)


def draw_methods(ax: Axes, comparison: Comparison, group: str, looks: Mapping[str, Look]) -> None:
    """A box for each method (quartiles, whiskers 10th to 90th percentile), its clients as dots."""
    for row, method in enumerate(comparison.methods):
        values = shown_values(pooled(method, group), "after", comparison.metric)
        if values:
            draw_box(ax, row, values, looks[method.row.label].colour)
    ax.set_yticks(
        range(len(comparison.methods)), [short(m.row.label, 24) for m in comparison.methods]
    )
    ax.set(xlabel=comparison.metric.titled("after"), title=GROUP_NAMES[group])
    ax.set_ylim(len(comparison.methods) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def draw_box(ax: Axes, row: int, values: Sequence[float], colour: str) -> None:
    """One box, with dots if they are few enough, and a diamond at the mean."""
    if len(values) <= MOST_DOTS:
        heights = [row + 0.22 * j for j in jitter(len(values))]
        ax.scatter(values, heights, s=7, color=colour, alpha=0.45, linewidth=0)
    b = box(values)
    ax.hlines(row, b.p10, b.p90, color=colour, linewidth=1.4)
    ax.barh(row, b.p75 - b.p25, left=b.p25, height=0.52, facecolor="none", edgecolor=colour,
            linewidth=1.4)  # fmt: skip
    ax.vlines(b.p50, row - 0.26, row + 0.26, color=colour, linewidth=2.4)
    ax.scatter([b.mean], [row], marker="D", s=26, color="white", edgecolor=INK, zorder=4)


def draw_differences(ax: Axes, board: Board, group: str, looks: Mapping[str, Look]) -> None:
    """Differences to the baseline: a dot per seed, mean and interval, and the verdict in words."""
    rows = [
        (row.label, row.differences.get(group)) for row in board.rows if row.label != board.baseline
    ]
    ax.axvline(0, color=INK, linewidth=1)
    for height, (label, difference) in enumerate(rows):
        if difference is not None:
            draw_difference(ax, height, difference, looks[label].colour)
    ax.set_yticks(range(len(rows)), [short(label, 24) for label, _ in rows])
    what = board.metric.difference_unit.strip() or board.metric.word
    ax.set(title=GROUP_NAMES[group], xlabel=f"{what} against {short(board.baseline or '', 24)}")
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)


def draw_difference(ax: Axes, row: int, difference: Difference, colour: str) -> None:
    """One method's dots, mean and interval."""
    scale = difference.metric.scale
    seeds = [scale * v for v in difference.values if v is not None]
    ax.scatter(seeds, [row + 0.16] * len(seeds), s=14, color=colour, alpha=0.55, linewidth=0)
    width = None if difference.ci95 is None else scale * difference.ci95
    ax.errorbar([scale * difference.mean], [row], xerr=width, fmt="D", color=colour, capsize=3,
                markersize=5, linewidth=1.8)  # fmt: skip
    ax.annotate(difference.verdict, (scale * difference.mean, row - 0.2), ha="center", va="bottom",
                fontsize=7.5, color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip
