"""A file of examples in, a file of predictions out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headstart._atomic_files import write_text
from headstart._experiments.model_files import load_model
from headstart._experiments.run import PersonalModel
from headstart.data._example_files import read_inputs
from headstart.errors import OutputError
from headstart.records import CsvCell, to_csv


def predict_file(
    model: Path, data: Path, *, out: Path | None = None, force: bool = False
) -> tuple[str, int]:
    """The predictions as the text of a CSV file, and how many there are."""
    if out is not None and out.exists() and not force:
        raise OutputError(f"{out} exists already; use --force to replace it, or --out")
    mine = load_model(model)
    rows = prediction_rows(mine, read_inputs(data, mine.schema))
    text = to_csv(rows)
    if out is not None:
        write_text(out, text)
    return text, len(rows)


def prediction_rows(mine: PersonalModel, x: np.ndarray) -> list[dict[str, CsvCell]]:
    """One row per example; classes by their names, with the probability of the predicted one."""
    found = mine.predict(x)
    if mine.schema.target == "class" and found.ndim == 1:
        sure = mine.probabilities(x).max(axis=-1)
        names = mine.schema.class_names or [str(n) for n in range(mine.schema.classes)]
        return [
            {"prediction": names[int(number)], "probability": f"{float(p):.6g}"}
            for number, p in zip(found, sure, strict=True)
        ]
    if found.ndim == 1:
        return [{"prediction": f"{float(value):.9g}"} for value in found]
    width = found.reshape(len(found), -1)
    names = mine.schema.class_names or [str(n) for n in range(width.shape[1])]
    return [
        {f"prediction_{name}": f"{value:.9g}" for name, value in zip(names, row, strict=False)}
        for row in width.astype(float)
    ]
