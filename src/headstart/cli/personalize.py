"""``headstart personalize``: a model for a client who was never there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import Json


def personalize(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[Path, typer.Option(help="The client's examples: CSV, Parquet or NPZ.")],
    steps: Annotated[
        int | None, typer.Option(help="Adaptation steps; default: as the run was evaluated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Model file; default: personal/NAME.safetensors in the run.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Name of the label column; default: as in the run's data.")
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Share of the examples kept aside to score on.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the batches.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model.")] = False,
    as_json: Json = False,
) -> None:
    """Make one client's own model from the shared one, and score it before and after.

    Part of the file is kept aside: the model adapts on the rest and is scored on that part.

    Example:

      headstart personalize runs/digits-per-fedavg-001 --data my-digits.csv --steps 3
    """
    from headstart.runs.personal import personalize_file

    result = personalize_file(
        run,
        data,
        steps=steps,
        out=out,
        label=label,
        test_fraction=test_fraction,
        seed=seed,
        force=force,
    )
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(
        f"{data}: {result['train_examples']} examples to adapt on, {result['test_examples']} "
        f"kept aside\naccuracy on these: {100 * result['accuracy_before']:.1f} % before, "
        f"{100 * result['accuracy_after']:.1f} % after {result['steps']} steps\n"
        f"model in {result['model']}"
    )
