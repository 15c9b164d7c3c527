"""What stands on the page beside the plots: tables, facts, next commands. Plain values only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headstart.metric import Metric
from headstart.report.palette import ADAPTED_ON_TEST
from headstart.report.people import ranked
from headstart.report.reading import Comparison, Method, Run
from headstart.report.records import GROUP_NAMES, GROUPS, NEW, Pair, Stat, Summary
from headstart.report.spread import worst_of
from headstart.report.wording import (
    DASH,
    alarms,
    comparison_headline,
    notes,
    plural,
    points,
    run_headline,
    tail_name,
    whole,
    with_interval,
)

SHOWN_CLIENTS = 5


@dataclass(frozen=True)
class Cells:
    """A table: a title, a head and rows of text; ``marked`` if adaptation made its numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Command:
    """Something to do next."""

    why: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Content:
    """All texts of one page."""

    title: str
    subtitle: str
    headline: Sequence[str]
    tables: Sequence[Cells]
    configs: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    commands: Sequence[Command]
    reading: Sequence[tuple[str, str]]
    mark: str = ""
    alarms: Sequence[str] = ()
    notes: Sequence[str] = ()
    details: Sequence[Cells] = field(default=())


def content_of(thing: Run | Comparison) -> Content:
    """The texts for a run or a comparison."""
    return run_content(thing) if isinstance(thing, Run) else comparison_content(thing)


def run_content(run: Run) -> Content:
    """One run."""
    summary = run.summary
    counts = [f"{len(run.clients_of(g)):,} {GROUP_NAMES[g].lower()}" for g in GROUPS]
    shown = [c for c, g in zip(counts, GROUPS, strict=True) if g in summary.groups]
    rounds = plural(summary.rounds, "round")
    seed = [] if summary.seed is None else [f"seed {summary.seed}"]
    marked = summary.adapt_on == "test"
    return Content(
        title=summary.label,
        subtitle=" · ".join([*filter(None, [summary.data]), *shown, rounds, *seed]),
        headline=run_headline(summary),
        tables=[metric_table(summary, marked), *other_metrics(summary, marked),
                budget_table([(summary.label, summary)])],
        details=[t for g in GROUPS if g in summary.groups for t in lowest_clients(run, g, marked)],
        configs=[("Configuration", run.config)],
        facts=host_facts(run),
        commands=run_commands(run),
        reading=how_to_read("clients", summary.metric),
        mark=ADAPTED_ON_TEST if marked else "",
        alarms=[f"Failed: {failure}." for failure in summary.failures],
        notes=[f"{summary.note[0].upper()}{summary.note[1:]}."] if summary.note else [],
    )  # fmt: skip


def comparison_content(comparison: Comparison) -> Content:
    """Several methods side by side."""
    board = comparison.board
    groups = [g for g in GROUPS if any(g in row.groups for row in board.rows)]
    marked = board.adapt_on == "test"
    runs = [run for method in comparison.methods for run in method.runs]
    rounds = " or ".join(plural(count, "round") for count in board.rounds)
    words = [board.data, plural(len(board.seeds), "seed"), rounds]
    budgets = [(m.row.label, m.runs[0].summary) for m in comparison.methods if m.runs]
    return Content(
        title=("Comparison of " if comparison.path else "Side by side: ")
        + plural(len(board.rows), "method"),
        subtitle=" · ".join(filter(None, words)),
        headline=comparison_headline(comparison),
        alarms=alarms(board.rows),
        notes=notes(comparison),
        tables=[methods_table(comparison, g, marked) for g in groups] + [budget_table(budgets)],
        configs=[(m.row.label, m.runs[0].config) for m in comparison.methods if m.runs],
        facts=host_facts(runs[0]) if runs else [],
        commands=comparison_commands(comparison),
        reading=how_to_read(comparison.over, comparison.metric),
        mark=ADAPTED_ON_TEST if marked else "",
    )


def metric_table(summary: Summary, marked: bool) -> Cells:
    """Known and new clients, before and after."""
    metric = summary.metric
    head = ["", "before", "after", tail_name(metric), "worst client"]
    rows = [
        [GROUP_NAMES[g], *both(metric, pair),
         change(metric, pair.before.tail(metric), pair.after.tail(metric)),
         change(metric, pair.before.worst(metric), pair.after.worst(metric))]
        for g, pair in summary.groups.items()
    ]  # fmt: skip
    note = "Mean over clients ± half the 95 % confidence interval; “→” from before to after."
    return Cells(
        f"{metric.heading} on held-out data, {plural(summary.adapt_steps, 'adaptation step')}",
        head, rows, note, marked,
    )  # fmt: skip


def other_metrics(summary: Summary, marked: bool) -> list[Cells]:
    """Metrics beside the primary one, if there are any."""
    rows = [
        [metric.heading, GROUP_NAMES[g], *both(metric, pair)]
        for metric, groups in summary.others.items()
        for g, pair in groups.items()
    ]
    note = "Mean over the clients that define the metric."
    head = ["metric", "clients", "before", "after"]
    return [Cells("Other metrics on held-out data", head, rows, note, marked)] if rows else []


def both(metric: Metric, pair: Pair) -> list[str]:
    """Before and after with their intervals."""
    return [with_interval(metric, pair.before), with_interval(metric, pair.after)]


def change(metric: Metric, before: float | None, after: float | None) -> str:
    """One number before and after."""
    return f"{metric.text(before)} → {metric.text(after)}"


def methods_table(comparison: Comparison, group: str, marked: bool) -> Cells:
    """One group of clients, a row for each method."""
    board = comparison.board
    judged = any(group in row.differences for row in board.rows)
    metric = board.metric
    head = ["method", "before", "after", tail_name(metric), "worst client"]
    extra = [f"difference to {board.baseline}"] if judged else []
    rows = [
        method_cells(m, group, metric)
        + ([verdict_cell(m, group, board.baseline)] if judged else [])
        for m in comparison.methods
    ]
    note = (
        f"Mean ± half the 95 % confidence interval over {comparison.over}; {tail_name(metric)} and "
        "worst client after adaptation."
    )
    steps = plural(board.adapt_steps, "adaptation step")
    title = f"{GROUP_NAMES[group]}: {metric.word}, {steps}"
    return Cells(title, head + extra, rows, note, marked)


def method_cells(method: Method, group: str, metric: Metric) -> list[str]:
    """A method's numbers for one group of clients."""
    pair = method.row.groups.get(group, Pair(Stat(None), Stat(None)))
    pairs = [run.summary.groups.get(group) for run in method.runs]
    worst = worst_of([p.after.worst(metric) for p in pairs if p is not None], metric)
    label = method.row.label + (" (diverged)" if not method.row.seeds else "")
    return [label, *both(metric, pair), metric.text(pair.after.tail(metric)), metric.text(worst)]


def verdict_cell(method: Method, group: str, baseline: str | None) -> str:
    """The difference in words and numbers."""
    if method.row.label == baseline:
        return "baseline"
    difference = method.row.differences.get(group)
    verdict = method.row.verdict(group)
    return (
        DASH
        if difference is None
        else f"{points(difference)}{difference.metric.difference_unit}: {verdict}"
    )


def budget_table(entries: Sequence[tuple[str, Summary]]) -> Cells:
    """Gradient evaluations, and the time they took."""
    head = ["", "in training", "per client and round", "to adapt one client", "training time"]
    rows = [
        [label, whole(s.budget.training), whole(s.budget.round), whole(s.budget.adaptation),
         DASH if s.seconds is None else f"{s.seconds:,.1f} s"]
        for label, s in entries
    ]  # fmt: skip
    note = "One gradient on one batch counts 1, a Hessian-vector product 2."
    return Cells("Gradient budget (one run)", head, rows, note)


def lowest_clients(run: Run, group: str, marked: bool) -> list[Cells]:
    """The clients with the worst numbers after adaptation."""
    metric = run.metric
    some = ranked(run.clients_of(group), metric)[:SHOWN_CLIENTS]
    head = ["client", "before", "after", "training examples", "held-out examples"]
    rows = [
        [c.name, metric.text(c.before), metric.text(c.after), whole(c.train), whole(c.test)]
        for c in some
    ]
    if any(c.classes for c in some):
        head = [*head, "classes"]
        rows = [[*row, whole(c.classes)] for row, c in zip(rows, some, strict=True)]
    end = "lowest" if metric.direction == "higher" else "highest"
    title = f"{GROUP_NAMES[group]}: the {end} after adaptation"
    return [Cells(title, head, rows, "The whole list is in clients.csv.", marked)] if rows else []


def host_facts(run: Run) -> list[tuple[str, str]]:
    """Versions and the kind of machine."""
    host = run.summary.host
    facts = [(str(k), str(v)) for k, v in (host.get("versions") or {}).items()]
    for key in ("python", "system", "machine", "cores"):
        if host.get(key) is not None:
            facts.append((key, str(host[key])))
    devices = host.get("devices") or []
    return [*facts, ("devices", ", ".join(map(str, devices)))] if devices else facts


def run_commands(run: Run) -> list[Command]:
    """What to do after one run."""
    here, config = quoted(run.path), quoted(run.path / "config.toml")
    steps = run.summary.adapt_steps or 1
    someone = next((c for c in run.clients if c.group == NEW), run.clients[0])
    return [
        Command(
            "Make the model one client's own",
            [f"headstart data export {config} --client {shlex.quote(someone.name)} --out mine.csv",
             f"headstart personalize {here} --data mine.csv --steps {steps}"],
        ),
        Command(
            "Find out whether another method does better, over several seeds",
            [f"headstart compare {config} OTHER.toml --seeds 5"],
        ),
        Command("See who the clients are", [f"headstart data describe {config}"]),
        Command("Get the same numbers again", [f"headstart run {config} --out again"]),
    ]  # fmt: skip


def comparison_commands(comparison: Comparison) -> list[Command]:
    """What to do after a comparison."""
    firsts = [method.runs[0].path for method in comparison.methods if method.runs]
    configs = [quoted(path / "config.toml") for path in firsts]
    more = max(5, 2 * len(comparison.board.seeds))
    out = "" if comparison.path is None else f" --out {quoted(comparison.path)}"
    commands = [
        Command(
            "Narrow the intervals with more seeds; runs that are done are not run again",
            [" \\\n    ".join(["headstart compare", *configs, f"--seeds {more}{out}"])],
        )
    ]
    if firsts:
        commands.append(
            Command("Look at one run, client by client", [f"headstart report {quoted(firsts[0])}"])
        )
    return commands


def quoted(path: Path) -> str:
    """The path as one would type it here, without the way to the present folder."""
    full, here = path.resolve(), Path.cwd()
    return shlex.quote(str(full.relative_to(here)) if full.is_relative_to(here) else str(path))


def how_to_read(over: str, metric: Metric) -> list[tuple[str, str]]:
    """The words used on the page."""
    return [
        ("before", "the shared model as every client receives it"),
        ("after", "the client's own model, a few gradient steps on its own data later"),
        (metric.word, f"{metric.meaning}; on examples the client kept aside, every client "
         "counting the same"),
        ("clients in training", "clients whose updates shaped the shared model"),
        ("clients that joined later", "clients kept out of training altogether, the honest test "
         "of what a newcomer can expect"),
        ("± and bands", f"half the 95 % confidence interval of the mean over {over}"),
        (tail_name(metric), "one client in ten is "
         + ("below" if metric.direction == "higher" else "above") + " this value"),
        ("no difference shown", "the interval of the difference contains zero; this does not prove "
         "that the methods are equal"),
        ("gradient evaluation", "one gradient on one batch: a measure of work that does not depend "
         "on the machine"),
    ]  # fmt: skip
