"""The page of a comparison, or of several runs side by side."""

from __future__ import annotations

from headstart._metric import DASH
from headstart.records import (
    ADAPTED_ON_TEST,
    BeforeAfter,
    Statistic,
    StoredComparison,
    StoredMethod,
)
from headstart.report._charts import add_warning
from headstart.report._comparison_charts import comparison_charts
from headstart.report._curves import groups_of
from headstart.report._page_parts import Command, Details, Page, PageSection, Table
from headstart.report._shared_parts import (
    budget_table,
    explain_words,
    format_before_after,
    host_facts,
    quote_path,
)
from headstart.report._wording import (
    GROUP_NAMES,
    comparison_headline,
    comparison_notes,
    failure_messages,
    format_difference,
    mark_failed,
    plural,
    tail_name,
)


def comparison_page(comparison: StoredComparison) -> Page:
    """Return the page of a comparison."""
    record = comparison.record
    finished = [method for method in comparison.methods if method.runs]
    budgets = {method.row.label: method.runs[0].summary for method in finished}
    configs = [
        Details(f"{method.row.label}: configuration", text=method.runs[0].config)
        for method in finished
    ]
    rounds = " or ".join(plural(count, "round") for count in record.rounds)
    words = [record.data_name, plural(len(record.seeds), "seed"), rounds]
    count = plural(len(record.rows), "method")
    warning = ADAPTED_ON_TEST if record.adapt_on == "test" else ""
    return Page(
        title=f"Comparison of {count}" if comparison.path else f"Side by side: {count}",
        subtitle=" · ".join(filter(None, words)),
        headline=comparison_headline(record),
        warning=warning,
        alarms=failure_messages(record.rows),
        notes=comparison_notes(comparison),
        sections=[
            PageSection(
                "Results",
                [
                    *(methods_table(comparison, group) for group in groups_of(comparison)),
                    budget_table(budgets),
                ],
            ),
            *add_warning(comparison_charts(comparison), warning),
            PageSection("What to do next", next_commands(comparison)),
            PageSection("How to read this page", [explain_words(comparison.over, record.metric)]),
            PageSection(
                "How it was made",
                [*configs, *(host_facts(finished[0].runs[0].summary.host) if finished else [])],
            ),
        ],
    )


def methods_table(comparison: StoredComparison, group: str) -> Table:
    """Return one group of clients, a row for each method."""
    record, metric = comparison.record, comparison.metric
    judged = any(row.difference(group) for row in record.rows)
    head = ["method", "before", "after", tail_name(metric), "worst client"]
    rows = [_method_cells(comparison, method, group) for method in comparison.methods]
    if judged:
        head = [*head, f"difference to {record.baseline}"]
        verdicts = [_verdict(comparison, method, group) for method in comparison.methods]
        rows = [[*row, verdict] for row, verdict in zip(rows, verdicts, strict=True)]
    return Table(
        f"{GROUP_NAMES[group]}: {metric.word}, {plural(record.adapt_steps, 'adaptation step')}",
        head,
        rows,
        f"Mean ± half the 95 % confidence interval over {comparison.over}; {tail_name(metric)} and "
        "worst client after adaptation.",
        warned=record.adapt_on == "test",
    )


def _method_cells(comparison: StoredComparison, method: StoredMethod, group: str) -> list[str]:
    """Return a method's numbers for one group of clients."""
    metric, row = comparison.metric, method.row
    nothing = BeforeAfter(before=Statistic(), after=Statistic())
    pair = comparison.record.primary(row, group) if group in row.groups else nothing
    scores = [run.summary.scores for run in method.runs]
    worsts = [s.primary(group).after.worst(metric) for s in scores if group in s.groups]
    worst = min(
        (value for value in worsts if value is not None),
        key=lambda value: metric.gain(value, 0.0),
        default=None,
    )
    tail = metric.text(pair.after.tail(metric))
    return [mark_failed(row), *format_before_after(metric, pair), tail, metric.text(worst)]


def _verdict(comparison: StoredComparison, method: StoredMethod, group: str) -> str:
    """Return the difference to the baseline in numbers and words."""
    record, metric = comparison.record, comparison.metric
    difference = method.row.difference(group)
    if method.row.label == record.baseline:
        return "baseline"
    if difference is None:
        return DASH
    number = format_difference(metric, difference)
    return f"{number}{metric.difference_unit}: {difference.verdict}"


def next_commands(comparison: StoredComparison) -> list[Command]:
    """Return what to do after a comparison."""
    folders = [method.runs[0].path for method in comparison.methods if method.runs]
    configs = [quote_path(folder / "config.toml") for folder in folders]
    seeds = max(5, 2 * len(comparison.record.seeds))
    out = "" if comparison.path is None else f" --out {quote_path(comparison.path)}"
    commands = [
        Command(
            "Narrow the intervals with more seeds; finished runs are not repeated",
            [" \\\n    ".join(["headstart compare", *configs, f"--seeds {seeds}{out}"])],
        )
    ]
    if folders:
        first = quote_path(folders[0])
        commands.append(Command("Look at one run, client by client", [f"headstart report {first}"]))
    return commands
