"""``headstart predict``: apply a model to new examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    model: Annotated[Path, typer.Argument(help="A model file (.safetensors).")],
    data: Annotated[Path, typer.Option(help="Examples: CSV, TSV, Parquet or NPZ.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; default: print the predictions.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Predict with a personal model, or with the shared model of a run.

    Columns are matched by name; extra ones, such as a label, are ignored. For classes, the output
    also has the probability of the predicted class.

    Example:

      headstart predict runs/mine/personal/north.safetensors --data new.csv --out predictions.csv
    """
    from headstart._experiments.prediction import predict_file

    text, rows = predict_file(model, data, out=out, force=force)
    typer.echo(text.rstrip() if out is None else f"{out}: {rows} predictions")
