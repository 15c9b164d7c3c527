"""The charts of one run: clients, adaptation, learning, stationarity."""

from __future__ import annotations

from dataclasses import replace

from headstart.records import StoredRun
from headstart.report._charts import Axis, Chart, Line, Panel, View, shorten
from headstart.report._client_panels import MOST_ROWS, histogram_panel, rows_panel, scatter_panel
from headstart.report._curves import (
    LOSS,
    SHOTS_TITLE,
    STEPS_TITLE,
    UNIT_TITLES,
    Unit,
    group_style,
    groups_of,
    line_panels,
    run_adaptation,
    run_learning,
    run_loss,
    run_shots,
    run_stationarity,
)
from headstart.report._palette import SeriesStyle, method_styles
from headstart.report._wording import GROUP_NAMES, plural


def run_charts(run: StoredRun) -> list[Chart]:
    """Return all charts of a run."""
    return [
        clients_chart(run),
        *adaptation_chart(run),
        *rates_chart(run),
        *shots_chart(run),
        learning_chart(run),
        *stationarity_chart(run),
    ]


def clients_chart(run: StoredRun) -> Chart:
    """Return every client before and after: rows for few clients, distributions for many."""
    metric, key, title = run.metric, "clients", "Every client, before and after adaptation"
    parts = {group: run.clients_of(group) for group in groups_of(run)}
    lowest, left, above, below = (
        ("lowest", "left", "gained", "lost")
        if metric.direction == "higher"
        else ("highest", "right", "lost", "gained")
    )
    by_size = [
        (rows_panel if len(clients) <= MOST_ROWS else histogram_panel)(clients, group, metric)
        for group, clients in parts.items()
    ]
    if max(len(clients) for clients in parts.values()) <= MOST_ROWS:
        caption = (
            f"One row per client, {lowest} {metric.word} after adaptation at the bottom. A filled "
            f"dot {left} of its hollow one is a client that adaptation made worse."
        )
        return Chart(key, title, caption, [View("", by_size, "clients")])
    caption = (
        f"Number of clients at each {metric.word}, or a row per client where there are few; or "
        f"every client as a dot: above the diagonal it {above} by adaptation, below it {below}."
    )
    each = [scatter_panel(clients, group, metric) for group, clients in parts.items()]
    views = [View("distribution", by_size, "clients"), View("each client", each)]
    return Chart(key, title, caption, views)


def adaptation_chart(run: StoredRun) -> list[Chart]:
    """Return the metric against adaptation steps, if it was measured."""
    lines = run_adaptation(run)
    if not lines:
        return []
    x = Axis(STEPS_TITLE, whole=True)
    panels = line_panels({"": lines}, x, run.metric.title, run.metric, run.summary.adapt_steps)
    caption = (
        f"Mean {run.metric.word} after 0, 1, 2 … gradient steps on the client's own data. Band: "
        "95 % confidence interval of the mean over clients. Dotted line: the number of steps used "
        "everywhere else on this page."
    )
    title = "How many adaptation steps a client needs"
    return [Chart("adaptation", title, caption, [View("", panels, "adaptation")], _legend(run))]


def rates_chart(run: StoredRun) -> list[Chart]:
    """Return which arrays of the model an adaptation step moves, if that was learned."""
    rates = run.summary.rates
    if not rates:
        return []
    names, count = list(rates), len(next(iter(rates.values())))
    steps = [f"step {number}" for number in range(1, count)]
    steps.append(f"step {count} and later" if steps else "every step")
    lines = []
    for step, style in enumerate(method_styles(steps, baseline=None).values()):
        values = [rates[name][step] for name in names]
        texts = [f"{name}: {value:.3g}" for name, value in zip(names, values, strict=True)]
        lines.append(Line(style, range(len(names)), values, texts=texts))
    x = Axis("array of the model, from the input to the output", names=tuple(map(shorten, names)))
    panel = Panel(x, Axis("learned rate", log=True), lines)
    caption = (
        "The step size that training found for each array, instead of one α for all: how far an "
        "adaptation step moves the array, for the same gradient. For rates per coordinate, their "
        "geometric mean."
    )
    title, views = "Which layers clients move", [View("", [panel], "rates")]
    return [Chart("rates", title, caption, views, [line.style for line in lines])]


def shots_chart(run: StoredRun) -> list[Chart]:
    """Return the metric against the number of own examples, if it was measured."""
    lines = run_shots(run)
    if not lines:
        return []
    x = Axis(SHOTS_TITLE, log=True)
    panels = line_panels({"": lines}, x, run.metric.title, run.metric)
    caption = (
        f"Mean {run.metric.word} after {plural(run.summary.adapt_steps, 'adaptation step')} on the "
        "first 1, 2, 5 … of a client's training examples in random order. A client with fewer "
        "adapts to all it has. Last point: all examples, drawn at the mean number of training "
        "examples. Band: 95 % confidence interval of the mean over clients."
    )
    title = "How many examples a client needs"
    return [Chart("shots", title, caption, [View("", panels, "shots")], _legend(run))]


def learning_chart(run: StoredRun) -> Chart:
    """Return metric and loss over training."""
    caption = (
        "Solid: after adaptation, with the 95 % confidence interval of the mean over clients; "
        "dashed: the shared model as it is, before adaptation. The loss is what clients reported "
        "while training, since the previous evaluation."
    )
    views = [
        View("by round", _learning_panels(run, "round"), "learning"),
        View("by gradient evaluations", _learning_panels(run, "gradient_evaluations")),
    ]
    return Chart("learning", "How training went", caption, views, _legend(run))


def stationarity_chart(run: StoredRun) -> list[Chart]:
    """Return ‖∇F‖² and the theorem's bound, if it was measured."""
    lines = run_stationarity(run)
    if not lines:
        return []
    caption = (
        "‖∇F(w)‖² over the clients' whole training data, at one random iterate of every evaluated "
        "round (P Remark 4.7), and its mean so far, which is what P Theorem 4.5 and G Theorem 8 "
        "bound. "
    )
    if run.bound is not None and run.bound.reason is not None:
        caption += f"No bound is drawn: {run.bound.reason}."
    elif run.bound is not None:
        caption += (
            "The bound uses constants estimated at the initial and the final model, which are "
            "lower estimates; it covers the worst case and is usually far above what happens."
        )
    panel = Panel(Axis("round", whole=True), Axis("‖∇F‖²", log=True), lines)
    views = [View("", [panel], "stationarity")]
    title = "How stationary the model is"
    return [Chart("stationarity", title, caption, views, [line.style for line in lines])]


def _learning_panels(run: StoredRun, unit: Unit) -> list[Panel]:
    metric, last = run.metric, run.evaluations[-1]
    x, gradients = Axis(UNIT_TITLES[unit], whole=True), last.gradient_evaluations
    both_units = x
    if unit == "round" and last.round and gradients:
        other_unit = (UNIT_TITLES["gradient_evaluations"], gradients / last.round)
        both_units = replace(x, other_unit=other_unit)
    title = f"{metric.heading} on held-out data"
    return [
        *line_panels({title: run_learning(run, unit)}, both_units, metric.title, metric),
        *line_panels({"Training loss": run_loss(run, unit)}, x, "loss", LOSS),
    ]


def _legend(run: StoredRun) -> list[SeriesStyle]:
    return [SeriesStyle(g, GROUP_NAMES[g], group_style(g).colour) for g in groups_of(run)]
