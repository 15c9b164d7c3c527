"""The recommended method against FedAvg: equal searches, fresh seeds, verdicts from the numbers."""

from __future__ import annotations

from typing import Any

import pytest
from study_records import record

from studies.recommended import (
    ALL_CELLS,
    CANDIDATES,
    CELLS,
    FEDAVG,
    FIRST_SEED,
    ON_BATCHES,
    RECOMMENDED,
    SETTINGS,
    SINUSOID,
    Recommended,
    Setting,
    cell,
    describe_gap,
    difference,
)
from studies.seed_statistics import Gap
from studies.study import Piece, Record
from studies.tuning import TUNING_SEED

STUDY = Recommended()
DIGITS = SETTINGS[0]


def result(setting: Setting, budget: int, side: str, seed: int, value: float) -> Record:
    """A finished piece whose new clients reach a value after three steps."""
    curve = [0.1, 0.1, 0.1, value]
    return record(
        cell(setting, budget, side), seed, 0.1, new={setting.metric: list(curve)},
        shots=[{"shots": setting.shots, "new": curve}],
    )  # fmt: skip


def results(gain: float, cells: list[tuple[Setting, int]], side: str = FEDAVG) -> list[Record]:
    """Three seeds; the recommended method is ahead by ``gain`` ± 0.1 points."""
    return [
        result(setting, budget, who, seed, value)
        for setting, budget in cells
        for seed in range(3)
        for who, value in (
            (side, 0.8),
            (RECOMMENDED, 0.8 + gain / 100 + 0.001 * (seed - 1)),
        )
    ]


def search_record(piece: Piece) -> Record:
    """A finished search."""
    chosen = {"algorithm": {"name": "fedavg", "local_steps": 5}, "rounds": 12, "validation": 0.5}
    return record(piece.cell, piece.seed, fingerprint=piece.fingerprint, chosen=chosen)


def test_both_sides_have_the_same_number_of_candidates_all_of_them_different() -> None:
    assert len({len(CANDIDATES[side]) for side in CANDIDATES}) == 1
    for candidates in CANDIDATES.values():
        assert len({repr(candidate) for candidate in candidates}) == len(candidates)
    assert all(each["name"] == "fedavg" for each in CANDIDATES[FEDAVG])
    kept = [{**each, "full_batch_adaptation": True} for each in CANDIDATES[ON_BATCHES]]
    assert kept == CANDIDATES[FEDAVG]


def test_there_are_sixteen_cells_with_two_budgets_each() -> None:
    assert len(CELLS) == 16 and len(ALL_CELLS) == 18
    assert all(small < large for small, large in (setting.budgets for setting in SETTINGS))


def test_searches_come_first_and_their_winners_are_trained_with_fresh_seeds() -> None:
    searches = STUDY.pieces(range(2), False, [])
    assert all(piece.search is not None and piece.seed == TUNING_SEED for piece in searches)
    assert len({piece.cell for piece in searches}) == len(searches)
    done = [search_record(piece) for piece in searches if piece.cell.startswith("digits/3200/")]
    found = [piece for piece in STUDY.pieces(range(2), False, done) if piece.search is None]
    assert {piece.cell for piece in found} == {cell(DIGITS, 3200, side) for side in DIGITS.sides}
    for piece in found:
        assert piece.experiment.rounds == 12 and piece.experiment.algorithm["local_steps"] == 5
        assert piece.experiment.evaluation.every == 12
    seeds = {piece.seed for piece in found}
    assert seeds == set(range(FIRST_SEED, FIRST_SEED + 2 * DIGITS.seed_factor))
    assert TUNING_SEED not in seeds


def test_a_search_counts_only_with_todays_candidates_and_budget() -> None:
    searches = STUDY.pieces(range(1), False, [])
    assert len({piece.fingerprint for piece in searches}) == len(searches)
    stale = {**search_record(searches[0]), "fingerprint": "of other candidates"}
    assert all(piece.search is not None for piece in STUDY.pieces(range(1), False, [stale]))


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.9, 1.0, 1.1], "ahead"),
        ([-2.0, 4.0, 1.0], "level"),
        ([-0.4, -0.5, -0.3], "level"),
        ([-0.6, -0.7, -0.5], "behind"),
        ([0.0, 0.0, 0.0], "level"),
    ],
)
def test_a_difference_is_called_what_it_is(values: list[float], verdict: str) -> None:
    assert describe_gap(Gap(values)) == verdict


def test_claims_follow_the_numbers() -> None:
    def verdicts(records: list[Any]) -> list[str]:
        return [claim.verdict for claim in STUDY.section(records).claims]

    assert verdicts(results(1.0, CELLS)) == ["holds", "holds"]
    assert verdicts(results(0.0, CELLS)) == ["holds", "does not hold"]
    half = results(1.0, CELLS[:8]) + results(0.0, CELLS[8:])
    assert verdicts(half) == ["holds", "holds"]
    assert verdicts(results(1.0, CELLS[:7]) + results(0.0, CELLS[7:])) == ["holds", "does not hold"]
    assert verdicts(results(1.0, CELLS[:15]) + results(-1.0, CELLS[15:])) == [
        "does not hold",
        "holds",
    ]
    assert verdicts(results(1.0, CELLS[:7])) == ["undecided", "undecided"]
    assert not verdicts([])


def test_the_better_fedavg_counts_whichever_way_it_adapts() -> None:
    """All examples 80 %, batches 81.5 %, recommended 81 %."""
    records = results(1.0, CELLS)
    better = [
        result(setting, budget, ON_BATCHES, seed, 0.815)
        for setting, budget in CELLS
        for seed in range(3)
    ]
    for setting, budget in CELLS:
        found = difference([*records, *better], setting, budget)
        assert found is not None and found.mean == pytest.approx(-0.5)
        other = difference([*records, *better], setting, budget, FEDAVG)
        assert other is not None and other.mean == pytest.approx(1.0)
    section = STUDY.section([*records, *better])
    assert [claim.verdict for claim in section.claims] == ["holds", "does not hold"]
    assert "| 80.0 ± 0.0 | 81.5 ± 0.0 | 81.0 ± 0.2 | -0.5 ± 0.2 | level |" in section.text


def test_few_shots_are_read_from_the_scores_of_few_shots_and_errors_stay_errors() -> None:
    writers = next(setting for setting in SETTINGS if setting.shots)
    budget = writers.budgets[0]
    records = results(2.0, [(writers, budget)])
    for each in records:
        each["new"]["accuracy"][3] = 0.0  # with all examples: not what is asked
    found = difference(records, writers, budget)
    assert found is not None and found.mean == pytest.approx(2.0)
    errors = [
        result(SINUSOID, SINUSOID.budgets[0], side, seed, value)
        for side, value in ((FEDAVG, 1.25), (RECOMMENDED, 0.5))
        for seed in range(2)
    ]
    text = STUDY.section(errors).text
    assert "| 20,000 | 1.25 ± 0.00 | 0.50 ± 0.00 |" in text
