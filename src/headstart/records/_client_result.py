"""One row per client: ``clients.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Literal

from headstart.records._base import Number, Record
from headstart.records._scores import KNOWN, NEW

CsvCell = str | int | float | None
"""What a cell of a CSV file may hold."""
COLUMNS = ("client", "name", "kind", "train_examples", "test_examples", "classes")
CHOSEN = "chosen_steps"


class Change(Record):
    """One client's number before and after adaptation; None where its examples do not define it."""

    before: Number
    after: Number


class ClientResult(Record):
    """What one client has and reaches."""

    client: int
    """Its number in the run."""
    name: str
    kind: Literal["trained", "new"]
    train_examples: int
    test_examples: int
    classes: int
    loss: Change
    metrics: dict[str, Change]
    chosen_steps: int | None = None
    """The number of adaptation steps it chose by cross-validation, if it did."""

    @property
    def group(self) -> str:
        """Whether the client took part in training: ``known`` or ``new``."""
        return NEW if self.kind == "new" else KNOWN

    def __getitem__(self, metric: str) -> Change:
        """Return the metric of this name before and after adaptation."""
        return self.metrics[metric]

    def to_row(self) -> dict[str, CsvCell]:
        """Return the row of the file."""
        numbers = {"loss": self.loss, **self.metrics}
        row: dict[str, CsvCell] = {name: getattr(self, name) for name in COLUMNS}
        for name, change in numbers.items():
            for when, value in (("before", change.before), ("after", change.after)):
                row[f"{name}_{when}"] = float("nan") if value is None else value
        return row if self.chosen_steps is None else {**row, CHOSEN: self.chosen_steps}

    @classmethod
    def from_row(cls, row: Mapping[str, str | None]) -> ClientResult:
        """Read a row of the file."""
        columns = {name: row[name] for name in COLUMNS}
        names = [c.removesuffix("_before") for c in row if c and c.endswith("_before")]
        changes = {n: {w: _number(row[f"{n}_{w}"]) for w in ("before", "after")} for n in names}
        loss = changes.pop("loss")
        chosen = row.get(CHOSEN) or None
        return cls.from_table({**columns, "loss": loss, "metrics": changes, CHOSEN: chosen})


def clients_to_csv(clients: Sequence[ClientResult]) -> str:
    """Return the text of ``clients.csv``."""
    return to_csv([client.to_row() for client in clients])


def clients_from_csv(text: str) -> tuple[ClientResult, ...]:
    """Read the text of ``clients.csv``."""
    rows = csv.DictReader(text.splitlines(keepends=True))
    clients = tuple(ClientResult.from_row(row) for row in rows)
    if not clients:
        raise ValueError("it holds no client")
    return clients


def to_csv(rows: Sequence[Mapping[str, CsvCell]]) -> str:
    """Return rows with the same columns as CSV text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _number(text: str | None) -> float | None:
    return float(text) if text else None
