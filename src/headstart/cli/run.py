"""``headstart run``: one experiment."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import Devices, Json, Layout, Out, Page, Settings


def run(
    experiment: Annotated[
        Path | None,
        typer.Argument(help="Experiment file (TOML); without one the embedded digits are used."),
    ] = None,
    settings: Settings = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out where it stopped.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Override the experiment's seed.")] = None,
    devices: Devices = None,
    layout: Layout = None,
    page: Page = True,
    as_json: Json = False,
) -> None:
    """Train one shared initial model across clients and evaluate every client's own model.

    Examples:

      headstart run

      headstart run mnist.toml --set algorithm.method=hessian-free --seed 1 --out runs/mnist-1

      headstart run --resume --out runs/mnist-1
    """
    from headstart.cli.progress import stage
    from headstart.errors import ConfigError
    from headstart.machine import use_cores
    from headstart.runs import RunDirectory, load_experiment, run_experiment
    from headstart.runs.directory import next_free

    if devices is not None:
        use_cores(devices)
    if resume and out is None:
        raise ConfigError("--resume needs --out: the folder of the run to go on with")
    if resume and experiment is None and out is not None:
        RunDirectory(out).experiment()
        experiment = out / "config.toml"
    plan = load_experiment(experiment, settings or [], seed=seed)
    name = plan.data.get("source") or Path(str(plan.data.get("path"))).stem
    folder = out or next_free(Path("runs"), f"{name}-{plan.algorithm['name']}")
    try:
        with stage() as shown:
            result = run_experiment(
                plan, folder, resume=resume, layout=layout, listener=shown.listener()
            )
    except KeyboardInterrupt:
        typer.echo(f"interrupted; go on with: headstart run --resume --out {folder}", err=True)
        raise typer.Exit(130) from None
    if page:
        from headstart.report.page import make_report

        make_report([folder])
    if as_json:
        typer.echo(json.dumps(result.summary, indent=2))
        return
    typer.echo(str(result.summary))
    typer.echo(f"results in {folder}" + (f", page: {folder / 'report.html'}" if page else ""))
    quoted = shlex.quote(str(folder))
    typer.echo(f"next: headstart personalize {quoted} --data one-clients-examples.csv")
