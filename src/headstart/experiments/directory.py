"""The folder of a run: who may write to it, and what stands where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headstart.atomic_files import (
    append_line,
    clear_write_errors,
    write_json,
    write_text,
)
from headstart.data.schema import Schema
from headstart.errors import InputError, OutputError
from headstart.experiments.config import Experiment, read_toml
from headstart.experiments.record import as_csv
from headstart.experiments.run import PersonalModel
from headstart.extensions import refuse_imports_from


@dataclass(frozen=True)
class RunDirectory:
    """Paths and contents of one run's folder."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where the server's state is kept."""
        return self.path / "checkpoint"

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended and been summed up."""
        return (self.path / "summary.json").exists()

    def claim(self, config: str, *, resume: bool) -> None:
        """Take the folder for this run; refuse one that holds anything else."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file; choose a folder with --out")
        with clear_write_errors(self.path):
            held = [p for p in self.path.iterdir()] if self.path.exists() else []
        # What a kill in the middle of a write leaves behind is ours and does not count.
        taken = any(not p.name.startswith(".config.toml.") for p in held)
        if taken and not resume:
            what = "another run" if (self.path / "config.toml").exists() else "other files"
            raise OutputError(
                f"{self.path} already holds {what}; choose another folder with --out"
                + (", or continue it with --resume" if what == "another run" else "")
            )
        with clear_write_errors(self.path):
            (self.path / "summary.json").unlink(missing_ok=True)  # not complete any more
        write_text(self.path / "config.toml", config)

    def experiment(self) -> Experiment:
        """The configuration the run was made with."""
        if not (self.path / "config.toml").exists():
            raise InputError(f"{self.path} is not a run: it has no config.toml")
        with refuse_imports_from(self.path):
            return Experiment.from_table(read_toml(self.path / "config.toml"))

    def schema(self) -> Schema:
        """What an example looks like to the run's model."""
        return Schema.from_table(self.read_json("schema.json"))

    def summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        return self.read_json("summary.json")

    def read_json(self, name: str) -> dict[str, Any]:
        """One of the run's JSON files, or a clear line."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{self.path / name} does not exist; is the run finished? "
                f"continue it with: headstart run --resume --out {self.path}"
            ) from None
        except ValueError as error:
            raise InputError(f"{self.path / name} is damaged: {error}") from None

    def write_schema(self, schema: Schema) -> None:
        """Keep what personalisation must know of the data."""
        write_json(self.path / "schema.json", asdict(schema))

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        """All evaluations so far, replacing what stood there."""
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in records]
        write_text(self.path / "metrics.jsonl", "".join(lines))

    def append_metrics(self, record: dict[str, Any]) -> None:
        """One more evaluation."""
        append_line(self.path / "metrics.jsonl", json.dumps(record, allow_nan=False))

    def write_results(
        self, summary: dict[str, Any], clients: list[dict[str, Any]], model: PersonalModel
    ) -> None:
        """The results; the summary comes last, because it says that the run is complete."""
        model.save(self.path / "model.safetensors", algorithm=summary["algorithm"])
        write_text(self.path / "clients.csv", as_csv(clients))
        write_json(self.path / "summary.json", summary)


def next_free(parent: Path, stem: str) -> Path:
    """The first of stem-001, stem-002 … that does not exist."""
    stem = stem.replace(":", "-")  # as in package.module:Name, which not every disk takes
    number = 1
    while (parent / f"{stem}-{number:03d}").exists():
        number += 1
    return parent / f"{stem}-{number:03d}"
