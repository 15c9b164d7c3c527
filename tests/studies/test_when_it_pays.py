"""When it pays: equal budgets, and claims that follow the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from study_records import record

from studies.seed_statistics import OPEN, Gap, after
from studies.small_versions import HIDDEN, ROUNDS, is_small
from studies.study import Record
from studies.tuning import TUNING_SEED
from studies.when_it_pays import (
    ACTIVE,
    BUDGETS,
    CELLS,
    DEGREES,
    KINDS,
    METHODS,
    MIDDLE,
    PLAIN,
    SHOTS,
    STEPS,
    WhenItPays,
    Where,
    best_plain,
    cell,
    new_after_steps,
    standing,
)

STUDY = WhenItPays()
ALL: list[tuple[Where, int]] = [*CELLS, *((kind.key, MIDDLE) for kind in KINDS)]


def result(where: Where, method: str, budget: int, seed: int, accuracy: float) -> Record:
    """A finished piece whose new clients reach an accuracy after three steps."""
    curve = [0.1, 0.1, 0.1, accuracy, *[accuracy] * 7]
    return record(
        cell(where, method, budget), seed, 0.1, 0.1, 0.1, accuracy,
        new={"accuracy": curve}, shots=[{"shots": n, "new": curve} for n in SHOTS],
        training=[{"round": 0, "after": 0.1}, {"round": 100, "after": accuracy}],
        gradient_evaluations=ACTIVE * 400, bytes={"down": 10**6, "up": 10**6},
        config={"evaluation": {"adapt_steps": STEPS}},
    )  # fmt: skip


def results(
    accuracy: dict[tuple[Where, str], float], cells: Sequence[tuple[Where, int]] = ALL
) -> list[Record]:
    """Three seeds with this mean accuracy for every budget; other methods reach 0.5."""
    return [
        result(w, m.key, b, seed, accuracy.get((w, m.key), 0.5) + 0.002 * seed)
        for w, b in cells
        for m in METHODS
        for seed in (-1, 0, 1)
    ]


def verdicts(accuracy: dict[tuple[Where, str], float]) -> list[str]:
    return [claim.verdict for claim in STUDY.section(results(accuracy)).claims]


def test_claims_follow_the_numbers() -> None:
    conflicts: list[Where] = [*DEGREES[1:], *(kind.key for kind in KINDS)]
    ahead = {(where, "rates"): 0.8 for where in conflicts}
    assert verdicts({**ahead, (1.0, "fedavg-20"): 0.6}) == ["holds"] * 7
    behind = {(where, "rates"): 0.4 for where in (0.0, *conflicts)}
    assert verdicts({**behind, (1.0, "fedavg-20"): 0.45}) == ["does not hold"] * 7
    assert not STUDY.section([]).claims


def test_the_claim_of_a_kind_follows_its_own_numbers() -> None:
    section = STUDY.section(results({("rotated", "rates"): 0.8, ("groups", "fedavg-50"): 0.8}))
    assert [claim.verdict for claim in section.claims[-3:-1]] == ["holds", "does not hold"]
    assert "| rotated images | 1 | +30.0 ± 0.0 | ahead | 1 | +30.0 ± 0.0 | ahead |" in section.text
    assert "| class groups | 50 | -30.0 ± 0.0 | behind | 50 | -30.0 ± 0.0 |" in section.text
    assert "| Dirichlet(0.1) | 1 | +0.0 ± 0.0 | level |" in section.text


def test_ahead_level_and_behind_need_an_interval_that_says_so() -> None:
    """With two values the half width is 12.7 standard errors: 6.35 for a distance of 1."""
    values = {"ahead": [9.5, 10.5], "behind": [-10.5, -9.5], "level": [0.0, 0.1], OPEN: [0.0, 1.0]}
    assert {name: standing(Gap(each)) for name, each in values.items()} == {n: n for n in values}
    assert standing(Gap([50.0])) == OPEN


def test_results_without_kinds_have_no_part_about_them() -> None:
    section = STUDY.section(results({}, CELLS))
    assert "Kinds of conflict" not in section.text and "kinds" not in section.figures
    assert len(section.claims) == 4


def test_the_best_fedavg_is_the_one_with_the_highest_mean() -> None:
    found = results({(0.0, "fedavg-5"): 0.7, (0.0, "rates"): 0.9})
    assert best_plain(found, 0.0, MIDDLE) == cell(0.0, "fedavg-5", MIDDLE)
    assert best_plain([], 0.0, MIDDLE) is None
    assert {method.key for method in METHODS if method.algorithm["name"] == "fedavg"} == set(PLAIN)


def test_the_best_fedavg_may_differ_between_new_and_known_clients() -> None:
    found = [
        {**r, "new": {"accuracy": [0.9] * 11}} if "fedavg-50" in r["cell"] else r
        for r in results({("groups", "fedavg-5"): 0.7})
    ]
    best = [best_plain(found, "groups", MIDDLE, measure) for measure in (new_after_steps, after)]
    assert best == [cell("groups", "fedavg-50", MIDDLE), cell("groups", "fedavg-5", MIDDLE)]


def test_the_section_shows_every_method_and_leaves_trials_out() -> None:
    trial = result(0.0, "rates", MIDDLE, TUNING_SEED, 1.0)
    section = STUDY.section([*results({(0.6, "exact"): 0.7}), trial])
    assert all(f"| {method.label} |" in section.text for method in METHODS)
    assert "70.0 ± 0.5" in section.text and "100.0" not in section.text
    assert [len(panel.marks) for panel in section.figures["where"]] == [len(METHODS)] * 4
    dots = [len(panel.marks) for panel in section.figures["kinds"]]
    assert dots == [2 * len(METHODS)] * (1 + len(KINDS))
    looks = {(line.style.colour, line.style.dash) for line in section.figures["where"][0].lines}
    assert len(looks) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_every_method_uses_its_whole_budget(method: Any) -> None:
    algorithm = {**method.algorithm, **method.tries[0]}
    piece = next(
        p for p in STUDY.pieces([], False, []) if p.cell.startswith(cell(0.0, method.key, MIDDLE))
    )
    cost = piece.experiment.build_algorithm().gradients_per_update(40)
    assert piece.experiment.algorithm["name"] == algorithm["name"]
    used = [ACTIVE * cost * method.rounds(budget) for budget in BUDGETS]
    fits = [budget if budget >= ACTIVE * cost else 0 for budget in BUDGETS]
    assert used == fits and used[1:] == list(BUDGETS[1:])


def test_results_follow_once_step_sizes_are_chosen() -> None:
    trials = STUDY.pieces([0, 1], False, [])
    assert {piece.seed for piece in trials} == {TUNING_SEED} and all(p.tuning for p in trials)
    done = [
        {**record(p.cell, p.seed, *[0.5] * 4), "fingerprint": p.fingerprint,
         "config": p.experiment.to_table()}
        for p in trials
    ]  # fmt: skip
    pieces = [p for p in STUDY.pieces([0, 1], False, done) if p.seed != TUNING_SEED]
    too_small = 2  # for τ = 50: the budget of 320, at both extremes
    assert len(pieces) == (len(METHODS) * len(ALL) - too_small) * 2
    data = {p.cell: p.experiment.data for p in pieces}
    assert all(data[cell(d, "rates", b)]["own_labels"] == d for d, b in CELLS)
    assert not any("own_rotation" in data[cell(d, "rates", b)] for d, b in CELLS)
    for kind in KINDS:
        found = data[cell(kind.key, "rates", MIDDLE)]
        assert {name: found[name] for name in kind.data} == kind.data and not found["own_labels"]
        assert (found["clients"], found["new_clients"]) == (24, 8)


def test_the_small_version_has_both_extremes_and_two_methods_of_one_kind() -> None:
    pieces = STUDY.pieces([0], True, [])
    assert {p.cell.split("/")[0] for p in pieces} == {"0", "1", "rotated"}
    rotated = [p for p in pieces if p.cell.startswith("rotated")]
    assert {p.cell.split("/")[1] for p in rotated} == {"fedavg-5", "rates"}
    assert all(p.experiment.data["own_rotation"] == 180 for p in rotated)


def test_a_few_rounds_with_the_whole_network_are_not_a_small_version() -> None:
    data = {"source": "digits"}
    small = {"data": data, "rounds": ROUNDS, "model": {"hidden": HIDDEN}}
    whole = {**small, "model": {"hidden": [80, 60]}}
    assert is_small(record("a", 0, 0.5, config=small))
    assert not is_small(record("a", 0, 0.5, config=whole))
