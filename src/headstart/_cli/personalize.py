"""``headstart personalize``: make a model for one client, also one that never trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headstart._cli.shared_options import Json


def personalize(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[
        Path | None, typer.Option(help="A client's examples: CSV, Parquet or NPZ.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="A client of the run, by name or number.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Adaptation steps; default: chosen by cross-validation on the examples."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Model file; default: personal/NAME.safetensors in the run.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Name of the label column; default: as in the run's data.")
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Fraction of the examples held out for scoring.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the batches.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model.")] = False,
    as_json: Json = False,
) -> None:
    """Adapt the shared model to one client, and score it before and after.

    With --data, part of the file is held out: the model adapts on the rest and is scored on that
    part. With --client, the run's own split is used. Without --steps, cross-validation on the
    examples to adapt on chooses between 0 and the steps of the run's evaluation.

    Examples:

      headstart personalize runs/digits-per-fedavg-001 --data my-digits.csv --steps 3

      headstart personalize runs/digits-per-fedavg-001 --client 17
    """
    from headstart._experiments.personalization import personalize_client, personalize_file
    from headstart.errors import ConfigError

    if (data is None) == (client is None):
        raise ConfigError("give either --data FILE, or --client NAME for a client of the run")
    if data is not None:
        result = personalize_file(
            run, data, steps=steps, out=out, label=label, test_fraction=test_fraction, seed=seed,
            force=force,
        )  # fmt: skip
    else:
        result = personalize_client(run, str(client), steps=steps, out=out, force=force)
    if as_json:
        typer.echo(json.dumps(result.to_table(), indent=2))
        return
    typer.echo(
        f"{data or result.client}: {result.train_examples} examples to adapt on, "
        f"{result.test_examples} held out\n{result}\nmodel in {result.model}"
    )
