"""When it pays: equal budgets, and claims that follow the numbers."""

from __future__ import annotations

from typing import Any

import pytest
from study_records import record

from studies.small_versions import HIDDEN, ROUNDS, is_small
from studies.study import Record
from studies.tuning import TUNING_SEED
from studies.when_it_pays import (
    ACTIVE,
    BUDGETS,
    CELLS,
    DEGREES,
    METHODS,
    MIDDLE,
    SHOTS,
    WhenItPays,
    best_plain,
    cell,
)

STUDY = WhenItPays()


def result(degree: float, method: str, budget: int, seed: int, accuracy: float) -> Record:
    """A finished piece whose new clients reach an accuracy after three steps."""
    curve = [0.1, 0.1, 0.1, accuracy, *[accuracy] * 7]
    return record(
        cell(degree, method, budget), seed, 0.1, 0.1, 0.1, accuracy,
        new={"accuracy": curve}, shots=[{"shots": n, "new": curve} for n in SHOTS],
        training=[{"round": 0, "after": 0.1}, {"round": 100, "after": accuracy}],
        gradient_evaluations=ACTIVE * 400, bytes={"down": 10**6, "up": 10**6},
    )  # fmt: skip


def results(accuracy: dict[tuple[float, str], float]) -> list[Record]:
    """Three seeds with this mean accuracy for every budget; other methods reach 0.5."""
    return [
        result(d, m.key, b, seed, accuracy.get((d, m.key), 0.5) + 0.002 * seed)
        for d, b in CELLS
        for m in METHODS
        for seed in (-1, 0, 1)
    ]


def verdicts(accuracy: dict[tuple[float, str], float]) -> list[str]:
    return [claim.verdict for claim in STUDY.section(results(accuracy)).claims]


def test_claims_follow_the_numbers() -> None:
    ahead = {(degree, "rates"): 0.8 for degree in DEGREES[1:]}
    assert verdicts({**ahead, (1.0, "fedavg-20"): 0.6}) == ["holds"] * 4
    behind = {(degree, "rates"): 0.4 for degree in DEGREES}
    assert verdicts({**behind, (1.0, "fedavg-20"): 0.45}) == ["does not hold"] * 4
    assert not STUDY.section([]).claims


def test_the_best_fedavg_is_the_one_with_the_highest_mean() -> None:
    found = results({(0.0, "fedavg-5"): 0.7, (0.0, "rates"): 0.9})
    assert best_plain(found, 0.0, MIDDLE) == cell(0.0, "fedavg-5", MIDDLE)
    assert best_plain([], 0.0, MIDDLE) is None


def test_the_section_shows_every_method_and_leaves_trials_out() -> None:
    trial = result(0.0, "rates", MIDDLE, TUNING_SEED, 1.0)
    section = STUDY.section([*results({(0.6, "exact"): 0.7}), trial])
    assert all(f"| {method.label} |" in section.text for method in METHODS)
    assert "70.0 ± 0.5" in section.text and "100.0" not in section.text
    assert [len(panel.marks) for panel in section.figures["where"]] == [len(METHODS)] * 4


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_every_method_uses_its_whole_budget(method: Any) -> None:
    algorithm = {**method.algorithm, **method.tries[0]}
    piece = next(
        p for p in STUDY.pieces([], False, []) if p.cell.startswith(cell(0.0, method.key, MIDDLE))
    )
    cost = piece.experiment.build_algorithm().gradients_per_update(40)
    assert piece.experiment.algorithm["name"] == algorithm["name"]
    assert [ACTIVE * cost * method.rounds(budget) for budget in BUDGETS] == list(BUDGETS)


def test_results_follow_once_step_sizes_are_chosen() -> None:
    trials = STUDY.pieces([0, 1], False, [])
    assert {piece.seed for piece in trials} == {TUNING_SEED} and all(p.tuning for p in trials)
    done = [
        {**record(p.cell, p.seed, *[0.5] * 4), "fingerprint": p.fingerprint,
         "config": p.experiment.to_table()}
        for p in trials
    ]  # fmt: skip
    pieces = [p for p in STUDY.pieces([0, 1], False, done) if p.seed != TUNING_SEED]
    assert len(pieces) == len(METHODS) * len(CELLS) * 2
    degrees = {p.cell: p.experiment.data["own_labels"] for p in pieces}
    assert all(degrees[cell(d, "rates", b)] == d for d, b in CELLS)


def test_a_few_rounds_with_the_whole_network_are_not_a_small_version() -> None:
    data = {"source": "digits"}
    small = {"data": data, "rounds": ROUNDS, "model": {"hidden": HIDDEN}}
    whole = {**small, "model": {"hidden": [80, 60]}}
    assert is_small(record("a", 0, 0.5, config=small))
    assert not is_small(record("a", 0, 0.5, config=whole))
