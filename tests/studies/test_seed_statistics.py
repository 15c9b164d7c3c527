"""Means, paired differences and verdicts, against values worked out by hand."""

from __future__ import annotations

import pytest
from study_records import record, training

from studies import equal_cost, seed_statistics
from studies.seed_statistics import FAILS, HOLDS, OPEN, Gap, combine_verdicts, gap, make_claim, mean


def test_a_mean_over_seeds_with_students_interval() -> None:
    records = [record("a", seed, 0.1, value) for seed, value in enumerate((0.5, 0.6, 0.7))]
    found = mean(records, "a")
    # s = 10 points, t(0.975, 2) = 4.303: half width 4.303 · 10 / √3
    assert found is not None and found.mean == pytest.approx(60)
    assert found.ci95 == pytest.approx(24.84, abs=0.01)
    assert str(found) == "60.0 ± 24.8"
    assert mean(records, "b") is None


def test_differences_are_paired_by_seed_and_leave_out_what_diverged() -> None:
    records = [record("a", s, 0.0, 0.5 + 0.1 * s) for s in range(4)]
    records += [record("b", s, 0.0, 0.4 + 0.1 * s) for s in (0, 1, 2)]
    records += [{"cell": "b", "seed": 3, "diverged": "too large", "config": {}}]
    found = gap(records, "a", "b")
    assert found is not None and found.values == pytest.approx([10, 10, 10])
    assert found.above() == HOLDS
    assert seed_statistics.count_diverged(records, "b") == 1


@pytest.mark.parametrize(
    "values, above, within",
    [
        ((2.0, 2.1, 1.9), HOLDS, FAILS),
        ((-2.0, -2.1, -1.9), FAILS, FAILS),
        ((-3.0, 0.1, 3.0), OPEN, OPEN),
        ((0.1, 0.0, -0.1), OPEN, HOLDS),
        ((5.0,), OPEN, OPEN),
    ],
)
def test_a_difference_decides_only_with_its_whole_interval(
    values: tuple[float, ...], above: str, within: str
) -> None:
    assert Gap(values).above() == above
    assert Gap(values).within(1.0) == within


def test_a_claim_holds_if_all_parts_do_and_fails_if_one_does() -> None:
    assert combine_verdicts([HOLDS, HOLDS]) == HOLDS
    assert combine_verdicts([HOLDS, OPEN]) == OPEN
    assert combine_verdicts([HOLDS, OPEN, FAILS]) == FAILS
    assert combine_verdicts([]) == OPEN
    assert make_claim("x", [(HOLDS, "a: +1"), (FAILS, "b: -1")]).evidence == [
        "a: +1: holds",
        "b: -1: does not hold",
    ]


def test_time_leaves_out_compilation_and_compares_when_the_fastest_ends() -> None:
    fast = record("fedavg", 0, 0, 0, training=training(0.1, [0, 0.2, 0.4, 0.5], first=60))
    slow = record("hessian-free", 0, 0, 0, training=training(0.4, [0, 0.4, 0.8, 0.9], first=9))
    assert equal_cost.seconds_per_round(fast) == pytest.approx(0.1)
    ours, base = (
        equal_cost.accuracy_at_equal_time([fast, slow], m) for m in ("hessian-free", "fedavg")
    )
    # FedAvg ends after 30 · 0.1 = 3 s; the other has then done 7.5 rounds: 0.75 · 40 %
    assert ours is not None and base is not None
    assert ours.mean == pytest.approx(30) and base.mean == pytest.approx(50)
