"""Which interactive plots the page shows, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headstart.metric import Metric
from headstart.report import lines
from headstart.report.client_panels import histogram_panel, rows_panel, scatter_panel
from headstart.report.lines import AXIS_TITLES, Axis, Line, When, groups_of, looks_of
from headstart.report.method_panels import differences_panel, methods_panel
from headstart.report.palette import Look
from headstart.report.panels import lines_panel
from headstart.report.people import MOST_ROWS
from headstart.report.reading import Client, Comparison, Run
from headstart.report.records import GROUP_NAMES
from headstart.report.spread import floor_ten

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEPS = "adaptation steps on own data"


@dataclass(frozen=True)
class View:
    """One of several ways to look at a plot: panels side by side."""

    name: str
    panels: Sequence[Figure]


@dataclass(frozen=True)
class Plot:
    """A plot of the page."""

    key: str
    title: str
    caption: str
    views: Sequence[View]
    looks: Sequence[Look] = ()

    def to_json(self) -> str:
        """The panels of every view, fit to stand inside a script element."""
        views = ("[" + ",".join(str(p.to_json()) for p in view.panels) + "]" for view in self.views)
        return "[" + ",".join(views).replace("<", "\\u003c") + "]"


def plots_of(thing: Run | Comparison) -> list[Plot]:
    """All plots of a run or a comparison; empty ones are left out."""
    plots = run_plots(thing) if isinstance(thing, Run) else comparison_plots(thing)
    about = thing.summary if isinstance(thing, Run) else thing.board
    if about.adapt_on == "test":
        for panel in (p for plot in plots for view in plot.views for p in view.panels):
            mark(panel)
    return [plot for plot in plots if any(view.panels for view in plot.views)]


def mark(panel: Figure) -> None:
    """A warning inside the panel, which stays when the panel is saved as an image."""
    if "loss" not in (panel.layout.yaxis.title.text or ""):
        panel.add_annotation(
            text="⚠ adapted on the data that is scored", font={"size": 10, "color": "#C2001B"},
            xref="paper", yref="paper", x=0, y=1, xanchor="left", yanchor="bottom", showarrow=False,
        )  # fmt: skip


def run_plots(run: Run) -> list[Plot]:
    """One run: clients, adaptation, learning."""
    groups = groups_of(run)
    looks = [Look(g, GROUP_NAMES[g], lines.group_look(g).colour) for g in groups]
    return [
        Plot("clients", "Every client, before and after adaptation", *clients_views(run)),
        Plot(
            "adaptation",
            "How many adaptation steps a client needs",
            f"Mean {run.metric.word} after 0, 1, 2 … gradient steps on the client's own data. "
            "Band: 95 % confidence interval of the mean over clients. Dotted line: the number of "
            "steps used everywhere else on this page.",
            [View("", adaptation_panels(run))],
            looks,
        ),
        Plot(
            "learning",
            "How training went",
            "Solid: after adaptation, with the 95 % confidence interval of the mean over clients; "
            "dashed: the shared model as it is, before adaptation. The loss is what clients "
            "reported while training, since the evaluation before.",
            [training_view(run, "round"), training_view(run, "gradients")],
            looks,
        ),
        *stationarity_plots(run),
    ]


def stationarity_plots(run: Run) -> list[Plot]:
    """‖∇F‖² beside the theorem's bound, if it was measured."""
    curves = lines.run_stationarity(run)
    if not curves:
        return []
    caption = (
        "‖∇F(w)‖² over the clients' whole training data, at one random iterate of every evaluated "
        "round (P Remark 4.7), and its mean so far, which is what P Theorem 4.5 and G Theorem 8 "
        "bound. "
    )
    promise = run.promise
    if promise is not None and promise.reason is not None:
        caption += f"No bound is drawn: {promise.reason}."
    elif promise is not None:
        caption += (
            "The bound uses constants found at the initial and the final model, which are lower "
            "estimates; it guards against the worst case and is usually far above what happens."
        )
    panel = lines_panel(curves, "round", "‖∇F‖²", log=True)
    looks = [line.look for line in curves]
    return [
        Plot("stationarity", "How stationary the model is", caption, [View("", [panel])], looks)
    ]


def adaptation_panels(run: Run) -> list[Figure]:
    """The metric against adaptation steps."""
    curves = lines.run_adaptation(run)
    steps = run.summary.adapt_steps
    return [lines_panel(curves, STEPS, run.metric.title, steps=steps)] if curves else []


def training_view(run: Run, axis: Axis) -> View:
    """Metric and loss over training."""
    title, metric = AXIS_TITLES[axis], run.metric
    panels = [lines_panel(lines.run_learning(run, axis), title, metric.title, metric.heading)]
    if loss := lines.run_loss(run, axis):
        panels.append(lines_panel(loss, title, "loss", "Training loss"))
    return View(f"by {title.removesuffix(' in training')}", panels)


def clients_views(run: Run) -> tuple[str, list[View]]:
    """The caption and the views of single clients: rows for few, distributions for many."""
    parts = {g: run.clients_of(g) for g in groups_of(run) if run.clients_of(g)}
    metric = run.metric
    lowest, left, above, below = (
        ("lowest", "left", "gained", "lost")
        if metric.direction == "higher"
        else ("highest", "right", "lost", "gained")
    )

    def view(name: str, draw: Callable[[Sequence[Client], str, Metric], Figure]) -> View:
        return View(name, [draw(clients, group, metric) for group, clients in parts.items()])

    if max(len(clients) for clients in parts.values()) <= MOST_ROWS:
        return (
            f"One row per client, {lowest} {metric.word} after adaptation at the bottom. A filled "
            f"dot {left} of its hollow one is a client that adaptation made worse.",
            [view("", rows_panel)],
        )
    return (
        f"Number of clients at each {metric.word}; or every client as a dot: above the diagonal "
        f"it {above} by adaptation, below it {below}.",
        [view("distribution", histogram_panel), view("each client", scatter_panel)],
    )


def comparison_plots(comparison: Comparison) -> list[Plot]:
    """Several methods: differences, adaptation, learning, clients."""
    named = looks_of(comparison)
    looks = [named[method.row.label] for method in comparison.methods if method.runs]
    metric = comparison.metric
    unit = ", in percentage points" if metric.is_share else ""
    band = f"Band: 95 % confidence interval over {comparison.over}."
    return [
        Plot(
            "differences",
            f"Difference to {comparison.board.baseline}",
            f"{metric.heading} after adaptation minus the baseline's{unit}, paired by seed: both "
            "methods saw the same clients. Small dots: single seeds; diamond and bar: mean and "
            "95 % confidence interval. A bar that crosses zero shows no difference.",
            [View("", differences_panels(comparison))],
        ),
        Plot(
            "adaptation",
            "How many adaptation steps a client needs",
            f"Mean {metric.word} after 0, 1, 2 … gradient steps on the client's own data. {band} "
            "Dotted line: the number of steps used everywhere else on this page.",
            [View("", method_adaptation_panels(comparison))],
            looks,
        ),
        Plot("learning", "How training went", f"Mean over clients. {band}",
             learning_views(comparison), looks),
        Plot(
            "clients",
            "Where single clients lie",
            "Box: the middle half of the clients and their median; whiskers: from the 10th to the "
            "90th percentile; diamond: mean; dots: single clients, all seeds together.",
            [clients_view(comparison, "after"), clients_view(comparison, "before")],
        ),
    ]  # fmt: skip


def differences_panels(comparison: Comparison) -> list[Figure]:
    """Paired differences for each group that has any."""
    board, looks = comparison.board, looks_of(comparison)
    groups = [g for g in groups_of(comparison) if any(g in row.differences for row in board.rows)]
    return [differences_panel(board, group, looks) for group in groups]


def method_adaptation_panels(comparison: Comparison) -> list[Figure]:
    """The metric against adaptation steps for each group."""
    steps = comparison.board.adapt_steps
    curves = {group: lines.adaptation(comparison, group) for group in groups_of(comparison)}
    return grouped(curves, STEPS, comparison.metric.title, steps)


def learning_views(comparison: Comparison) -> list[View]:
    """After by round and by gradients, before by round, and the training loss."""
    ways: list[tuple[str, When, Axis]] = [
        ("after, by round", "after", "round"),
        ("after, by gradient evaluations", "after", "gradients"),
        ("before, by round", "before", "round"),
    ]
    views = [View(name, learning_panels(comparison, when, axis)) for name, when, axis in ways]
    if loss := lines.loss(comparison, "round"):
        views.append(View("training loss", [lines_panel(loss, "round", "training loss")]))
    return views


def learning_panels(comparison: Comparison, when: When, axis: Axis) -> list[Figure]:
    """The metric over training for each group."""
    curves = {g: lines.learning(comparison, g, when, axis) for g in groups_of(comparison)}
    return grouped(curves, AXIS_TITLES[axis], comparison.metric.titled(when))


def grouped(
    curves: Mapping[str, Sequence[Line]], x_title: str, y_title: str, steps: int | None = None
) -> list[Figure]:
    """A panel for each group, all with the same range of shares."""
    every = [v for some in curves.values() for ln in some for v in (*ln.y, *ln.low)]
    floor = floor_ten([v for v in every if v is not None])
    return [
        lines_panel(some, x_title, y_title, GROUP_NAMES[group], steps=steps, floor=floor)
        for group, some in curves.items()
        if some
    ]


def clients_view(comparison: Comparison, when: When) -> View:
    """Boxes of clients by method, for each group."""
    looks = looks_of(comparison)
    groups = groups_of(comparison)
    return View(when, [methods_panel(comparison, group, when, looks) for group in groups])
