"""``headstart diagnose``: measure client differences and whether personalisation pays off."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart._cli.shared_options import Json, Out, Settings

if TYPE_CHECKING:
    from headstart._diagnosis import Assessment, Diagnosis
    from headstart._experiments.configuration import Experiment
    from headstart._experiments.recommendation import Recommendation

STEP_SIZES = (0.01, 0.03, 0.1, 0.3)
"""Values tried for α = β if no experiment sets them."""


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
            min=1, help="Rounds of the pilot; default: all if cheap, else at least a fifth."
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            min=2, help="Pilots, each from a different initial model; default: 5 if cheap, else 3."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Experiment file for FedAvg; default: FedAvg with the same options."),
    ] = None,
    recommend: Annotated[
        bool,
        typer.Option(help="Also search for the best method, which takes longer than the rest."),
    ] = True,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Gradient evaluations of the recommended training; default: the experiment's.",
        ),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure how different the clients are, train briefly, and recommend a method.

    Uses only the training data of the known clients. Prints its conclusion in plain language, with
    the evidence, and writes a page with the clients' sizes and classes, a heat map of their
    distances, and what each client gained in the pilot. A search over FedAvg and Per-FedAvg with
    several numbers of local steps then finds the method to use within a budget of gradient
    evaluations. It is judged by known clients that are kept out of training, and written to
    recommended.toml. The search takes about six times the budget.

    Examples:

      headstart diagnose

      headstart diagnose mnist.toml --repetitions 5 --budget 20000

      headstart diagnose mnist.toml --no-recommend

      headstart diagnose patients.csv --set data.client=hospital --set data.label=disease
    """
    from headstart._diagnosis import assess_diagnosis
    from headstart._diagnosis import diagnose as run_diagnosis
    from headstart._diagnosis.diagnosis_page import RECOMMENDED, write_diagnosis
    from headstart._experiments import load_experiment
    from headstart._experiments.progress import open_display
    from headstart.errors import OutputError
    from headstart.records import next_free

    if out is not None and out.exists():
        raise OutputError(f"{out} exists already; choose another folder with --out")
    baseline_experiment = None if baseline is None else load_experiment(baseline, [], seed=seed)
    experiment, tries = _choose_experiment(target, settings or [], seed)
    name = experiment.data.get("source") or Path(str(experiment.data.get("path"))).stem
    with open_display() as display:
        diagnosis = run_diagnosis(
            experiment, baseline=baseline_experiment, tries=tries, rounds=rounds,
            repetitions=repetitions, say=display.say,
            listener=lambda label: display.listener(label, brief=True),
        )  # fmt: skip
        advice = _find_method(experiment, budget, display.say) if recommend else None
    assessment = assess_diagnosis(diagnosis, advice)
    folder = out or next_free(Path("runs"), f"{name}-diagnosis")
    page = write_diagnosis(diagnosis, assessment, _command(), folder, advice)
    if as_json:
        typer.echo((folder / "diagnosis.json").read_text(encoding="utf-8").rstrip())
        return
    _show(diagnosis, assessment)
    typer.echo(f"page: {page}")
    if advice is not None:
        typer.echo(f"next: headstart run {folder / RECOMMENDED}")


def _choose_experiment(
    target: str | None, settings: list[str], seed: int | None
) -> tuple[Experiment, list[dict[str, Any]]]:
    """Return the experiment to diagnose, and the step sizes to try."""
    from headstart._experiments import load_experiment

    if target is None or target.endswith(".toml"):
        path = None if target is None else Path(target)
        return load_experiment(path, settings, seed=seed), [{}]
    return _experiment_for_data(target, settings, seed), [
        {"inner_lr": s, "local_lr": s} for s in STEP_SIZES
    ]


def _experiment_for_data(target: str, settings: list[str], seed: int | None) -> Experiment:
    """Return an experiment for data alone: a suitable network and three adaptation steps."""
    from headstart._cli.datasets import target_table
    from headstart._experiments.configuration import Experiment, apply_setting

    table: dict[str, Any] = target_table(target)
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


def _find_method(
    experiment: Experiment, budget: int | None, say: Callable[[str], None]
) -> Recommendation | None:
    """Search for the method to recommend; say why if there is none, and keep the diagnosis."""
    from headstart._experiments.recommendation import recommend_for_experiment
    from headstart.errors import ConfigError, DivergedError

    try:
        return recommend_for_experiment(experiment, budget=budget, say=say)
    except (ConfigError, DivergedError) as error:
        say(f"no method is recommended: {error}")
        return None


def _command() -> str:
    return shlex.join(["headstart", *sys.argv[1:]])


def _show(diagnosis: Diagnosis, assessment: Assessment) -> None:
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
        cells = make(diagnosis)
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
        f"cost: {diagnosis.pilot.gradient_evaluations:,} gradient evaluations in the pilot, "
        f"{diagnosis.seconds:.0f} s in total"
    )
