"""MNIST as in paper P, Table 1, first row: the numbers a change must not lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart._experiments import load_experiment, run_experiment

EXAMPLES = Path(__file__).parent.parent / "examples" / "mnist"


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, least", [("fedavg", 0.91), ("first-order", 0.93), ("hessian-free", 0.94)]
)
def test_accuracy_after_one_step_on_class_groups(name: str, least: float, tmp_path: Path) -> None:
    """Thresholds: a prototype reached 92.5, 94.1 and 95.0 % at one seed, adapting on training data.

    The paper reports 75.96, 78.00 and 79.85 % (its initialisation and scaling are not given).
    """
    experiment = load_experiment(EXAMPLES / f"{name}.toml", ["evaluation.every=500"])
    summary = run_experiment(experiment, tmp_path / name).summary.to_table()
    assert summary["adapt_on"] == "train" and summary["adapt_steps"] == 1
    assert summary["accuracy"]["after"]["mean"] >= least
