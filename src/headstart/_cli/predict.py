"""``headstart predict``: a model at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    data: Annotated[Path, typer.Option(help="Examples: CSV, TSV, Parquet or NPZ.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; without one, predictions are printed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Predict with a personal model, or with the shared model of a run.

    The model's columns are taken by name; others, such as a label, are not looked at. For classes,
    the file also holds the probability of the predicted one.

    Example:

      headstart predict runs/mine/personal/north.safetensors --data new.csv --out predictions.csv
    """
    from headstart._experiments.prediction import predict_file

    text, rows = predict_file(model, data, out=out, force=force)
    typer.echo(text.rstrip() if out is None else f"{out}: {rows} predictions")
