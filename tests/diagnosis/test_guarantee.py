"""A run that records ‖∇F‖², and the bound beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart._cli.main import app
from headstart._experiments.configuration import Experiment
from headstart.errors import ConfigError, InputError
from headstart.records import read_run
from headstart.report._curves import run_stationarity
from headstart.report._run_charts import stationarity_chart

TABLE: dict[str, Any] = {
    "rounds": 4,
    "data": {"source": "digits", "partition": "iid", "clients": 6},
    "model": {"name": "logistic"},
    "algorithm": {
        "name": "per-fedavg", "inner_lr": 0.01, "local_lr": 1e-4, "local_steps": 2,
        "batch_size": 8, "random_iterate": True, "max_gradient_norm": float("inf"),
    },
    "evaluation": {"every": 2, "gradient_norm": True},
}  # fmt: skip


def run(folder: Path, **algorithm: Any) -> Path:
    table = {**TABLE, "algorithm": {**TABLE["algorithm"], **algorithm}}
    path = folder / "experiment.toml"
    path.write_text(Experiment.from_table(table).to_toml(), encoding="utf-8")
    out = folder / "run"
    done = CliRunner().invoke(app, ["run", str(path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


def test_the_report_draws_what_was_measured_below_what_is_promised(tmp_path: Path) -> None:
    out = run(tmp_path)
    each, mean, bound = run_stationarity(read_run(out))
    assert each.x == mean.x == bound.x == (2.0, 4.0)
    assert mean.y[1] == pytest.approx(sum(v for v in each.y if v is not None) / 2)
    assert all(m < b for m, b in zip(mean.y, bound.y, strict=True) if m is not None and b)
    assert (out / "figures/stationarity.png").exists()
    assert "How stationary the model is" in (out / "report.html").read_text(encoding="utf-8")
    (out / "theory.json").write_text('{"bound": {"rounds": [1], "total": []}, "reason": null}')
    with pytest.raises(InputError, match=r"theory\.json is damaged"):
        read_run(out)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"local_lr": 0.5}, "at most 1/(10τL_F)"),
        ({"server_optimizer": "adam", "server_lr": 0.01}, "plain averaging"),
        ({"weights": "examples"}, "count alike"),
        ({"max_gradient_norm": 5.0}, "set algorithm.max_gradient_norm=inf instead of 5"),
        ({"name": "fedavg"}, None),
    ],
)
def test_where_the_theorem_is_silent_the_page_says_why(
    tmp_path: Path, options: dict[str, Any], reason: str | None
) -> None:
    out = run(tmp_path, **options)
    stored = json.loads((out / "theory.json").read_text(encoding="utf-8"))
    caption = stationarity_chart(read_run(out))[0].caption
    if reason is None:
        assert stored["bound"]["total"][0] > 0 and "The bound uses" in caption
    else:
        assert reason in stored["reason"] and reason in caption


def test_without_random_iterates_there_is_nothing_to_measure_at() -> None:
    algorithm = {**TABLE["algorithm"], "random_iterate": False}
    with pytest.raises(ConfigError, match="random_iterate=true"):
        Experiment.from_table({**TABLE, "algorithm": algorithm})
    plain = Experiment.from_table({**TABLE, "evaluation": {}})
    assert "gradient_norm" not in plain.to_table()["evaluation"]
