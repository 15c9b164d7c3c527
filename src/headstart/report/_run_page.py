"""The page of one run."""

from __future__ import annotations

import shlex

from headstart._metric import DASH, Metric
from headstart.records import ADAPTED_ON_TEST, NEW, RunSummary, StoredRun
from headstart.report._charts import add_warning
from headstart.report._client_panels import rank_clients
from headstart.report._page_parts import Command, Details, Page, PageSection, Table
from headstart.report._run_charts import run_charts
from headstart.report._shared_parts import (
    budget_table,
    explain_words,
    format_before_after,
    host_facts,
    quote_path,
)
from headstart.report._wording import (
    GROUP_NAMES,
    format_count,
    format_interval,
    plural,
    run_headline,
    tail_name,
)

SHOWN_CLIENTS = 5


def run_page(run: StoredRun) -> Page:
    """Return the page of a run."""
    summary = run.summary
    warning = ADAPTED_ON_TEST if summary.adapt_on == "test" else ""
    return Page(
        title=summary.name,
        subtitle=subtitle(run),
        headline=run_headline(summary),
        warning=warning,
        alarms=[f"Failed: {failure}." for failure in summary.failures],
        notes=[f"{summary.note[0].upper()}{summary.note[1:]}."] if summary.note else [],
        sections=[
            PageSection(
                "Results",
                [
                    metric_table(summary),
                    *other_metrics_table(summary),
                    *choice_table(summary),
                    budget_table({summary.name: summary}),
                ],
            ),
            *add_warning(run_charts(run), warning),
            PageSection("Clients to look at", worst_clients_tables(run)),
            PageSection("What to do next", next_commands(run)),
            PageSection("How to read this page", [explain_words("clients", summary.metric)]),
            PageSection(
                "How it was made",
                [Details("Configuration", text=run.config), *host_facts(summary.host)],
            ),
        ],
    )


def subtitle(run: StoredRun) -> str:
    """Return data, numbers of clients, rounds and seed in one line."""
    summary = run.summary
    counts = [
        f"{len(run.clients_of(group)):,} {GROUP_NAMES[group].lower()}"
        for group in summary.scores.groups
    ]
    seed = "" if summary.seed is None else f"seed {summary.seed}"
    words = [summary.data, *counts, plural(summary.rounds, "round"), seed]
    return " · ".join(filter(None, words))


def metric_table(summary: RunSummary) -> Table:
    """Return the primary metric of known and new clients, before and after."""
    metric = summary.metric
    pairs = {group: summary.scores.primary(group) for group in summary.scores.groups}
    rows = [
        [GROUP_NAMES[group], *format_before_after(metric, pair),
         format_change(metric, pair.before.tail(metric), pair.after.tail(metric)),
         format_change(metric, pair.before.worst(metric), pair.after.worst(metric))]
        for group, pair in pairs.items()
    ]  # fmt: skip
    return Table(
        f"{metric.heading} on held-out data, {plural(summary.adapt_steps, 'adaptation step')}",
        ["", "before", "after", tail_name(metric), "worst client"],
        rows,
        "Mean over clients ± half the 95 % confidence interval; “→” from before to after.",
        warned=summary.adapt_on == "test",
    )


def format_change(metric: Metric, before: float | None, after: float | None) -> str:
    """Return one number before and after."""
    return f"{metric.text(before)} → {metric.text(after)}"


def other_metrics_table(summary: RunSummary) -> list[Table]:
    """Return the metrics besides the primary one, if there are any."""
    rows = [
        [metric.heading, GROUP_NAMES[group], *format_before_after(metric, scores[metric.name])]
        for metric in summary.scores.metrics[1:]
        for group, scores in summary.scores.groups.items()
    ]
    title, head = "Other metrics on held-out data", ["metric", "clients", "before", "after"]
    note = "Mean over the clients that define the metric."
    return [Table(title, head, rows, note, summary.adapt_on == "test")] if rows else []


def choice_table(summary: RunSummary) -> list[Table]:
    """Return what changes if every client chooses its own number of steps, if that was measured."""
    if summary.choice is None:
        return []
    metric, most = summary.metric, summary.choice.most_steps
    rows = []
    for group, part in summary.choice.groups.items():
        fixed = summary.scores.primary(group).after
        rows += [
            [GROUP_NAMES[group], f"{most} for all", format_interval(metric, fixed),
             *map(format_share, (part.fixed.lower, part.fixed.beyond_chance))],
            ["", f"own choice, mean {part.mean_steps:.1f}", format_interval(metric, part.metric),
             *map(format_share, (part.chosen.lower, part.chosen.beyond_chance))],
        ]  # fmt: skip
    note = (
        f"Own choice: each client keeps {most} unless cross-validation on its training examples "
        "speaks against it; then it takes fewer, or none. Worse off: compared with the shared "
        "model on the same held-out examples; beyond chance: by an exact sign test, one-sided at "
        "2.5 %."
    )
    head = ["", "adaptation steps", metric.word, "worse off", "beyond chance"]
    title = "Clients that choose their number of steps"
    return [Table(title, head, rows, note, summary.adapt_on == "test")]


def format_share(share: float | None) -> str:
    """Return a share in percent, or a dash.

    >>> format_share(0.025), format_share(None)
    ('2.5 %', '–')
    """
    return DASH if share is None else f"{100 * share:.1f} %"


def worst_clients_tables(run: StoredRun) -> list[Table]:
    """Return the clients with the worst numbers after adaptation, a table for each group."""
    groups = run.summary.scores.groups
    tables = (worst_clients_table(run, group) for group in groups)
    return [table for table in tables if table.rows]


def worst_clients_table(run: StoredRun, group: str) -> Table:
    """Return a group's clients with the worst numbers after adaptation."""
    metric = run.metric
    clients = rank_clients(run.clients_of(group), metric)[:SHOWN_CLIENTS]
    head = ["client", "before", "after", "training examples", "held-out examples"]
    rows = [
        [c.name, metric.text(c[metric.name].before), metric.text(c[metric.name].after),
         format_count(c.train_examples), format_count(c.test_examples)]
        for c in clients
    ]  # fmt: skip
    if any(client.classes for client in clients):
        head = [*head, "classes"]
        rows = [[*row, format_count(c.classes)] for row, c in zip(rows, clients, strict=True)]
    end = "lowest" if metric.direction == "higher" else "highest"
    title = f"{GROUP_NAMES[group]}: the {end} after adaptation"
    note = "The complete list is in clients.csv."
    return Table(title, head, rows, note, run.summary.adapt_on == "test")


def next_commands(run: StoredRun) -> list[Command]:
    """Return what to do after a run."""
    folder, config = quote_path(run.path), quote_path(run.path / "config.toml")
    steps = run.summary.adapt_steps or 1
    client = next((c for c in run.clients if c.group == NEW), run.clients[0])
    return [
        Command(
            "Adapt the model to one client",
            [f"headstart data export {config} --client {shlex.quote(client.name)} --out mine.csv",
             f"headstart personalize {folder} --data mine.csv --steps {steps}"],
        ),
        Command(
            "Find out whether another method does better, over several seeds",
            [f"headstart compare {config} OTHER.toml --seeds 5"],
        ),
        Command("See who the clients are", [f"headstart data describe {config}"]),
        Command("Get the same numbers again", [f"headstart run {config} --out again"]),
    ]  # fmt: skip
