"""Finished runs and comparisons, read from their folders without the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headstart._atomic_files import write_json, write_text
from headstart._metric import Metric
from headstart.errors import InputError
from headstart.records._base import parse_file
from headstart.records._client_result import ClientResult
from headstart.records._comparison_record import ComparisonRecord, ComparisonRow
from headstart.records._evaluation import Evaluation
from headstart.records._run_directory import RunDirectory
from headstart.records._run_summary import RunSummary
from headstart.records._theory_bound import TheoryBound

COMPARISON_FILE, COMPARISON_TABLE = "comparison.json", "comparison.csv"


@dataclass(frozen=True)
class StoredRun:
    """A finished run's folder."""

    path: Path
    summary: RunSummary
    evaluations: tuple[Evaluation, ...]
    clients: tuple[ClientResult, ...]
    config: str
    """The text of ``config.toml``."""
    bound: TheoryBound | None = None

    @property
    def metric(self) -> Metric:
        """The primary metric."""
        return self.summary.metric

    def clients_of(self, group: str) -> list[ClientResult]:
        """Return the known or the new clients."""
        return [client for client in self.clients if client.group == group]


@dataclass(frozen=True)
class StoredMethod:
    """One row of a comparison with its runs."""

    row: ComparisonRow
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True)
class StoredComparison:
    """Several methods side by side."""

    path: Path | None
    record: ComparisonRecord
    methods: tuple[StoredMethod, ...]
    over: Literal["seeds", "clients"] = "seeds"
    """What intervals are taken over."""

    @property
    def metric(self) -> Metric:
        """The primary metric."""
        return self.record.metric


def is_comparison(path: Path) -> bool:
    """Return whether the folder was written by ``headstart compare``."""
    return (path / COMPARISON_FILE).exists()


def read_folder(path: Path) -> StoredRun | StoredComparison:
    """Read a comparison if the folder holds one, else a run."""
    return read_comparison(path) if is_comparison(path) else read_run(path)


def read_run(path: Path) -> StoredRun:
    """Read a finished run."""
    _refuse_other_folders(path)
    folder = RunDirectory(path)
    if not folder.is_complete:
        raise InputError(
            f"{path} is not finished: it has no summary.json; "
            f"continue it with: headstart run --resume --out {path}"
        )
    run = StoredRun(
        path=path,
        summary=folder.summary(),
        evaluations=folder.evaluations(),
        clients=folder.clients(),
        config=parse_file(folder.config_file, str),
        bound=folder.theory_bound(),
    )
    for group in run.summary.scores.groups:
        if not run.clients_of(group):
            raise InputError(f"{folder.clients_file} is damaged: it has no {group} client")
    for client in run.clients:
        if run.metric.name not in client.metrics:
            raise InputError(
                f"{folder.clients_file} is damaged: it has no '{run.metric.name}_before'"
            )
    return run


def read_comparison(path: Path) -> StoredComparison:
    """Read a comparison with its finished runs; diverged ones have only their reason."""
    record = parse_file(path / COMPARISON_FILE, ComparisonRecord.from_json)
    methods = []
    for row in record.rows:
        diverged = {f"seed-{seed}" for seed in row.diverged}
        folders = [path / folder for folder in row.runs if Path(folder).name not in diverged]
        for folder in folders:
            if not folder.exists():
                raise InputError(
                    f"{folder} is missing, but {path / COMPARISON_FILE} names it; "
                    "copy the whole folder, or run the comparison again"
                )
        methods.append(StoredMethod(row, tuple(read_run(folder) for folder in folders)))
    return StoredComparison(path, record, tuple(methods))


def write_comparison(path: Path, record: ComparisonRecord) -> None:
    """Write ``comparison.json`` and ``comparison.csv``."""
    write_json(path / COMPARISON_FILE, record.to_table())
    write_text(path / COMPARISON_TABLE, record.to_csv())


def _refuse_other_folders(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path} does not exist; give a run folder or a comparison folder")
    if not path.is_dir():
        raise InputError(f"{path} is a file; give the folder of a run or of a comparison")
    if not (path / "config.toml").exists():
        raise InputError(
            f"{path} is neither a run nor a comparison: it has no config.toml or comparison.json"
        )
