"""Figures for papers and slides, drawn with Matplotlib and saved as PNG and SVG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headstart.atomic_files import write_bytes
from headstart.metric import Metric
from headstart.report import lines
from headstart.report.drawing import (
    clients_height,
    draw_clients,
    draw_differences,
    draw_lines,
    draw_methods,
    label_ends,
    metric_range,
)
from headstart.report.lines import AXIS_TITLES, Axis, Line, When, groups_of
from headstart.report.palette import ADAPTED_ON_TEST
from headstart.report.people import limits, pooled, shown_values
from headstart.report.reading import Comparison, Evaluation, Run
from headstart.report.records import GROUP_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#888888",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "svg.hashsalt": "headstart",
    "text.parse_math": False,
}
WIDTH = 7.0


def figures_of(thing: Run | Comparison) -> dict[str, Figure]:
    """All figures of a run or a comparison, by file name."""
    with style():
        found = run_figures(thing) if isinstance(thing, Run) else comparison_figures(thing)
        if marked(thing):
            for name, figure in found.items():
                if name != "training-loss":
                    figure.suptitle(f"⚠ {ADAPTED_ON_TEST}", color="#B00020", fontsize=8.5)
    return found


def save_figures(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Each figure as PNG and SVG."""
    paths = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            write_bytes(path, rendered(figure, kind))
            paths.append(path)
    return paths


def rendered(figure: Figure, kind: str) -> bytes:
    """The file's content; without a date, so that the same numbers give the same file."""
    content = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with style():
        figure.savefig(content, format=kind, dpi=200, metadata=metadata)
    return content.getvalue()


def marked(thing: Run | Comparison) -> bool:
    """Whether clients adapted on the data they are scored on."""
    about = thing.summary if isinstance(thing, Run) else thing.board
    return about.adapt_on == "test"


def run_figures(run: Run) -> dict[str, Figure]:
    """One run: learning, clients, adaptation."""
    found = {"learning": run_learning(run), "clients": run_clients(run)}
    if run.summary.curves:
        figure, (axes,) = panels(1, width=5.0)
        curves = lines.run_adaptation(run)
        draw_lines(axes, curves, "adaptation steps on own data", run.metric.title)
        metric_range(axes, curves, run.metric)
        whole_ticks(axes.xaxis)
        mark_steps(axes, run.summary.adapt_steps)
        label_ends(axes, curves)
        found["adaptation"] = figure
    if curves := lines.run_stationarity(run):
        figure, (axes,) = panels(1, width=5.0)
        draw_lines(axes, curves, "round", "‖∇F‖²", "How stationary the model is")
        log_ticks(axes, "y")
        axes.legend(fontsize=8)
        found["stationarity"] = figure
    return found


def run_learning(run: Run) -> Figure:
    """Metric and training loss over rounds, the gradients spent on a second axis."""
    loss = lines.run_loss(run, "round")
    figure, axes = panels(2 if loss else 1)
    curves = lines.run_learning(run, "round")
    metric = run.metric
    draw_lines(axes[0], curves, "round", metric.title, f"{metric.heading} on held-out data")
    metric_range(axes[0], curves, metric)
    label_ends(axes[0], curves)
    if loss:
        draw_lines(axes[1], loss, "round", "loss", "Training loss")
        axes[1].set_ylim(bottom=0)
    add_gradients_axis(axes[0], run.evaluations[-1])
    return figure


def add_gradients_axis(ax: Axes, last: Evaluation) -> None:
    """Below the rounds, the gradients they cost."""
    if not last.round or not last.gradients:
        return
    scale = last.gradients / last.round

    def spent(rounds: Any) -> Any:
        return rounds * scale

    def rounds(spent: Any) -> Any:
        return spent / scale

    below = ax.secondary_xaxis(-0.24, functions=(spent, rounds))
    whole_ticks(below.xaxis)
    below.set_xlabel(AXIS_TITLES["gradients"])


def run_clients(run: Run) -> Figure:
    """Every client before and after adaptation, known and new apart."""
    groups = [g for g in groups_of(run) if run.clients_of(g)]
    rows = max(len(run.clients_of(g)) for g in groups)
    figure, axes = panels(len(groups), height=clients_height(rows))
    for ax, group in zip(axes, groups, strict=True):
        draw_clients(ax, run.clients_of(group), group, run.metric)
    return figure


def comparison_figures(comparison: Comparison) -> dict[str, Figure]:
    """Several methods: learning by round and by gradients, adaptation, clients, differences."""
    groups = groups_of(comparison)
    if not groups:
        return {}
    found = {
        "learning-after": training_figure(comparison, "after", "round"),
        "learning-before": training_figure(comparison, "before", "round"),
        "learning-by-gradients": training_figure(comparison, "after", "gradients"),
        "clients": methods_figure(comparison),
    }
    losses = lines.loss(comparison, "round")
    if losses:
        found["training-loss"], (ax,) = panels(1, width=5.0)
        draw_lines(ax, losses, "round", "training loss")
        ax.set_ylim(bottom=0)
        label_ends(ax, losses)
    curves = {g: lines.adaptation(comparison, g) for g in groups}
    if any(curves.values()):
        title = "adaptation steps on own data"
        steps = comparison.board.adapt_steps
        found["adaptation"] = lines_figure(curves, title, comparison.metric, steps)
    if any(row.differences for row in comparison.board.rows):
        found["differences"] = differences_figure(comparison)
    return found


def training_figure(comparison: Comparison, when: When, axis: Axis) -> Figure:
    """The metric over training, a panel for each group of clients."""
    curves = {g: lines.learning(comparison, g, when, axis) for g in groups_of(comparison)}
    return lines_figure(curves, AXIS_TITLES[axis], comparison.metric, when=when)


def lines_figure(
    curves: dict[str, list[Line]],
    x_title: str,
    metric: Metric,
    steps: int | None = None,
    when: str = "",
) -> Figure:
    """A panel for each group with one line per method, named at the right edge."""
    figure, axes = panels(len(curves), share=True)
    for ax, (group, some) in zip(axes, curves.items(), strict=True):
        y_title = metric.titled(when) if ax is axes[0] else ""
        draw_lines(ax, some, x_title, y_title, GROUP_NAMES[group])
        mark_steps(ax, steps)
        whole_ticks(ax.xaxis)
    metric_range(axes[-1], [line for some in curves.values() for line in some], metric)
    label_ends(axes[-1], list(curves.values())[-1])
    return figure


def methods_figure(comparison: Comparison) -> Figure:
    """Where single clients lie after adaptation, by method."""
    groups = groups_of(comparison)
    height = 1.0 + 0.42 * len(comparison.methods)
    figure, axes = panels(len(groups), height=height, share=True)
    everyone = [c for m in comparison.methods for g in groups for c in pooled(m, g)]
    metric = comparison.metric
    low, high = limits(shown_values(everyone, "after", metric), metric, floor=True)
    room = 2 if metric.is_share else 0.02 * (high - low)
    for ax, group in zip(axes, groups, strict=True):
        ax.set_xlim(low - room / 2, high + room)
        draw_methods(ax, comparison, group, lines.looks_of(comparison))
    return figure


def differences_figure(comparison: Comparison) -> Figure:
    """Paired differences to the baseline."""
    rows = comparison.board.rows
    groups = [g for g in groups_of(comparison) if any(g in row.differences for row in rows)]
    height = 1.1 + 0.5 * max(1, len(comparison.methods) - 1)
    figure, axes = panels(len(groups), height=height, share=True)
    for ax, group in zip(axes, groups, strict=True):
        draw_differences(ax, comparison.board, group, lines.looks_of(comparison))
    return figure


def panels(
    count: int, *, width: float = WIDTH, height: float = 2.9, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, sharey=share, squeeze=False)[0])


def whole_ticks(axis: XAxis) -> None:
    """Ticks at whole numbers, as 500, 10 k, 2 M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter(EngFormatter())


def log_ticks(ax: Axes, *names: Literal["x", "y"]) -> None:
    """Logarithmic axes with plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for name in names:
        ax.set(**{f"{name}scale": "log"})
        axis = ax.xaxis if name == "x" else ax.yaxis
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def mark_steps(ax: Axes, steps: int | None) -> None:
    """A thin line at the number of steps all other numbers are taken at."""
    if steps:
        ax.axvline(steps, color="#999999", linewidth=0.8, linestyle=":")


@contextmanager
def style() -> Iterator[None]:
    """The look while drawing; a letter the font lacks is drawn as a box, without complaint."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield
