"""``headstart data pack | synthetic | check`` as a user meets them."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.test_cli import run

from headstart.data import Synthetic, open_store
from headstart.data._dataset_options import build_dataset
from headstart.errors import ConfigError, DataError, HeadstartError, OutputError


@pytest.mark.parametrize("command", ["pack", "synthetic", "check"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: headstart data {command}" in run(command, "--help")


def test_synthetic_is_what_python_makes(tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    text = run(
        "synthetic", "--clients", 300, "--examples", 6, "--features", 3, "--classes", 4, "--alpha",
        0.5, "--beta", 2, "--new-clients", 50, "--test-fraction", 0.5, "--seed", 8, "--out", out,
    )  # fmt: skip
    made = Synthetic(300, 6, 3, 4, 0.5, 2.0)
    same = made.dataset(seed=8, new_clients=50, test_fraction=0.5)
    assert open_store(out).digest() == same.digest()
    first, command = text.strip().split("; train on it with: ")
    assert first.endswith("300 clients, 1,800 examples, 0.0 MB")
    words = shlex.split(command)
    assert words[:2] == ["headstart", "run"]
    assert [w for w in words[2:] if w != "--set"] == [
        f"data.path={out}", "algorithm.max_gradient_norm=1.0", "participation=0.4",
        "algorithm.batch_size=3",
    ]  # fmt: skip
    checked = run("check", out)
    assert f"as written, digest {same.digest()}" in checked


def test_pack_an_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(
        'seed = 4\n[data]\npartition = "iid"\nclients = 8\nown_labels = true\n'
    )
    run("pack", tmp_path / "e.toml", "--set", "new_clients=2", "--out", tmp_path / "s")
    table = {"partition": "iid", "clients": 8, "own_labels": True, "new_clients": 2}
    packed, same = open_store(tmp_path / "s"), build_dataset(table, seed=4)
    assert packed.digest() == same.digest() and packed.description == same.description
    about = json.loads(run("describe", tmp_path / "s", "--json"))
    assert about["clients"] == 8 and about["options"] == {
        "path": str(tmp_path / "s"),
        "stored": True,
    }
    run("pack", tmp_path / "s", "--out", tmp_path / "copy")
    assert open_store(tmp_path / "copy").digest() == same.digest()


def test_names_are_packed_and_clients_exported(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name in ("ann", "bob"):
        (folder / f"{name}.csv").write_text("a,label\n1,x\n2,y\n3,x\n")
    run("pack", folder, "--out", tmp_path / "s")
    out = tmp_path / "bob.csv"
    assert "3 examples of client bob" in run(
        "export", tmp_path / "s", "--client", "bob", "--out", out
    )
    assert out.read_text().splitlines()[0] == "a,label"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["synthetic", "--out", "s", "--clients", "1"], ConfigError, "clients=1 must be"),
        (["synthetic", "--out", "s", "--new-clients", "100"], ConfigError, "new_clients=100"),
        (["synthetic", "--out", "s", "--test-fraction", "0"], ConfigError, "test_fraction=0"),
        (["synthetic", "--out", "s", "--seed", "-1"], ConfigError, "seed=-1"),
        (["synthetic", "--out", "taken"], OutputError, "taken already holds other files"),
        (["synthetic", "--out", "taken/file/s"], OutputError, "cannot write taken/file/s"),
        (["pack", "nowhere", "--out", "s"], ConfigError, "'nowhere' is not a source"),
        (["pack", "mnist", "--out", "taken"], OutputError, "taken already holds other files"),
        (["check", "taken"], DataError, r"taken holds no store\.json"),
        (["check", "nowhere"], DataError, "nowhere does not exist"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    kind: type[HeadstartError],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(kind, match=message) as error:
        run(*arguments)
    assert "\n" not in str(error.value) and error.value.exit_code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_a_damaged_store_fails_the_check(tmp_path: Path) -> None:
    run("synthetic", "--clients", 3, "--out", tmp_path / "s")
    x = np.load(tmp_path / "s" / "x.npy", mmap_mode="r+")
    x[5, 5] += 1
    x.flush()
    with pytest.raises(DataError, match=r"x\.npy is not what was written"):
        run("check", tmp_path / "s")


def test_long_work_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headstart._experiments.progress.PLAIN_SECONDS", 0.0)
    arguments: list[Any] = ["synthetic", "--clients", 600, "--features", 2]
    text = run(*arguments, "--out", tmp_path / "s")
    assert "generating clients: 256 of 600" in text and "s left" in text
