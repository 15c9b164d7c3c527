"""What a study consists of: pieces to run, and a section of the page made from their results.

A piece is one training run: a cell of a table or a curve of a figure, with one seed. A study names
its pieces. Finished pieces are stored, so a study can be interrupted and resumed at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headstart._experiments.configuration import Experiment, Table, without_later_options
from headstart.records._base import JsonTable
from headstart.report import Panel

ADDED_LATER: Mapping[str, object] = {"same_batch": False}
"""Options that older results do not have either, with the value that changes nothing."""
Record = Mapping[str, Any]
"""What is stored of a finished piece, see :func:`studies.runner.summarize_run`."""


@dataclass(frozen=True)
class MethodSearch:
    """A search for the best of some methods, on training data and validation clients alone."""

    candidates: Sequence[Table]
    """Tables of options of ``[algorithm]``."""
    budget: int
    """Gradient evaluations of one training run of the winner."""
    splits: int | None = None
    """How often each candidate is trained, each time without other clients."""
    shots: int | None = None
    """Clients adapt to at most this many examples."""

    def table(self) -> JsonTable:
        """Return all that decides the outcome."""
        return {
            "candidates": [dict(candidate) for candidate in self.candidates],
            "budget": self.budget,
            "splits": self.splits,
            "shots": self.shots,
        }


@dataclass(frozen=True)
class Piece:
    """One training run of a study."""

    cell: str
    """Which cell of the study, as ``mnist-10/hessian-free``; with the seed it names the piece."""
    experiment: Experiment
    on_test: bool = False
    """Whether to score once more after adapting on the test data, as paper P did."""
    each_client: bool = False
    """Whether to keep every client's accuracy."""
    tuning: bool = False
    """Whether to use the training splits alone, split again."""
    diagnosed_against: Experiment | None = None
    """If given, the experiment is diagnosed against this baseline instead of run."""
    search: MethodSearch | None = None
    """If given, a method for the experiment is searched instead of run."""

    @property
    def seed(self) -> int:
        """Varies partition, initial model and every draw."""
        return self.experiment.seed

    def table(self) -> JsonTable:
        """Return the experiment for a stored result, without options that change nothing."""
        table = self.experiment.to_table()
        options = without_later_options(table["algorithm"]).items()
        kept = {name: value for name, value in options if ADDED_LATER.get(name, ...) != value}
        return {**table, "algorithm": kept}

    @property
    def fingerprint(self) -> str:
        """What must agree for a stored result to count as this piece's."""
        table = self.table()
        del table["label"]
        parts = [table, self.on_test, self.each_client, self.tuning]
        if self.diagnosed_against is not None:
            parts.append(self.diagnosed_against.fingerprint())
        if self.search is not None:
            parts.append(self.search.table())
        content = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        """Return the name of the piece, for progress."""
        return f"{self.cell}, seed {self.seed}"


@dataclass(frozen=True)
class Claim:
    """Something a paper says, and whether our numbers bear it out."""

    text: str
    verdict: str
    """holds, does not hold, or undecided."""
    evidence: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A study's part of the page."""

    text: str
    """Markdown; figures are referred to by their names."""
    figures: Mapping[str, Sequence[Panel]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()


class Study(Protocol):
    """One experiment of the papers, or one beyond them."""

    name: str
    title: str
    summary: str
    """A line for the list of studies."""
    reads: Sequence[str]
    """Studies whose results this one uses: their cells come as ``study:cell``."""

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return all pieces known so far; some depend on other results (a tuned step size)."""

    def section(self, records: Sequence[Record]) -> Section:
        """Return the section for the stored results."""
