"""Run and comparison folders from disk; whatever is missing or damaged gives one clear line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headstart.errors import InputError
from headstart.metric import ACCURACY, Metric
from headstart.report.records import (
    KNOWN,
    NEW,
    Board,
    Pair,
    Row,
    Summary,
    number,
    pairs,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation:
    """One line of ``metrics.jsonl``."""

    round: int
    gradients: int
    train_loss: float | None
    groups: Mapping[str, Pair]
    gradient_norm_squared: float | None = None


@dataclass(frozen=True)
class Client:
    """One line of ``clients.csv``."""

    name: str
    group: str
    train: int
    test: int
    classes: int
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Promise:
    """``theory.json``: what the convergence theorem promises, or why it promises nothing."""

    rounds: tuple[int, ...]
    total: tuple[float | None, ...]
    reason: str | None

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Promise:
        """As ``headstart run`` has written it."""
        bound = table["bound"] or {"rounds": (), "total": ()}
        rounds, total = tuple(map(int, bound["rounds"])), tuple(map(number, bound["total"]))
        if len(rounds) != len(total):
            raise ValueError("rounds and totals of the bound are not of one length")
        return cls(rounds, total, table["reason"])


@dataclass(frozen=True)
class Run:
    """A finished run's folder."""

    path: Path
    summary: Summary
    evaluations: tuple[Evaluation, ...]
    clients: tuple[Client, ...]
    config: str
    promise: Promise | None = None

    @property
    def metric(self) -> Metric:
        """The primary metric, which the clients' numbers are about."""
        return self.summary.metric

    def clients_of(self, group: str) -> list[Client]:
        """Known or new clients."""
        return [client for client in self.clients if client.group == group]


@dataclass(frozen=True)
class Method:
    """One row of a comparison with the runs behind it."""

    row: Row
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Comparison:
    """Several methods side by side; ``over`` says what an interval is taken over."""

    path: Path | None
    board: Board
    methods: tuple[Method, ...]
    over: str = "seeds"

    @property
    def metric(self) -> Metric:
        """The primary metric of all runs."""
        return self.board.metric


def read_folder(path: Path) -> Run | Comparison:
    """A comparison if the folder holds one, else a run."""
    return read_comparison(path) if is_comparison(path) else read_run(path)


def is_comparison(path: Path) -> bool:
    """Whether the folder was written by ``headstart compare``."""
    return (path / "comparison.json").exists()


def read_run(path: Path) -> Run:
    """A finished run."""
    refuse_other(path)
    if not (path / "summary.json").exists():
        raise InputError(
            f"{path} is not finished: it has no summary.json; "
            f"continue it with: headstart run --resume --out {path}"
        )
    summary = parsed(path / "summary.json", lambda text: Summary.from_table(load(text)))
    run = Run(
        path=path,
        summary=summary,
        evaluations=parsed(path / "metrics.jsonl", evaluations),
        clients=parsed(path / "clients.csv", lambda text: clients(text, summary.metric)),
        config=parsed(path / "config.toml", str),
        promise=parsed(theory, lambda text: Promise.from_table(load(text)))
        if (theory := path / "theory.json").exists()
        else None,
    )
    for group in run.summary.groups:
        if not run.clients_of(group):
            raise InputError(f"{path / 'clients.csv'} is damaged: it has no {group} client")
    return run


def read_comparison(path: Path) -> Comparison:
    """A comparison with its finished runs; diverged ones have only their reason."""
    board = parsed(path / "comparison.json", lambda text: Board.from_table(load(text)))
    methods = []
    for row in board.rows:
        lost = {f"seed-{seed}" for seed in row.diverged}
        folders = [path / folder for folder in row.folders if Path(folder).name not in lost]
        for folder in folders:
            if not folder.exists():
                raise InputError(
                    f"{folder} is missing, but {path / 'comparison.json'} names it; "
                    "copy the whole folder, or run the comparison again"
                )
        methods.append(Method(row, tuple(read_run(folder) for folder in folders)))
    return Comparison(path, board, tuple(methods))


def refuse_other(path: Path) -> None:
    """A run is a folder with a configuration."""
    if not path.exists():
        raise InputError(f"{path} does not exist; give a run folder or a comparison folder")
    if not path.is_dir():
        raise InputError(f"{path} is a file; give the folder of a run or of a comparison")
    if not (path / "config.toml").exists():
        raise InputError(
            f"{path} is neither a run nor a comparison: it has no config.toml or comparison.json"
        )


def parsed(path: Path, parse: Callable[[str], T]) -> T:
    """What the parser makes of the file's text, or one clear line."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; the folder is incomplete") from None
    except KeyError as error:
        raise InputError(f"{path} is damaged: it has no {error}") from None
    except (ValueError, TypeError, AttributeError, csv.Error) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def load(text: str) -> dict[str, Any]:
    """A JSON table; NaN and infinities become None."""
    table = json.loads(text, parse_constant=lambda _: None)
    if not isinstance(table, dict):
        raise TypeError(f"a table is expected, not {type(table).__name__}")
    return table


def evaluations(text: str) -> tuple[Evaluation, ...]:
    """The lines of ``metrics.jsonl``."""
    entries = []
    for count, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        try:
            entries.append(evaluation(load(line)))
        except json.JSONDecodeError as error:
            raise ValueError(f"line {count}: {error}") from None
    if not entries:
        raise ValueError("it holds no evaluation")
    return tuple(entries)


def evaluation(table: dict[str, Any]) -> Evaluation:
    """One evaluation."""
    return Evaluation(
        round=int(table["round"]),
        gradients=int(table["gradient_evaluations"]),
        train_loss=number(table.get("train_loss")),
        groups=pairs(table, Metric.of(table)),
        gradient_norm_squared=number(table.get("gradient_norm_squared")),
    )


def clients(text: str, metric: Metric = ACCURACY) -> tuple[Client, ...]:
    """The lines of ``clients.csv``, with this metric."""
    rows = [
        Client(
            name=row["name"],
            group=NEW if row["kind"] == "new" else KNOWN,
            train=int(row["train_examples"]),
            test=int(row["test_examples"]),
            classes=int(row["classes"]),
            before=number(row[f"{metric.name}_before"] or None),
            after=number(row[f"{metric.name}_after"] or None),
        )
        for row in csv.DictReader(text.splitlines(keepends=True))
    ]
    if not rows:
        raise ValueError("it holds no client")
    return tuple(rows)
