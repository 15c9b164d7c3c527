"""A federation gives the model that the simulation gives, for every algorithm."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flower.federations import experiment, federation_in

from headstart._experiments import load_run, run_experiment
from headstart._experiments.configuration import Experiment
from headstart.algorithms import ALGORITHMS
from headstart.flower.server import conduct
from headstart.flower.site._site_personalization import personalize_site
from headstart.records import RunSummary

VARIANTS: dict[str, dict[str, Any]] = {
    "per-fedavg": {"method": "hessian-free", "inner_steps": 2},
    "per-fedavg, random iterate": {
        "name": "per-fedavg", "random_iterate": True, "local_lr_decay": "inverse-sqrt",
        "weights": "examples",
    },
    "fedavg": {"server_optimizer": "adam", "server_lr": 0.1},
    "local": {},
    "apfl": {"max_gradient_norm": float("inf")},
    "aruba": {},
    "apfl, optimisers": {
        "name": "apfl", "local_optimizer": "momentum", "local_lr_decay": "inverse-sqrt",
        "server_optimizer": "adam", "server_lr": 0.1, "weight_decay": 0.01,
    },
}  # fmt: skip


TABLES: dict[str, dict[str, Any]] = {
    "clip, quantise, noise": {
        "aggregation": {
            "steps": [
                {"name": "clip", "norm": 0.5},
                {"name": "quantise", "width": 10, "range": 0.5},
                {"name": "noise", "deviation": 0.01},
            ]
        }
    },
    "median": {"aggregation": {"rule": "median"}},
    "head kept and adapted": {"parts": {"kept": ["head"], "adapted": ["head"]}},
    "head trained": {"parts": {"trained": ["head"]}},
}


FAST = ("per-fedavg", "apfl", "clip, quantise, noise")
"""One without memory, one with, and one whose updates are changed on the way."""


def fast_and_slow(names: Iterable[str]) -> list[Any]:
    """The names as parameters; all but a few run in `make test-slow`."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


def test_every_algorithm_is_compared() -> None:
    assert {options.get("name", name) for name, options in VARIANTS.items()} == set(ALGORITHMS)


@pytest.mark.parametrize("name", fast_and_slow(TABLES))
def test_aggregation_and_parts_give_the_simulations_model(name: str, tmp_path: Path) -> None:
    plan = experiment(
        **TABLES[name],
        model={"name": "mlp", "hidden": [6]},
        algorithm={"name": "per-fedavg", "batch_size": 8, "local_steps": 2},
    )
    simulated = run_experiment(plan, tmp_path / "simulated")
    grid = federation_in(tmp_path / "federation", plan)
    conduct(grid, tmp_path / "federation", tmp_path / "federated")
    federated = load_run(tmp_path / "federated")
    for ours, theirs in zip(
        jax.tree.leaves(federated.params), jax.tree.leaves(simulated.params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    same_scores(federated.summary.known, simulated.summary.known)
    same_scores(federated.summary.new, simulated.summary.new)


@pytest.mark.parametrize("name", fast_and_slow(VARIANTS))
def test_a_federation_gives_the_simulations_model(name: str, tmp_path: Path) -> None:
    plan = variant(name)
    simulated = run_experiment(plan, tmp_path / "simulated")
    grid = federation_in(tmp_path / "federation", plan)
    conduct(grid, tmp_path / "federation", tmp_path / "federated")
    federated = load_run(tmp_path / "federated")
    for ours, theirs in zip(
        jax.tree.leaves(federated.state), jax.tree.leaves(simulated.state), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert federated.summary.gradient_evaluations == simulated.summary.gradient_evaluations
    same_scores(federated.summary.known, simulated.summary.known)
    same_scores(federated.summary.new, simulated.summary.new)
    assert [e.round for e in federated.evaluations] == [e.round for e in simulated.evaluations]
    for ours, theirs in zip(federated.evaluations, simulated.evaluations, strict=True):
        same_scores(ours.known, theirs.known)
        if ours.round == 0:
            assert ours.train_loss is theirs.train_loss is None
        else:
            assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)
    for ours, theirs in zip(federated.clients, simulated.clients, strict=True):
        for column in ("train_examples", "test_examples", "classes", "kind", "chosen_steps"):
            assert getattr(ours, column) == getattr(theirs, column)
    same_choices(federated.summary, simulated.summary)


def test_numbers_are_predicted_alike(tmp_path: Path) -> None:
    """The sites' sums give the RMSE and the R² of the simulation; nobody speaks of classes."""
    rng = np.random.default_rng(0)
    rows = ["client,a,b,label"]
    for client in range(4):
        for a, b in rng.normal(size=(30, 2)):
            rows.append(f"{client},{a},{b},{a - 2 * b + client + 0.1 * rng.normal()}")
    (tmp_path / "lines.csv").write_text("\n".join(rows) + "\n")
    table = experiment().to_table() | {
        "data": {"path": str(tmp_path / "lines.csv"), "new_clients": 1},
        "objective": {"name": "regression", "metrics": ["rmse", "r2"]},
    }
    plan = Experiment.from_table(table)
    simulated = run_experiment(plan, tmp_path / "simulated")
    grid = federation_in(tmp_path / "federation", plan)
    conduct(grid, tmp_path / "federation", tmp_path / "federated")
    federated = load_run(tmp_path / "federated")
    assert federated.summary.metric == simulated.summary.metric
    for name in ("rmse", "r2"):
        for group in ("known", "new"):
            ours, theirs = (
                run.summary.scores.groups[group][name] for run in (federated, simulated)
            )
            assert ours.after.mean == pytest.approx(theirs.after.mean, rel=1e-3)
    assert {client.classes for client in federated.clients} == {0}
    site = tmp_path / "federation" / "sites" / "site-3" / "site.toml"
    result = personalize_site(site)
    after = result.scores["rmse"].after
    assert result.metric.name == "rmse" and after is not None and after > 0


def variant(name: str) -> Experiment:
    return experiment(algorithm={"name": name, "batch_size": 8, "local_steps": 2, **VARIANTS[name]})


def same_choices(ours: RunSummary, theirs: RunSummary) -> None:
    """The same shares of sites are worse off, with the configured and with chosen steps."""
    assert ours.choice is not None
    assert theirs.choice is not None
    for group, choice in ours.choice.groups.items():
        other = theirs.choice.groups[group]
        assert (choice.fixed, choice.chosen) == (other.fixed, other.chosen)
        assert choice.mean_steps == other.mean_steps
        assert choice.metric.mean == pytest.approx(other.metric.mean, abs=1e-6)


def same_scores(ours: Any, theirs: Any) -> None:
    for when in ("before", "after"):
        mine, other = (getattr(each.loss, when).mean for each in (ours, theirs))
        assert mine == pytest.approx(other, rel=1e-3)
        mine, other = (getattr(each["accuracy"], when).mean for each in (ours, theirs))
        assert mine == pytest.approx(other, abs=0.02)  # one example may fall either way


def test_quantised_updates_take_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    """Eight bits a number in place of 32, beside what every answer holds anyway."""
    up = []
    for name, width in (("plain", 0), ("small", 8)):
        steps = [{"name": "quantise", "width": width, "range": 0.5}] if width else []
        plan = experiment(
            aggregation={"steps": steps},
            model={"name": "mlp", "hidden": [400]},
            algorithm={"name": "fedavg", "batch_size": 8, "local_steps": 2},
        )
        grid = federation_in(tmp_path / name, plan)
        conduct(grid, tmp_path / name, tmp_path / f"{name}-run")
        up.append(load_run(tmp_path / f"{name}-run").summary.to_table()["bytes"]["up"])
    assert up[1] < 0.35 * up[0]
