"""``headstart diagnose``: how different the clients are, and whether personalisation would pay."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart._cli.shared_options import Json, Out, Settings

if TYPE_CHECKING:
    from headstart._diagnosis import Assessment, Diagnosis
    from headstart._experiments.configuration import Experiment

STEP_SIZES = (0.01, 0.03, 0.1, 0.3)
"""Tried for α = β if no experiment says what they are."""


def diagnose(
    target: Annotated[
        str | None,
        typer.Argument(help="An experiment file, a source, a folder or a table; default: digits."),
    ] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="Override the experiment's seed.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rounds of the pilot; default: all if they are cheap, else a fifth or more."
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            min=2, help="Pilots, each from another initial model; default: 5 if cheap, else 3."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="FedAvg's own experiment file; default: FedAvg with the same options."),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure how different the clients are, train a little, and say whether personalisation pays.

    Looks at the known clients' training data only. Prints a reading in plain language with its
    evidence, and makes a page with the clients' sizes, classes, a heat map of their distances, and
    what each gained in the pilot.

    Examples:

      headstart diagnose

      headstart diagnose mnist.toml --repetitions 5

      headstart diagnose patients.csv --set data.client=hospital --set data.label=disease
    """
    from headstart._diagnosis import assess_diagnosis
    from headstart._diagnosis import diagnose as run_diagnosis
    from headstart._diagnosis.diagnosis_page import write_diagnosis
    from headstart._experiments import load_experiment
    from headstart._experiments.progress import open_display
    from headstart.errors import OutputError
    from headstart.records import next_free

    if out is not None and out.exists():
        raise OutputError(f"{out} exists already; choose another folder with --out")
    plain = None if baseline is None else load_experiment(baseline, [], seed=seed)
    experiment, tries = _experiment(target, settings or [], seed)
    name = experiment.data.get("source") or Path(str(experiment.data.get("path"))).stem
    with open_display() as display:
        found = run_diagnosis(
            experiment, baseline=plain, tries=tries, rounds=rounds, repetitions=repetitions,
            say=display.say, listener=lambda label: display.listener(label, brief=True),
        )  # fmt: skip
    assessment = assess_diagnosis(found)
    folder = out or next_free(Path("runs"), f"{name}-diagnosis")
    page = write_diagnosis(found, assessment, _command(), folder)
    if as_json:
        typer.echo((folder / "diagnosis.json").read_text(encoding="utf-8").rstrip())
        return
    _show(found, assessment)
    typer.echo(f"page: {page}")


def _experiment(
    target: str | None, settings: list[str], seed: int | None
) -> tuple[Experiment, list[dict[str, Any]]]:
    """What to diagnose, and the step sizes to try: those of an experiment, or a few."""
    from headstart._experiments import load_experiment

    if target is None or target.endswith(".toml"):
        path = None if target is None else Path(target)
        return load_experiment(path, settings, seed=seed), [{}]
    return _of_data(target, settings, seed), [{"inner_lr": s, "local_lr": s} for s in STEP_SIZES]


def _of_data(target: str, settings: list[str], seed: int | None) -> Experiment:
    """An experiment for data alone: a network that fits, three steps on own data."""
    from headstart._cli.datasets import table_of
    from headstart._experiments.configuration import Experiment, apply_setting

    table: dict[str, Any] = table_of(target)
    for setting in settings:
        apply_setting(table, setting)
    table.setdefault("seed", 0 if seed is None else seed)
    table.setdefault("rounds", 200)
    text = table.get("data", {}).get("source") == "shakespeare"
    table.setdefault("model", {"name": "char-lstm", "hidden": 32} if text else {"name": "mlp"})
    chosen = {"name": "per-fedavg", "inner_steps": 3, "local_steps": 5, "batch_size": 20}
    table["algorithm"] = {**chosen, **table.get("algorithm", {})}
    table.setdefault("evaluation", {"adapt_steps": 3})
    return Experiment.from_table(table)


def _command() -> str:
    return shlex.join(["headstart", *sys.argv[1:]])


def _show(found: Diagnosis, assessment: Assessment) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from headstart._diagnosis.diagnosis_page import (
        clients_table,
        distances_table,
        farthest_table,
        gammas_table,
        pilot_table,
    )

    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False, markup=False)
    for make in (clients_table, distances_table, gammas_table, pilot_table, farthest_table):
        cells = make(found)
        table = Table(box=box.SIMPLE_HEAD, title=cells.title, title_justify="left")
        for place, column in enumerate(cells.head):
            table.add_column(column, justify="right" if place else "left", overflow="fold")
        for row in cells.rows:
            table.add_row(*row)
        console.print(table)
    console.print(assessment.title, style="bold")
    for sentence in assessment.sentences:
        console.print(f"- {sentence}")
    console.print(
        f"cost: {found.pilot.gradient_evaluations:,} gradient evaluations of the pilot, "
        f"{found.seconds:.0f} s in all"
    )
