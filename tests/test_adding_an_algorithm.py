"""docs/adding-an-algorithm.md: its code, as modules outside of the package."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import tiny
from cli.test_cli import run as headstart
from flower.federations import experiment, federation_in
from test_docs import blocks

from headstart import FedAvg, Local
from headstart._experiments import RunDirectory, load_experiment, load_run, run_experiment
from headstart._simulation import Simulation
from headstart.errors import ConfigError
from headstart.flower.server import conduct
from headstart.testing import check_algorithm
from headstart.trees import add

PAGE = "docs/adding-an-algorithm.md"
ROUNDS = 5
EXPERIMENT = """
rounds = 2
[data]
source = "digits"
[model]
name = "logistic"
[algorithm]
name = "fedprox:FedProx"
pull = 0.5
local_steps = 2
[evaluation]
every = 1
curve_steps = 2
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's modules, which is the current one but not on Python's path."""
    fedprox, ditto, _ = blocks(PAGE)
    (tmp_path / "fedprox.py").write_text(fedprox, encoding="utf-8")
    (tmp_path / "ditto.py").write_text(ditto, encoding="utf-8")
    (tmp_path / "prox.toml").write_text(EXPERIMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in ("fedprox", "ditto"):
        sys.modules.pop(name, None)


@pytest.fixture
def modules(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The classes FedProx and Ditto, imported as an outsider would."""
    monkeypatch.syspath_prepend(place)
    from ditto import Ditto  # type: ignore[import-not-found]
    from fedprox import FedProx  # type: ignore[import-not-found]

    return FedProx, Ditto


def trained(algorithm: Any) -> Any:
    engine = Simulation(tiny.federation(), tiny.MODEL, algorithm, participation=0.6)
    return engine.advance(engine.start(), ROUNDS)


def test_the_examples_are_as_short_as_the_page_wants_them() -> None:
    fedprox, ditto, _ = (len(block.splitlines()) for block in blocks(PAGE))
    assert fedprox <= 45 and ditto <= 100


@pytest.mark.slow
def test_both_keep_the_contract(modules: tuple[Any, Any]) -> None:
    namespace: dict[str, Any] = {}
    exec(blocks(PAGE)[2], namespace)
    namespace["test_contract"]()
    for cls in modules:
        check_algorithm(cls(**tiny.COMMON, weights="examples"))


def test_fedprox_without_a_pull_is_fedavg_to_the_bit(modules: tuple[Any, Any]) -> None:
    fedprox, _ = modules
    plain = trained(FedAvg(**tiny.COMMON)).state
    assert tiny.identical(trained(fedprox(**tiny.COMMON, pull=0.0)).state, plain)
    assert tiny.distance(trained(fedprox(**tiny.COMMON, pull=0.5)).state.params, plain.params) > 0


@pytest.mark.parametrize("which", ["fedprox", "ditto"])
def test_local_steps_are_those_of_a_loop_by_hand(which: str, modules: tuple[Any, Any]) -> None:
    """FedProx moves w from the model that was sent, Ditto v from the client's memory."""
    algorithm = modules[which == "ditto"](**tiny.COMMON, pull=0.7)
    engine = Simulation(tiny.federation(), tiny.MODEL, algorithm)
    task, key = engine.federation.training_task(jnp.int32(0)), jax.random.key(0)
    sent = algorithm.broadcast(trained(FedAvg(**tiny.COMMON)).state, key)
    memory = jax.tree.map(lambda w: w + 0.3, sent.params) if which == "ditto" else ()
    reply, after, _ = algorithm.client_update(sent, memory, task, key)

    moved = start = memory if which == "ditto" else sent.params
    for t in range(tiny.COMMON["local_steps"]):
        batch = task.batch(jax.random.fold_in(key, t), tiny.COMMON["batch_size"])
        gradient = jax.grad(task.loss)(moved, batch)
        moved = jax.tree.map(
            lambda w, g, s: w - tiny.COMMON["local_lr"] * (g + 0.7 * (w - s)),
            moved, gradient, sent.params,
        )  # fmt: skip
    result = after if which == "ditto" else add(sent.params, reply.update)
    assert tiny.distance(result, moved) < 1e-6 < tiny.distance(result, start)


def test_dittos_shared_model_is_fedavgs_to_the_bit(modules: tuple[Any, Any]) -> None:
    _, ditto = modules
    plain = trained(FedAvg(**tiny.COMMON)).state
    assert tiny.identical(trained(ditto(**tiny.COMMON, pull=0.7)).state, plain)


def test_ditto_without_a_pull_is_local_training(modules: tuple[Any, Any]) -> None:
    _, ditto = modules
    alone = trained(Local(**tiny.COMMON)).memory
    assert tiny.distance(trained(ditto(**tiny.COMMON, pull=0.0)).memory, alone) < 1e-6
    assert tiny.distance(trained(ditto(**tiny.COMMON, pull=0.7)).memory, alone) > 1e-3


def test_bad_options_are_refused_by_name(place: Path) -> None:
    for name in ("fedprox:FedProx", "ditto:Ditto"):
        sys.path.append(str(place))
        with pytest.raises(ConfigError, match=r"algorithm.pull=-1.0 must be"):
            load_experiment(None, [f"algorithm.name={name}", "algorithm.pull=-1.0"])
        with pytest.raises(ConfigError, match=r"algorithm.pul is not an option; did you mean pull"):
            load_experiment(None, [f"algorithm.name={name}", "algorithm.pul=1.0"])


@pytest.mark.slow
def test_a_run_is_resumed_compared_personalised_and_reported(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything by the command line, with modules of the current folder."""

    def works(*words: str) -> str:
        code, out, err = headstart(capsys, *words)
        assert code == 0, err
        return out

    works("run", "prox.toml", "--out", "prox")
    stored = (place / "prox" / "config.toml").read_text()
    assert 'name = "fedprox:FedProx"' in stored and "pull = 0.5" in stored
    assert json.loads((place / "prox" / "summary.json").read_text())["algorithm"] == "fedprox"
    works("run", "--resume", "--out", "prox", "--set", "rounds=3", "--no-report")
    assert RunDirectory(place / "prox").summary().rounds == 3
    works("run", "prox/config.toml", "--out", "again", "--no-report")
    assert tiny.identical(*(model_of(place / folder) for folder in ("prox", "again")))

    works("compare", "prox.toml", "--algorithms", "fedavg,fedprox:FedProx,ditto:Ditto",
          "--seeds", "1", "--out", "both")  # fmt: skip
    rows = json.loads((place / "both" / "comparison.json").read_text())["rows"]
    names = ["fedavg", "fedprox:FedProx", "ditto:Ditto"]
    assert [row["algorithm"]["name"] for row in rows] == names
    assert [row["label"] for row in rows] == ["fedavg", "fedprox", "ditto"]

    works("data", "export", "digits", "--client", "17", "--out", "me.csv")
    for folder in ("prox", "both/ditto/seed-0"):
        assert "before" in works("personalize", folder, "--data", "me.csv")
        works("report", folder)


def test_a_run_without_a_folder_gets_one_that_every_disk_takes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headstart(capsys, "run", "prox.toml", "--no-report")[0] == 0
    assert [path.name for path in (place / "runs").iterdir()] == ["digits-fedprox-FedProx-001"]


def test_entry_points_give_short_names(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an installed package with the page's declaration has: a dist-info folder."""
    declared = re.search(r'\[project.entry-points."(.*?)"\]\n(.*?)```', page(), flags=re.DOTALL)
    assert declared is not None
    offered = declared[2].replace('"', "")
    folder = place / "installed" / "extras-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{declared[1]}]\n{offered}")
    for name in ("fedprox", "ditto"):
        (place / f"{name}.py").rename(place / "installed" / f"{name}.py")
    monkeypatch.syspath_prepend(place / "installed")

    experiment = load_experiment(place / "prox.toml", ["algorithm.name=fedprox"])
    assert experiment.algorithm["name"] == "fedprox"
    (place / "short.toml").write_text(experiment.to_toml())
    assert load_experiment(place / "short.toml") == experiment
    assert type(experiment.build_algorithm()).__name__ == "FedProx"
    code, _, err = headstart(capsys, "compare", "short.toml", "--algorithms", "fedprox,ditto",
                             "--seeds", "1", "--out", "both", "--no-report")  # fmt: skip
    assert code == 0, err
    with pytest.raises(ConfigError, match=r"did you mean fedprox\? use one of .*ditto, fedprox"):
        load_experiment(None, ["algorithm.name=fedproxy"])


@pytest.mark.slow
def test_sites_of_a_federation_build_what_the_server_names(
    modules: tuple[Any, Any], tmp_path: Path
) -> None:
    """Through the real server and client code, without a network; as in tests/flower."""
    plan = experiment(algorithm={"name": "ditto:Ditto", "batch_size": 8, "pull": 0.5})
    simulated = run_experiment(plan, tmp_path / "simulated")
    grid = federation_in(tmp_path / "federation", plan)
    conduct(grid, tmp_path / "federation", tmp_path / "federated")
    federated = load_run(tmp_path / "federated")
    assert type(federated.algorithm).__name__ == "Ditto"
    assert tiny.distance(federated.state.params, simulated.state.params) < 1e-5


def page() -> str:
    return (Path(__file__).parent.parent / PAGE).read_text(encoding="utf-8")


def model_of(folder: Path) -> Any:
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")
