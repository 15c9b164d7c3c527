"""Predict the examples in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headstart._atomic_files import write_text
from headstart._experiments.finished_run import PersonalModel
from headstart._experiments.model_files import load_model
from headstart.data._example_files import read_inputs
from headstart.errors import OutputError
from headstart.records import CsvCell, to_csv


def predict_file(
    model: Path, data: Path, *, out: Path | None = None, force: bool = False
) -> tuple[str, int]:
    """Return the predictions as the text of a CSV file, and their number."""
    if out is not None and out.exists() and not force:
        raise OutputError(f"{out} exists already; use --force to replace it, or --out")
    personal = load_model(model)
    rows = prediction_rows(personal, read_inputs(data, personal.schema))
    text = to_csv(rows)
    if out is not None:
        write_text(out, text)
    return text, len(rows)


def prediction_rows(personal: PersonalModel, x: np.ndarray) -> list[dict[str, CsvCell]]:
    """Return a row per example: the class by name with its probability, or the number."""
    predictions = personal.predict(x)
    if personal.schema.target == "class" and predictions.ndim == 1:
        probabilities = personal.probabilities(x).max(axis=-1)
        names = personal.schema.class_names or [str(n) for n in range(personal.schema.classes)]
        return [
            {"prediction": names[int(number)], "probability": f"{float(p):.6g}"}
            for number, p in zip(predictions, probabilities, strict=True)
        ]
    if predictions.ndim == 1:
        return [{"prediction": f"{float(value):.9g}"} for value in predictions]
    table = predictions.reshape(len(predictions), -1)
    names = personal.schema.class_names or [str(n) for n in range(table.shape[1])]
    return [
        {f"prediction_{name}": f"{value:.9g}" for name, value in zip(names, row, strict=False)}
        for row in table.astype(float)
    ]
