"""The stored results of a study: one JSON line per finished piece, small enough to keep in git."""

from __future__ import annotations

import json
from pathlib import Path

from headstart._atomic_files import write_text
from headstart.errors import InputError
from headstart.records._base import JsonTable
from studies.study import Piece, Record, Study

NEEDED = ("cell", "seed", "fingerprint", "config")


class Results:
    """One study's file."""

    def __init__(self, folder: Path, study: str) -> None:
        """Read the file, if it exists."""
        self.path = folder / f"{study}.jsonl"
        self.records: list[JsonTable] = _read(self.path)
        self.others: list[JsonTable] = []

    @classmethod
    def of_study(cls, folder: Path, study: Study) -> Results:
        """Open a study's results, with those of the studies it reads."""
        results = cls(folder, study.name)
        results.others = [
            {**record, "cell": f"{other}:{record['cell']}"}
            for other in study.reads
            for record in _read(folder / f"{other}.jsonl")
        ]
        return results

    @property
    def seen(self) -> list[JsonTable]:
        """All records the study may use."""
        return self.records + self.others

    def of(self, piece: Piece) -> Record | None:
        """Return the piece's result, if it was made with exactly these settings."""
        for record in self.records:
            if _key(record) == (piece.cell, piece.seed):
                return record if record["fingerprint"] == piece.fingerprint else None
        return None

    def add(self, record: JsonTable) -> None:
        """Store a result; one of the same cell and seed is replaced."""
        others = [r for r in self.records if _key(r) != _key(record)]
        self.records = sorted([*others, record], key=_key)
        lines = [json.dumps(r, allow_nan=False, ensure_ascii=False) for r in self.records]
        write_text(self.path, "\n".join(lines) + "\n")


def _key(record: Record) -> tuple[str, int]:
    return record["cell"], record["seed"]


def _read(path: Path) -> list[JsonTable]:
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            missing = [key for key in NEEDED if key not in record]
            if missing:
                raise ValueError(f"a line has no {missing[0]!r}")
        return sorted(records, key=_key)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read as results: {error}") from None
