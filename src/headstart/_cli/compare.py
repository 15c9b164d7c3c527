"""``headstart compare``: run several algorithms with several seeds and print one table."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart._cli.shared_options import Json, Page, Settings

if TYPE_CHECKING:
    from headstart._experiments import Experiment
    from headstart.records import ComparisonRecord, ComparisonRow


def compare(
    experiments: Annotated[
        list[Path] | None, typer.Argument(help="Experiment files; default: the embedded digits.")
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(help="Algorithms to compare on one experiment, comma-separated."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds, starting at the experiment's seed.")
    ] = 3,
    settings: Settings = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Label of the row to compare the others with; default: FedAvg."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; finished runs in it are not repeated."),
    ] = None,
    page: Page = True,
    as_json: Json = False,
) -> None:
    """Run several algorithms on the same clients and seeds, and print one table with intervals.

    Finished runs in --out are not repeated; interrupted ones are resumed.

    Examples:

      headstart compare fedavg.toml per-fedavg.toml --seeds 5 --out runs/comparison

      headstart compare mnist.toml --algorithms fedavg,per-fedavg,local,apfl --seeds 3
    """
    from headstart._experiments.comparison import compare_experiments
    from headstart._experiments.progress import open_display
    from headstart.errors import DivergedError
    from headstart.records import next_free

    plans = _load_plans(experiments or [], algorithms, settings or [])
    folder = out or next_free(Path("runs"), "comparison")
    with open_display() as display:
        record = compare_experiments(
            plans,
            range(plans[0].seed, plans[0].seed + seeds),
            folder,
            baseline=baseline,
            listener=lambda label, seed: display.listener(f"{label}, seed {seed}", brief=True),
        )
    if page:
        from headstart.report import make_report

        make_report([folder])
    if as_json:
        typer.echo(json.dumps(record.to_table(), indent=2))
    else:
        _show(record, folder, page)
    if not any(row.seeds for row in record.rows):
        raise DivergedError("every run diverged; the reasons are in comparison.json")


def _load_plans(files: list[Path], algorithms: str | None, settings: list[str]) -> list[Experiment]:
    from headstart._experiments import load_experiment
    from headstart.errors import ConfigError

    if algorithms is None:
        return [load_experiment(path, settings) for path in files or [None]]  # type: ignore[list-item]
    if len(files) > 1:
        raise ConfigError(f"--algorithms takes one experiment file, not {len(files)}")
    base = load_experiment(files[0] if files else None, settings)
    return [base.with_algorithm(name.strip()) for name in algorithms.split(",")]


def _show(record: ComparisonRecord, folder: Path, page: bool) -> None:
    from rich.console import Console

    from headstart.report import comparison_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    console.print(comparison_table(record))
    typer.echo(f"results in {folder}" + (f", page: {folder / 'report.html'}" if page else ""))
    ranked = [row for row in record.rows if _known_mean(record, row) is not None]
    if ranked:
        best = max(ranked, key=lambda row: record.metric.gain(_known_mean(record, row), 0.0))
        finished = folder / Path(best.runs[0]).parent / f"seed-{best.seeds[0]}"
        run = shlex.quote(str(finished))
        typer.echo(f"next: headstart personalize {run} --data one-clients-examples.csv")


def _known_mean(record: ComparisonRecord, row: ComparisonRow) -> float | None:
    """Return the mean score of the known clients; None if the method cannot be ranked."""
    if not row.seeds or row.failed or "known" not in row.groups:
        return None
    return record.primary(row, "known").after.mean
