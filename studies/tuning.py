"""Step sizes chosen for every method alike: the same number of tries, no test data looked at.

Tries train on the clients' training splits alone, split again, with a seed no result uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from studies.numbers import after
from studies.quick import QUICK_TRIES, piece
from studies.study import Piece, Record

TUNING_SEED = 1000


@dataclass(frozen=True)
class Contender:
    """A method with the options that are tried."""

    key: str
    """Its cell in the study; tries are ``key/try-1`` and so on."""
    label: str
    algorithm: Mapping[str, Any]
    tries: Sequence[Mapping[str, Any]]
    measured_after: int | None = None
    """Adaptation steps after which a try is judged; by default those of the experiment."""

    def pieces(
        self, table: Mapping[str, Any], seeds: Sequence[int], quick: bool,
        done: Sequence[Record], **options: bool,
    ) -> list[Piece]:  # fmt: skip
        """The tries; once all are done, the best one with every seed."""
        count = QUICK_TRIES if quick else len(self.tries)
        tries = [self._try(table, number, quick) for number in range(count)]
        made = {one.fingerprint for one in tries}
        best = self.best([r for r in done if r["fingerprint"] in made], count)
        if best is None:
            return tries
        chosen = {"algorithm": {**self.algorithm, **best}, "label": self.label}
        return tries + [
            piece(self.key, {**table, **chosen, "seed": seed}, quick, **options) for seed in seeds
        ]

    def best(self, done: Sequence[Record], count: int | None = None) -> Mapping[str, Any] | None:
        """The options of the best try (of the first ``count``); None until all have ended."""
        found = {r["cell"]: r for r in done if r["seed"] == TUNING_SEED}
        cells = [self._cell(number) for number in range(len(self.tries))][:count]
        if any(cell not in found for cell in cells):
            return None
        scores = [self._score(found[cell]) for cell in cells]
        return self.tries[scores.index(max(scores))]

    def _try(self, table: Mapping[str, Any], number: int, quick: bool) -> Piece:
        options = {**self.algorithm, **self.tries[number]}
        whole = {**table, "algorithm": options, "label": self.label, "seed": TUNING_SEED}
        return replace(piece(self._cell(number), whole, quick), tuning=True)

    def _score(self, record: Record) -> float:
        return -1.0 if "diverged" in record else after(record, self.measured_after)

    def _cell(self, number: int) -> str:
        return f"{self.key}/try-{number + 1}"


def grid(**options: Sequence[float]) -> list[dict[str, float]]:
    """All combinations.

    >>> grid(a=[1, 2], b=[3])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    found: list[dict[str, float]] = [{}]
    for name, values in options.items():
        found = [{**point, name: value} for point in found for value in values]
    return found
