"""``headstart plan``: what the theory recommends and promises for an experiment."""

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


def plan(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file; none: the embedded digits.")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="How small E‖∇F‖² is to become, on average over all iterates.")
    ] = 0.1,
    settings: Settings = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of training along which constants are looked for.")
    ] = 50,
    points: Annotated[int, typer.Option(min=1, help="Models looked at on the way.")] = 3,
    clients: Annotated[int, typer.Option(min=2, help="Clients looked at, at most.")] = 50,
    examples: Annotated[int, typer.Option(min=2, help="Examples of each, at most.")] = 64,
    search: Annotated[
        bool, typer.Option("--search", help="Tune α, β, τ and ν instead, on training data only.")
    ] = False,
    budget: Annotated[
        int, typer.Option(min=1, help="With --search: gradient evaluations in all.")
    ] = 200_000,
    tries: Annotated[int, typer.Option(min=2, help="With --search: settings tried.")] = 27,
    out: Annotated[
        Path, typer.Option(help="With --search: where the best experiment is written.")
    ] = Path("best.toml"),
    as_json: Json = False,
) -> None:
    """Estimate the theory's constants from your data and say what the papers then promise.

    Rounds, local steps, step size and batch size for which the convergence theorem (P Theorem 4.5,
    G Theorem 8) promises a mean squared gradient of the meta-loss of at most --epsilon; which term
    costs most, and what would reduce it. Constants found from data are lower estimates.

    Examples:

      headstart plan --epsilon 1

      headstart plan mnist.toml --epsilon 0.5 --set algorithm.inner_lr=0.01

      headstart plan mnist.toml --search --budget 500000 --out best.toml

    With --search nothing is proved: many settings are trained a little, the better third goes on
    (successive halving), and the best is written as an experiment file.
    """
    from headstart._experiments import load_experiment
    from headstart._experiments.trajectory import sample_trajectory
    from headstart.errors import ConfigError
    from headstart.options import require_positive
    from headstart.theory._estimation import compute_mean_loss, estimate_constants
    from headstart.theory._planning import FederationProfile, make_plan

    require_positive(epsilon=epsilon)
    chosen = load_experiment(experiment, settings or [])
    if search:
        _search(chosen, budget, tries, out, as_json)
        return
    options: Any = dict(chosen.algorithm)
    if options["name"] not in ("per-fedavg", "fedavg"):
        raise ConfigError(
            f"algorithm.name={options['name']!r}: the papers' theorems are about per-fedavg (and "
            "fedavg, with no adaptation step)"
        )
    inner_lr = options["inner_lr"] if options["name"] == "per-fedavg" else 0.0
    inner_steps = max(1, options.get("inner_steps", 1))
    data = chosen.build_data()
    say = _say("training")
    models = sample_trajectory(chosen, data, rounds=rounds, count=points, progress=say)
    model = chosen.build_model()
    objective = chosen.build_objective(model, data.schema)
    found = estimate_constants(
        data, model, models, inner_lr=options["inner_lr"], clients=clients, examples=examples,
        seed=chosen.seed, progress=_say("constants, model"), objective=objective,
    )  # fmt: skip
    start = compute_mean_loss(
        data, model, models[0], clients=clients, examples=examples, objective=objective
    )
    planned = make_plan(
        found.constants, FederationProfile(data.known_clients, chosen.participation, start),
        epsilon=epsilon, inner_lr=inner_lr, inner_steps=inner_steps,
        method=options.get("method", "exact"), delta=options.get("delta", 1e-3),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(_as_table(found, planned), indent=2))
    else:
        _show(found, planned, start)


def _search(experiment: Any, budget: int, tries: int, out: Path, as_json: bool) -> None:
    from headstart._atomic_files import write_text
    from headstart._experiments.search import format_options, search
    from headstart.errors import OutputError

    if out.exists():
        raise OutputError(f"{out} exists already; choose another file with --out")
    found = search(
        experiment, budget=budget, most=tries, say=lambda line: print(line, file=sys.stderr)
    )
    write_text(out, found.best.to_toml())
    frontier = found.frontier()
    if as_json:
        keys = ("gradient_evaluations", found.metric.name, "options")
        typer.echo(
            json.dumps([dict(zip(keys, point, strict=True)) for point in frontier], indent=2)
        )
        return
    typer.echo("What no cheaper setting reached (held-out part of the training data):")
    metric = found.metric
    what = "" if metric.is_share else f"{metric.word} "
    for cost, value, options in frontier:
        typer.echo(
            f"  {cost:>10,} gradients  {what}{metric.text(value):>7}  {format_options(options)}"
        )
    typer.echo(f"{found.spent:,} gradient evaluations spent; the best setting is in {out}")
    typer.echo(f"next: headstart run {out}")


def _say(what: str) -> Any:
    def progress(done: int, total: int) -> None:
        print(f"{what} {done} of {total}", file=sys.stderr, flush=True)

    return progress


def _as_table(found: Estimate, planned: Plan) -> dict[str, Any]:
    return {
        "constants": asdict(found.constants),
        "ranges": {name: list(limits) for name, limits in found.ranges.items()},
        "what": found.describe(),
        "plan": {
            name: getattr(planned, name)
            for name in ("epsilon", "rounds", "local_steps", "local_lr", "batch_size")
        },
        "promised": {**planned.promised.terms, "total": planned.promised.total},
        "advice": planned.advice(),
    }


def _show(found: Estimate, planned: Plan, start: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from headstart.theory._planning import MEANING

    console = Console(width=None if sys.stdout.isatty() else 100)
    table = Table(box=box.SIMPLE_HEAD, title="Constants found in the data", title_justify="left")
    for column in ("constant", "at least", "95 % range"):
        table.add_column(column, justify="left" if column == "constant" else "right")
    for name, value in asdict(found.constants).items():
        low, high = found.ranges[name]
        table.add_row(name, f"{value:.3g}", "" if low == high else f"{low:.3g} … {high:.3g}")
    console.print(table)
    console.print(found.describe(), highlight=False)
    promised = planned.promised
    title = f"What the theorem promises: E‖∇F‖² ≤ {promised.total:.4g} (asked {planned.epsilon:g})"
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
    console.print(planned.advice(), highlight=False)
    console.print(
        "A theorem guards against the worst case everywhere; training is usually far faster. Use "
        "the shares to see what to change, not the number of rounds as a forecast.",
        highlight=False,
    )
