"""``headstart run``: run one experiment."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from headstart._cli.shared_options import Devices, Json, Layout, Out, Page, Settings


def run(
    experiment: Annotated[
        Path | None,
        typer.Argument(help="Experiment file (TOML); default: the embedded digits."),
    ] = None,
    settings: Settings = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --out where it stopped.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Override the experiment's seed.")] = None,
    devices: Devices = None,
    layout: Layout = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes that share the clients.")
    ] = 1,
    process_id: Annotated[
        int | None,
        typer.Option(help="On several hosts: number of this process, from 0."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(help="On several hosts: HOST:PORT of process 0."),
    ] = None,
    page: Page = True,
    as_json: Json = False,
) -> None:
    """Train one shared initial model across clients, and evaluate every client's own model.

    Examples:

      headstart run

      headstart run mnist.toml --set algorithm.method=hessian-free --seed 1 --out runs/mnist-1

      headstart run --resume --out runs/mnist-1

      headstart run mnist.toml --processes 2
    """
    from headstart._experiments import load_experiment, run_experiment
    from headstart._experiments.configuration import read_experiment
    from headstart._experiments.progress import open_display
    from headstart.errors import ConfigError, ProcessLostError
    from headstart.machine import Joining, is_leader, join, use_cores
    from headstart.records import next_free

    if (process_id is None) != (coordinator is None):
        raise ConfigError("--process-id and --coordinator belong together; give both or neither")
    if process_id is not None and not 0 <= process_id < processes:
        raise ConfigError(f"--process-id={process_id} must lie in 0 … {processes - 1}")
    if devices is not None:
        use_cores(devices)
    if resume and out is None:
        raise ConfigError("--resume needs --out: the folder of the run to resume")
    if resume and experiment is None and out is not None:
        read_experiment(out)
        experiment = out / "config.toml"
    plan = load_experiment(experiment, settings or [], seed=seed)
    name = plan.data.get("source") or Path(str(plan.data.get("path"))).stem
    folder = out or next_free(Path("runs"), f"{name}-{plan.algorithm['name']}")
    if processes > 1 and coordinator is None:
        from headstart._cli.processes import launch

        arguments = [str(experiment)] if experiment is not None else []
        arguments += [word for setting in settings or [] for word in ("--set", setting)]
        arguments += ["--seed", str(seed)] if seed is not None else []
        arguments += ["--layout", layout] if layout is not None else []
        arguments += ["--resume"] * resume + ["--no-report"] * (not page) + ["--json"] * as_json
        launch(arguments, folder, processes, devices)
        return
    if coordinator is not None and process_id is not None:
        join(Joining(coordinator, processes, process_id))
    try:
        if not is_leader():
            run_experiment(plan, folder, resume=resume, layout=layout)
            return
        with open_display() as display:
            result = run_experiment(
                plan, folder, resume=resume, layout=layout, listener=display.listener()
            )
    except Exception as error:
        from headstart._cli.processes import is_lost_connection, resume_advice

        if coordinator is None or not is_lost_connection(error):
            raise

        raise ProcessLostError(
            f"process {process_id} lost the others ({str(error).splitlines()[0][:120]}); the run "
            f"was stopped. {resume_advice(folder, processes)}"
        ) from None
    except KeyboardInterrupt:
        typer.echo(f"interrupted; resume with: headstart run --resume --out {folder}", err=True)
        raise typer.Exit(130) from None
    if plan.evaluation.gradient_norm:
        from headstart._diagnosis.guarantee import write_theory_bound

        typer.echo("estimating the theory's constants for the bound", err=True)
        write_theory_bound(plan, plan.build_data(), result, folder)
    if page:
        from headstart.report import make_report

        make_report([folder])
    if as_json:
        typer.echo(json.dumps(result.summary.to_table(), indent=2))
        return
    typer.echo(str(result.summary))
    typer.echo(f"results in {folder}" + (f", page: {folder / 'report.html'}" if page else ""))
    quoted = shlex.quote(str(folder))
    typer.echo(f"next: headstart personalize {quoted} --data one-clients-examples.csv")
