"""Tune every method with the same number of trials, without test data.

Trials use only the clients' training splits, split again, with a seed that no result uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from studies.seed_statistics import after
from studies.small_versions import QUICK_TRIES, make_piece
from studies.study import Piece, Record

TUNING_SEED = 1000


@dataclass(frozen=True)
class Contender:
    """A method with the options to try."""

    key: str
    """Its cell in the study; trials are ``key/try-1`` and so on."""
    label: str
    algorithm: Mapping[str, Any]
    tries: Sequence[Mapping[str, Any]]
    measured_after: int | None = None
    """Adaptation steps after which a trial is scored; by default those of the experiment."""

    def pieces(
        self, table: Mapping[str, Any], seeds: Sequence[int], quick: bool,
        done: Sequence[Record], **options: bool,
    ) -> list[Piece]:  # fmt: skip
        """Return the trials and, once all are done, the best one with every seed."""
        count = QUICK_TRIES if quick else len(self.tries)
        tries = [self._try(table, number, quick) for number in range(count)]
        fingerprints = {one.fingerprint for one in tries}
        best = self.best([r for r in done if r["fingerprint"] in fingerprints], count)
        if best is None:
            return tries
        chosen = {"algorithm": {**self.algorithm, **best}, "label": self.label}
        return tries + [
            make_piece(self.key, {**table, **chosen, "seed": seed}, quick, **options)
            for seed in seeds
        ]

    def best(self, done: Sequence[Record], count: int | None = None) -> Mapping[str, Any] | None:
        """Return the best options of the first ``count`` trials; None until all have ended."""
        found = {r["cell"]: r for r in done if r["seed"] == TUNING_SEED}
        cells = [self._cell(number) for number in range(len(self.tries))][:count]
        if any(cell not in found for cell in cells):
            return None
        scores = [self._score(found[cell]) for cell in cells]
        return self.tries[scores.index(max(scores))]

    def _try(self, table: Mapping[str, Any], number: int, quick: bool) -> Piece:
        options = {**self.algorithm, **self.tries[number]}
        whole = {**table, "algorithm": options, "label": self.label, "seed": TUNING_SEED}
        return replace(make_piece(self._cell(number), whole, quick), tuning=True)

    def _score(self, record: Record) -> float:
        return -1.0 if "diverged" in record else after(record, self.measured_after)

    def _cell(self, number: int) -> str:
        return f"{self.key}/try-{number + 1}"


def grid(**options: Sequence[float]) -> list[dict[str, float]]:
    """Return all combinations.

    >>> grid(a=[1, 2], b=[3])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    found: list[dict[str, float]] = [{}]
    for name, values in options.items():
        found = [{**point, name: value} for point in found for value in values]
    return found
