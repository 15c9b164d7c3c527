"""The folder of a run: its files, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headstart._atomic_files import append_line, clear_write_errors, write_json, write_text
from headstart.errors import InputError, OutputError
from headstart.records._base import JsonTable, parse_file, parse_table
from headstart.records._client_result import ClientResult, clients_from_csv, clients_to_csv
from headstart.records._evaluation import Evaluation
from headstart.records._run_summary import RunSummary
from headstart.records._theory_bound import TheoryBound

if TYPE_CHECKING:
    from headstart.data._schema import Schema


@dataclass(frozen=True)
class RunDirectory:
    """Paths and contents of one run's folder."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def model_file(self) -> Path:
        """The shared initial model."""
        return self.path / "model.safetensors"

    @property
    def metrics_file(self) -> Path:
        """One line per evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def clients_file(self) -> Path:
        """One row per client."""
        return self.path / "clients.csv"

    @property
    def summary_file(self) -> Path:
        """The result; it is written last, so its presence means that the run is complete."""
        return self.path / "summary.json"

    @property
    def theory_file(self) -> Path:
        """What the convergence theorem guarantees, if it was asked for."""
        return self.path / "theory.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoint"

    @property
    def is_complete(self) -> bool:
        """Whether the run has finished."""
        return self.summary_file.exists()

    def claim(self, config: str, *, resume: bool) -> None:
        """Take the folder for this run; refuse one that holds anything else."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file; choose a folder with --out")
        with clear_write_errors(self.path):
            entries = list(self.path.iterdir()) if self.path.exists() else []
        # What a kill in the middle of a write leaves behind is ours and does not count.
        taken = any(not entry.name.startswith(".config.toml.") for entry in entries)
        if taken and not resume:
            content = "another run" if self.config_file.exists() else "other files"
            raise OutputError(
                f"{self.path} already holds {content}; choose another folder with --out"
                + (", or continue it with --resume" if content == "another run" else "")
            )
        with clear_write_errors(self.path):
            self.summary_file.unlink(missing_ok=True)  # not complete any more
        write_text(self.config_file, config)

    def schema(self) -> Schema:
        """Read what an example looks like to the run's model."""
        from headstart.data._schema import Schema  # needs JAX, which records do without

        return Schema.from_table(self._read_table("schema.json"))

    def summary(self) -> RunSummary:
        """Read the result of a finished run."""
        self._require(self.summary_file)
        return parse_file(self.summary_file, RunSummary.from_json)

    def evaluations(self) -> tuple[Evaluation, ...]:
        """Read all evaluations."""
        return parse_file(self.metrics_file, parse_evaluations)

    def clients(self) -> tuple[ClientResult, ...]:
        """Read the results of all clients."""
        return parse_file(self.clients_file, clients_from_csv)

    def theory_bound(self) -> TheoryBound | None:
        """Read what the theorem guarantees, if the run has it."""
        if not self.theory_file.exists():
            return None
        return parse_file(self.theory_file, TheoryBound.from_json)

    def write_schema(self, schema: Schema) -> None:
        """Store what personalisation must know of the data."""
        write_json(self.path / "schema.json", asdict(schema))

    def write_evaluations(self, evaluations: Sequence[Evaluation]) -> None:
        """Replace all evaluations."""
        write_text(self.metrics_file, "".join(each.to_json() + "\n" for each in evaluations))

    def append_evaluation(self, evaluation: Evaluation) -> None:
        """Add one evaluation."""
        append_line(self.metrics_file, evaluation.to_json())

    def write_theory_bound(self, bound: TheoryBound) -> None:
        """Store what the theorem guarantees."""
        write_json(self.theory_file, bound.to_table())

    def write_results(self, summary: RunSummary, clients: Sequence[ClientResult]) -> None:
        """Store the results; the summary last, because it marks the run as complete."""
        write_text(self.clients_file, clients_to_csv(clients))
        write_json(self.summary_file, summary.to_table())

    def _read_table(self, name: str) -> JsonTable:
        self._require(self.path / name)
        return parse_file(self.path / name, parse_table)

    def _require(self, path: Path) -> None:
        if not path.exists():
            raise InputError(
                f"{path} does not exist; is the run finished? "
                f"continue it with: headstart run --resume --out {self.path}"
            )


def parse_evaluations(text: str) -> tuple[Evaluation, ...]:
    """Read the lines of ``metrics.jsonl``."""
    evaluations = []
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        try:
            evaluations.append(Evaluation.from_json(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not evaluations:
        raise ValueError("it holds no evaluation")
    return tuple(evaluations)


def next_free(parent: Path, stem: str) -> Path:
    """Return the first of stem-001, stem-002 … that does not exist."""
    stem = stem.replace(":", "-")  # as in package.module:Name, which not every disk takes
    number = 1
    while (parent / f"{stem}-{number:03d}").exists():
        number += 1
    return parent / f"{stem}-{number:03d}"
