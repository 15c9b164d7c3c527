"""Other readings of the texts: what is changed, and how it is shown."""

from __future__ import annotations

from typing import Any

from study_records import record

from headstart._experiments.configuration import Experiment
from studies import STUDIES
from studies.alternative_readings import DIFFERENCE, READINGS, ROWS, TABLE1
from studies.table1 import setting

STUDY = STUDIES["left-open"]


def row(reading: str, key: str, fedavg: float, hessian_free: float) -> list[dict[str, Any]]:
    """Three seeds, one hundredth apart."""
    prefix = f"{TABLE1}:" if reading == "table" else f"{reading}/"
    return [
        record(f"{prefix}{key}/{method}", seed, 0.1, value + 0.01 * seed,
               known_adapted_on_test=[0.1, value])
        for method, value in (("fedavg", fedavg), ("hessian-free", hessian_free))
        for seed in (-1, 0, 1)
    ]  # fmt: skip


def test_every_reading_changes_just_what_it_says() -> None:
    printed = setting(ROWS["cifar-4-alpha"], "hessian-free", 0)
    before = Experiment.from_table(printed).to_table()
    changed = {}
    for reading in READINGS:
        after = Experiment.from_table(reading.change(printed)).to_table()
        changed[reading.key] = {
            f"{section}.{option}": after[section].get(option)
            for section in ("data", "model", "algorithm", "evaluation")
            for option in {*before[section], *after[section]}
            if before[section].get(option) != after[section].get(option)
        }
    assert changed == {
        "slow": {"algorithm.local_lr": 0.0001},
        "mean-loss": {"algorithm.local_lr": 0.0001, "algorithm.inner_lr": 0.001},
        "one-batch": {"algorithm.same_batch": True},
        "squares": {"model.name": "mlp-squares", "model.activation": None},
    }


def test_growth_is_the_gain_where_clients_differ_more_minus_the_other_one() -> None:
    usual, different = DIFFERENCE
    records = row("table", usual, 0.5, 0.6) + row("table", different, 0.6, 0.65)
    records += row("squares", usual, 0.3, 0.3) + row("squares", different, 0.3, 0.4)
    section = STUDY.section(records)
    assert "| as printed | +10.0 ± 0.0 | +5.0 ± 0.0 | -5.0 ± 0.0 |" in section.text
    assert (
        f"| {READINGS[-1].description} | +0.0 ± 0.0 | +10.0 ± 0.0 | +10.0 ± 0.0 |" in section.text
    )
    assert section.claims[0].verdict == "does not hold"
    assert section.claims[0].evidence == [
        "as printed: -5.0 ± 0.0 points: does not hold",
        f"{READINGS[-1].description}: +10.0 ± 0.0 points: holds",
    ]


def test_a_reading_under_which_training_diverges_says_so() -> None:
    usual, _ = DIFFERENCE
    lost = [{**record(f"squares/{usual}/hessian-free", s, 0.1), "diverged": "d"} for s in (0, 1)]
    text = STUDY.section(row("table", usual, 0.5, 0.6) + lost).text
    assert "| 2 diverged (46.3) |" in text
    assert "50.0 ± 2.5 / 50.0 ± 0.0 (36.0)" in text
