"""Numbers to predict, end to end: one step in closed form, the command line, the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import headstart as hs
from headstart._cli.main import app
from headstart._experiments import load_run, recommendation
from headstart._simulation import Simulation
from headstart.data import Schema, from_clients
from headstart.data._dataset_options import build_dataset
from headstart.data._store import open_store, write_store
from headstart.errors import ConfigError, DataError
from headstart.models import Regression

SLOPES = np.array([1.5, -2.0, 0.5])


def client(rng: np.random.Generator, size: int = 40, offset: float = 0.0) -> Any:
    """A line of its own for every client: y = x·slopes + offset + noise."""
    x = rng.normal(size=(size, 3)).astype(np.float32)
    y = (x @ SLOPES + offset + 0.1 * rng.normal(size=size)).astype(np.float32)
    return x[: size - 10], y[: size - 10], x[size - 10 :], y[size - 10 :]


def federation(clients: int = 6, new_clients: int = 1, **schema: Any) -> Any:
    rng = np.random.default_rng(0)
    parts = [client(rng, offset=float(i)) for i in range(clients)]
    return from_clients(
        parts, Schema(shape=(3,), target="number", **schema), new_clients=new_clients
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of six clients."""
    path = tmp_path_factory.mktemp("rent") / "rent.csv"
    rng = np.random.default_rng(0)
    lines = ["city,a,b,c,price"]
    for number in range(6):
        x, y, more_x, more_y = client(rng, offset=float(number))
        for row, price in zip([*x, *more_x], [*y, *more_y], strict=True):
            lines.append(f"city-{number},{row[0]},{row[1]},{row[2]},{price}")
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(table: Path, *more: str) -> list[str]:
    options = [
        f"data.path={table}", "data.client=city", "data.label=price", "data.new_clients=1",
        "objective.name=regression", "model.name=mlp", "model.hidden=[8]", "rounds=20",
        "algorithm.inner_lr=0.05", "algorithm.local_lr=0.05", "algorithm.local_steps=5",
        "algorithm.batch_size=10", "evaluation.every=10", "evaluation.curve_steps=2", *more,
    ]  # fmt: skip
    return [word for option in options for word in ("--set", option)]


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_one_full_batch_step_of_fedavg_is_gradient_descent_on_squared_errors() -> None:
    """w₁ = w₀ − β · (2/n) Xᵀ(X w₀ − y), from zero; the loss has no factor ½."""
    x, y, *held = client(np.random.default_rng(1))
    data = from_clients([(x, y, *held)], Schema(shape=(3,), target="number"))
    step = hs.FedAvg(
        local_lr=0.1, local_steps=1, batch_size=len(y), local_epochs=1, max_gradient_norm=np.inf
    )
    engine = Simulation(data, hs.models.logistic(), step)
    params = engine.algorithm.model(engine.advance(engine.start(), 1).state)
    n, design = len(y), np.concatenate([x, np.ones((len(y), 1))], axis=1).astype(float)
    expected = -0.1 * (2 / n) * design.T @ (design @ np.zeros(4) - y)
    np.testing.assert_allclose(np.asarray(params.weight)[0], expected[:3], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(params.bias), expected[3:], rtol=1e-5)


def test_regression_from_python() -> None:
    data = federation()
    run = hs.train(
        data, hs.models.mlp([8]), hs.PerFedAvg(inner_lr=0.05, local_lr=0.02, batch_size=10),
        rounds=30, seed=0, objective={"metrics": ["rmse", "r2"]},
    )  # fmt: skip
    summary = run.summary.to_table()
    assert summary["metric"] == {"name": "rmse", "direction": "lower", "unit": ""}
    assert "accuracy" not in summary and "accuracy" not in str(run.summary)
    assert summary["rmse"]["after"]["mean"] < summary["rmse"]["before"]["mean"]
    assert {"rmse_before", "rmse_after", "r2_after"} <= set(run.clients[0].to_row())
    assert run.clients[0].classes == 0
    assert set(summary["adaptation"]["known_clients"]) == {"rmse", "r2", "ci95"}
    mine = data.client(5)
    own = run.personalize(mine.x_train, mine.y_train, steps=1)
    answers = own.predict(mine.x_test)
    assert answers.shape == mine.y_test.shape and answers.dtype == np.float32
    wanted = np.sqrt(np.mean((answers - mine.y_test) ** 2))
    assert own.score(mine.x_test, mine.y_test)["rmse"] == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ConfigError, match="gives no probabilities"):
        own.probabilities(mine.x_test)
    with pytest.raises(ConfigError, match="accuracy is for classification; use score"):
        own.accuracy(mine.x_test, mine.y_test)


def test_a_model_no_better_than_the_mean_has_failed() -> None:
    """Hardly a step: RMSE stays above that of each client's training mean, so R² ≤ 0."""
    idle = hs.FedAvg(inner_lr=1e-6, local_lr=1e-6, batch_size=10)
    run = hs.train(federation(), hs.models.logistic(), idle, rounds=2, seed=0)
    assert any("no better than a constant: RMSE" in text for text in run.summary.failures)
    assert "mean of each client's training labels" in run.summary.failures[0]


def test_standardizing_scales_the_label_and_reports_in_its_units() -> None:
    rng = np.random.default_rng(0)
    parts = [client(rng, offset=float(i)) for i in range(6)]
    x, y = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    owner = np.repeat(np.arange(6), 30)
    pool = hs.data.Pool(
        "lines", x, 1000 * y + 5000, Schema(shape=(3,), target="number"), owner=owner,
        standardize=True,
    )  # fmt: skip
    data = pool.split(seed=0)
    scaled = data.schema.decode_target(jnp.asarray(data.y[:, None]))
    assert abs(float(np.mean(scaled))) < 0.2 and 0.8 < float(np.std(scaled)) < 1.2
    good = hs.FedAvg(inner_lr=0.05, local_lr=0.05, local_steps=10, batch_size=10)
    run = hs.train(data, hs.models.logistic(), good, rounds=40, seed=0)
    assert 10 < float(run.summary.known["rmse"].after.mean or 0) < 5000
    assert run.summary.failures == ()


def test_regression_through_the_command_line(table: Path, tmp_path: Path) -> None:
    folder, told = tmp_path / "run", []
    told.append(invoke("run", "--out", str(folder), *settings(table, "data.standardize=true")))
    assert "RMSE" in told[0]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metric"]["name"] == "rmse" and summary["failures"] == []
    config = str(folder / "config.toml")
    invoke("data", "export", config, "--client", "city-5", "--out", str(tmp_path / "mine.csv"))
    told.append(invoke("personalize", str(folder), "--data", str(tmp_path / "mine.csv")))
    assert re.search(r"RMSE on these: \d.* before, \d.* after 1 steps", told[-1])
    both = tmp_path / "both"
    words = ("--algorithms", "fedavg,per-fedavg", "--seeds", "2", "--out", str(both))
    told.append(invoke("compare", config, *words))
    told.append(invoke("data", "describe", config))
    for page in (folder / "report.html", both / "report.html"):
        text = re.sub(r"<script[^>]*>.*?</script>", "", page.read_text(), flags=re.S)
        assert "RMSE" in text
        told.append(text)
    for text in told:
        assert "accuracy" not in text.lower(), text[:500]
    reopened = load_run(folder)
    assert isinstance(reopened.objective, Regression)
    table_of_both = json.loads((both / "comparison.json").read_text())
    assert table_of_both["metric"]["direction"] == "lower"
    assert "rmse" in table_of_both["rows"][0]["adaptation"]["known_clients"]


def test_search_prefers_the_smaller_error(table: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.toml"
    words = settings(table, "algorithm.name=per-fedavg", "data.standardize=true")
    told = invoke(
        "plan", "--search", "--budget", "4000", "--tries", "4", "--json", "--out", str(best), *words
    )
    frontier = json.JSONDecoder().raw_decode(told[told.index("[") :])[0]
    errors = [point["rmse"] for point in frontier]
    assert errors == sorted(errors, reverse=True)
    assert 'name = "regression"' in best.read_text()


def test_a_verdict_respects_the_direction() -> None:
    from headstart.records import paired_difference

    lower = paired_difference([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "lower")
    assert lower.verdict == "better" and lower.mean == pytest.approx(-1.0)
    assert paired_difference([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]).verdict == "worse"


def test_labels_that_do_not_fit_are_refused_in_one_line(table: Path, tmp_path: Path) -> None:
    options = {"path": str(table), "client": "city", "label": "price"}
    with pytest.raises(DataError, match=r"set objective\.name='regression'"):
        build_dataset(options, seed=0)
    for partition in ("dirichlet", "shards", "class-groups", "dirichlet-labels"):
        with pytest.raises(ConfigError, match=f"'{partition}' needs class labels"):
            build_dataset({**options, "partition": partition}, seed=0, target="number")
    words = tmp_path / "words.csv"
    words.write_text("a,label\n1,low\n2,high\n3,low\n")
    with pytest.raises(DataError, match="line 2 has label 'low', which is not a finite number"):
        build_dataset(
            {"path": str(words), "partition": "iid", "clients": 2}, seed=0, target="number"
        )
    with pytest.raises(ConfigError, match="renames classes"):
        federation().with_own_labels()
    with pytest.raises(DataError, match="not a finite number"):
        federation().client(0).y_train[:] = np.nan
        bad = federation()
        bad.y[3] = np.nan
        hs.data.from_clients(
            [(c.x_train, c.y_train, c.x_test, c.y_test) for c in map(bad.client, range(6))],
            bad.schema,
        )


def test_numbers_survive_a_store(tmp_path: Path) -> None:
    data = federation(target_shift=2.0)
    write_store(tmp_path / "packed", data)
    again = open_store(tmp_path / "packed")
    assert again.schema == data.schema and again.y.dtype == np.float32
    np.testing.assert_array_equal(again.y, data.y)
    assert again.digest() == data.digest()


def test_several_labels_from_python() -> None:
    """On or off by the sign of a feature each: learned, scored and predicted."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(5):
        x = rng.normal(size=(60, 4)).astype(np.float32)
        y = (x[:, :3] > 0).astype(int)
        parts.append((x[:40], y[:40], x[40:], y[40:]))
    schema = Schema(shape=(4,), classes=3, target="labels", class_names=("red", "green", "blue"))
    data = from_clients(parts, schema, new_clients=1)
    run = hs.train(
        data, hs.models.logistic(), hs.FedAvg(inner_lr=0.5, local_lr=0.5, batch_size=20),
        rounds=40, seed=0, objective={"metrics": ["label-accuracy", "macro-f1", "exact-match"]},
    )  # fmt: skip
    assert float(run.summary.known["label-accuracy"].after.mean or 0) > 0.9
    assert "macro-F1: known" in str(run.summary)
    mine = data.client(4)
    own = run.personalize(mine.x_train, mine.y_train)
    answers = own.predict(mine.x_test)
    assert answers.shape == mine.y_test.shape and set(np.unique(answers)) <= {0, 1}
    assert own.score(mine.x_test, mine.y_test)["label-accuracy"] == np.mean(answers == mine.y_test)
    assert own.probabilities(mine.x_test).max() <= 1
    assert hs.data.describe(data)["labels"] == 3


def test_a_diagnosis_of_numbers_speaks_of_errors_and_counts_gains_as_gains(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [
        recommendation.fedavg_candidates()[0],
        recommendation.learned_rates_candidates(1)[0],
    ]  # the whole list would compile as many programs
    monkeypatch.setattr(recommendation, "all_candidates", lambda adapt_steps: both)
    told = invoke(
        "diagnose", str(table), "--rounds", "10", "--repetitions", "2", "--budget", "1000",
        "--out", str(tmp_path / "diagnosis"), "--set", "data.client=city",
        "--set", "data.label=price", "--set", "objective.name=regression",
    )  # fmt: skip
    found = json.loads((tmp_path / "diagnosis" / "diagnosis.json").read_text())["pilot"]
    assert found["metric"]["name"] == "rmse"
    gain = found["common"] - found["updated"]
    assert found["gain_of_updating"][0] == pytest.approx(gain) and gain > 0
    assert "improved FedAvg's RMSE by +" in " ".join(told.split())
    assert "accuracy" not in told.lower()
