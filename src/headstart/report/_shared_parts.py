"""Parts that the pages of a run and of a comparison share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from headstart._metric import DASH, Metric
from headstart.records import BeforeAfter, HostFacts, RunSummary
from headstart.report._page_parts import Details, Glossary, Table
from headstart.report._wording import format_count, format_interval, tail_name


def format_before_after(metric: Metric, pair: BeforeAfter) -> list[str]:
    """Return both means with their intervals."""
    return [format_interval(metric, pair.before), format_interval(metric, pair.after)]


def budget_table(summaries: Mapping[str, RunSummary]) -> Table:
    """Return gradient evaluations and training time, a row for each label."""
    rows = [
        [
            label,
            format_count(summary.gradient_evaluations),
            format_count(summary.gradient_evaluations_per_client.round),
            format_count(summary.gradient_evaluations_per_client.adaptation),
            DASH if summary.seconds is None else f"{summary.seconds:,.1f} s",
        ]
        for label, summary in summaries.items()
    ]
    head = ["", "in training", "per client and round", "to adapt one client", "training time"]
    note = "One gradient on one batch counts 1, a Hessian-vector product 2."
    return Table("Gradient budget (one run)", head, rows, note)


def host_facts(host: HostFacts) -> list[Details]:
    """Return versions and the kind of machine, if they are known."""
    facts = [
        *host.versions.items(),
        ("python", host.python),
        ("system", host.system),
        ("machine", host.machine),
        ("cores", "" if host.cores is None else str(host.cores)),
        ("devices", ", ".join(host.devices)),
    ]
    known = [(name, value) for name, value in facts if value]
    return [Details("Versions and machine", facts=known)] if known else []


def quote_path(path: Path) -> str:
    """Return the path as one would type it in the current folder."""
    full, here = path.resolve(), Path.cwd()
    return shlex.quote(str(full.relative_to(here)) if full.is_relative_to(here) else str(path))


def explain_words(over: str, metric: Metric) -> Glossary:
    """Return the words used on the page; ``over`` is what intervals are taken over."""
    side = "below" if metric.direction == "higher" else "above"
    return Glossary([
        ("before", "the shared model as every client receives it"),
        ("after", "the client's own model, after a few gradient steps on its own data"),
        (metric.word, f"{metric.meaning}; on examples the client held out, every client "
         "counting the same"),
        ("clients in training", "clients whose updates shaped the shared model"),
        ("clients that joined later", "clients that took no part in training, the honest test "
         "of what a newcomer can expect"),
        ("± and bands", f"half the 95 % confidence interval of the mean over {over}"),
        (tail_name(metric), f"one client in ten is {side} this value"),
        ("no difference shown", "the interval of the difference contains zero; this does not prove "
         "that the methods are equal"),
        ("gradient evaluation", "one gradient on one batch: a measure of work that does not depend "
         "on the machine"),
    ])  # fmt: skip
