"""``headstart plan``: what the theory recommends and guarantees for an experiment."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart._cli.shared_options import Json, Settings

if TYPE_CHECKING:
    from headstart.theory._estimation import Estimate
    from headstart.theory._planning import Plan

PAPERS = [
    "algorithm.method=exact", "algorithm.inner_lr=0.4", "algorithm.rates=fixed",
    "algorithm.earlier_losses=0.0", "algorithm.server_optimizer=none", "algorithm.server_lr=1.0",
    "algorithm.weight_decay=0.0", "algorithm.max_gradient_norm=inf",
]  # fmt: skip
"""Without an experiment file: the demo's clients with the papers' algorithm, which the theorems
cover."""


def plan(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file; default: the embedded digits.")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Target for E‖∇F‖², averaged over all iterates.")
    ] = 0.1,
    settings: Settings = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of training along which to estimate constants.")
    ] = 50,
    points: Annotated[int, typer.Option(min=1, help="Models examined during training.")] = 3,
    clients: Annotated[int, typer.Option(min=2, help="Maximum number of clients examined.")] = 50,
    examples: Annotated[
        int, typer.Option(min=2, help="Maximum number of examples per client.")
    ] = 64,
    search: Annotated[
        bool,
        typer.Option("--search", help="Instead, tune step sizes and numbers of steps by training."),
    ] = False,
    budget: Annotated[
        int, typer.Option(min=1, help="With --search: total gradient evaluations.")
    ] = 200_000,
    tries: Annotated[
        int, typer.Option(min=2, help="With --search: number of settings to try.")
    ] = 27,
    goal: Annotated[
        str | None,
        typer.Option(
            help="With --search: judge by validation clients (new), by further examples of clients "
            "in training (known), or both; default: new if there are new clients."
        ),
    ] = None,
    final_seeds: Annotated[
        int, typer.Option(min=1, help="With --search: seeds to compare the last candidates with.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="With --search: file for the best experiment.")] = Path(
        "best.toml"
    ),
    as_json: Json = False,
) -> None:
    """Estimate the theory's constants from your data, and show what the theorems guarantee.

    Prints the rounds, local steps, step size and batch size for which the convergence theorem
    (P Theorem 4.5, G Theorem 8) guarantees a mean squared gradient of the meta-loss of at most
    --epsilon, which term costs most, and what would reduce it. Constants estimated from data are
    lower estimates.

    Examples:

      headstart plan --epsilon 1

      headstart plan mnist.toml --epsilon 0.5 --set algorithm.inner_lr=0.01

      headstart plan mnist.toml --search --budget 500000 --out best.toml

    With --search nothing is proved: many settings of any algorithm are trained briefly, the best
    third continues (successive halving), and the winner is written as an experiment file. Only
    training data are used: if there are new clients, settings are judged by known clients that are
    kept out of training.
    """
    from headstart._experiments import load_experiment
    from headstart._experiments.trajectory import sample_trajectory
    from headstart.errors import ConfigError
    from headstart.options import require_positive
    from headstart.theory._estimation import compute_mean_loss, estimate_constants
    from headstart.theory._planning import FederationProfile, make_plan

    require_positive(epsilon=epsilon)
    named = any(setting.startswith("algorithm.name=") for setting in settings or [])
    first = PAPERS if experiment is None and not search and not named else []
    chosen = load_experiment(experiment, [*first, *(settings or [])])
    if search:
        _search(chosen, budget, tries, goal, final_seeds, out, as_json)
        return
    options: Any = dict(chosen.algorithm)
    if options["name"] not in ("per-fedavg", "fedavg"):
        raise ConfigError(
            f"algorithm.name={options['name']!r}: the papers' theorems cover only per-fedavg (and "
            "fedavg, with no adaptation step)"
        )
    inner_lr = options["inner_lr"] if options["name"] == "per-fedavg" else 0.0
    inner_steps = max(1, options.get("inner_steps", 1))
    data = chosen.build_data()
    report_training = _progress_printer("training")
    models = sample_trajectory(chosen, data, rounds=rounds, count=points, progress=report_training)
    model = chosen.build_model()
    objective = chosen.build_objective(model, data.schema)
    estimate = estimate_constants(
        data, model, models, inner_lr=options["inner_lr"], clients=clients, examples=examples,
        seed=chosen.seed, progress=_progress_printer("constants, model"), objective=objective,
    )  # fmt: skip
    start = compute_mean_loss(
        data, model, models[0], clients=clients, examples=examples, objective=objective
    )
    planned = make_plan(
        estimate.constants, FederationProfile(data.known_clients, chosen.participation, start),
        epsilon=epsilon, inner_lr=inner_lr, inner_steps=inner_steps,
        method=options.get("method", "exact"), delta=options.get("delta", 1e-3),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(_as_table(estimate, planned), indent=2))
    else:
        _show(estimate, planned, start)


def _search(
    experiment: Any,
    budget: int,
    tries: int,
    goal: Any,
    final_seeds: int,
    out: Path,
    as_json: bool,
) -> None:
    from headstart._atomic_files import write_text
    from headstart._experiments.search import format_options, search
    from headstart.errors import OutputError

    if out.exists():
        raise OutputError(f"{out} exists already; choose another file with --out")
    result = search(
        experiment, budget=budget, most=tries, goal=goal, final_seeds=final_seeds,
        say=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    write_text(out, result.best.to_toml())
    frontier = result.frontier()
    if as_json:
        keys = ("gradient_evaluations", result.metric.name, "options")
        typer.echo(
            json.dumps([dict(zip(keys, point, strict=True)) for point in frontier], indent=2)
        )
        return
    judges = {
        "known": "further training examples of known clients",
        "new": f"{len(result.validation_clients)} known clients kept out of training",
        "both": "known clients in training and kept out of it",
    }
    typer.echo(f"Settings that beat every cheaper one (judged by {judges[result.goal]}):")
    metric = result.metric
    what = "" if metric.is_share else f"{metric.word} "
    for cost, value, options in frontier:
        typer.echo(
            f"  {cost:>10,} gradients  {what}{metric.text(value):>7}  {format_options(options)}"
        )
    typer.echo(f"{result.spent:,} gradient evaluations spent; the best setting is in {out}")
    typer.echo(f"next: headstart run {out}")


def _progress_printer(what: str) -> Any:
    def progress(done: int, total: int) -> None:
        print(f"{what} {done} of {total}", file=sys.stderr, flush=True)

    return progress


def _as_table(estimate: Estimate, planned: Plan) -> dict[str, Any]:
    return {
        "constants": asdict(estimate.constants),
        "ranges": {name: list(limits) for name, limits in estimate.ranges.items()},
        "what": estimate.describe(),
        "plan": {
            **{
                name: getattr(planned, name)
                for name in ("epsilon", "rounds", "local_steps", "local_lr", "batch_size")
            },
            "max_gradient_norm": "inf",
        },
        "promised": {**planned.promised.terms, "total": planned.promised.total},
        "advice": planned.advice(),
    }


def _show(estimate: Estimate, planned: Plan, start: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from headstart.theory._planning import MEANING

    console = Console(width=None if sys.stdout.isatty() else 100)
    table = Table(
        box=box.SIMPLE_HEAD, title="Constants estimated from the data", title_justify="left"
    )
    for column in ("constant", "at least", "95 % range"):
        table.add_column(column, justify="left" if column == "constant" else "right")
    for name, value in asdict(estimate.constants).items():
        low, high = estimate.ranges[name]
        table.add_row(name, f"{value:.3g}", "" if low == high else f"{low:.3g} … {high:.3g}")
    console.print(table)
    console.print(estimate.describe(), highlight=False)
    promised = planned.promised
    title = (
        f"What the theorem guarantees: E‖∇F‖² ≤ {promised.total:.4g} (target {planned.epsilon:g})"
    )
    rows = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for column in ("term", "share of ε", "where it comes from"):
        rows.add_column(column, justify="right" if column == "share of ε" else "left")
    for name, value in promised.terms.items():
        rows.add_row(name, f"{100 * value / planned.epsilon:.1f} %", MEANING[name])
    console.print(rows)
    console.print(
        f"with rounds = {planned.rounds:.3g}, local_steps = {planned.local_steps}, local_lr = "
        f"{planned.local_lr:.3g}, batch_size = {planned.batch_size} (method {planned.method}, "
        f"inner_lr = {planned.inner_lr:g}, inner_steps = {planned.inner_steps}; loss at the start "
        f"{start:.3g})",
        highlight=False,
    )
    console.print(
        "The theorem is about plain steps: set algorithm.max_gradient_norm=inf, and leave out "
        "rates, earlier_losses, server_optimizer and weight_decay",
        highlight=False,
    )
    console.print(planned.advice(), highlight=False)
    console.print(
        "The theorem covers the worst case; training is usually far faster. Use the shares to see "
        "what to change, and do not read the number of rounds as a forecast.",
        highlight=False,
    )
