"""``headstart data``: what it prints is true, and what it writes can be read again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from headstart._cli.data import app
from headstart.data import SOURCES, read_examples
from headstart.data._dataset_options import build_dataset
from headstart.errors import ConfigError, DataError, HeadstartError, InputError, OutputError


def run(*arguments: Any) -> str:
    """The output; an error of ours is raised, as `main` would catch it."""
    result: Result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, HeadstartError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", [[], ["list"], ["describe"], ["get"], ["export"]])
def test_help_has_an_example(command: list[str]) -> None:
    text = run(*command, "--help")
    assert not command or "Example: headstart data" in text


def test_list_shows_every_source_and_what_is_missing() -> None:
    text = run("list")
    assert all(name in text for name in SOURCES)
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert list(rows) == list(SOURCES)
    assert rows["digits"]["available"] and not rows["mnist"]["available"]
    assert rows["mnist"]["folders"][0].endswith("mnist")


def test_describe_says_what_is_built() -> None:
    about = json.loads(run("describe", "digits", "--set", "clients=10", "--seed", 3, "--json"))
    data = build_dataset({"source": "digits", "clients": 10}, seed=3)
    assert about["clients"] == 10 and about["new_clients"] == data.new_clients == 2
    assert about["examples"] == len(data.y) and about["options"]["clients"] == 10
    assert [row["labels"] for row in about["per_client"]] == [
        data.classes_of(c).tolist() for c in range(10)
    ]
    text = run("describe", "digits", "--set", "data.clients=10")
    assert "digits, class-groups" in text and "CC BY 4.0" in text and "held out" in text


def test_describe_many_clients_without_a_row_each() -> None:
    text = run("describe", "--set", "partition=iid", "--set", "clients=40")
    assert "held out examples" in text and "held out  " not in text
    assert "held out  " in run("describe", "--set", "partition=iid", "--set", "clients=30")


def test_describe_an_experiment_file_and_own_data(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / f"{name}.csv").write_text("a,kind\n1,x\n2,y\n3,x\n")
    (tmp_path / "e.toml").write_text(f'seed = 5\n[data]\npath = "{tmp_path}"\nlabel = "kind"\n')
    for arguments in ([tmp_path / "e.toml"], [tmp_path, "--set", "label=kind"]):
        about = json.loads(run("describe", *arguments, "--json"))
        assert about["clients"] == 2 and about["per_client"][0]["name"] == "ann"
        assert "licence" not in about
    assert "ann" in run("describe", tmp_path / "e.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "mnsit"], "'mnsit' is not a source, a file or a folder"),
        (["describe", "--set", "clients"], "is not key=value"),
        (["describe", "--set", "clients=1"], "data.clients=1"),
        (["describe", "--set", "seed=x"], "seed='x' does not fit"),
        (["describe", "--seed", "-1"], "seed=-1"),
        (["get", "digit"], "source='digit' is not known; did you mean digits"),
        (["export", "--client", "99", "--out", "x.csv"], "client 99 is not one of the 20"),
        (["export", "--client", "0", "--out", "x.csv", "--part", "none"], "part='none'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_a_data_entry_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("data = 3\n")
    with pytest.raises(ConfigError, match="data must be a table"):
        run("describe", tmp_path / "e.toml")


def test_get() -> None:
    assert "digits comes with Headstart" in run("get", "digits")
    with pytest.raises(DataError, match=r"shakespeare_by_role\.json not found"):
        run("get", "shakespeare")


@pytest.mark.parametrize("name", ["out.csv", "out.npz"])
@pytest.mark.parametrize("part", ["all", "train", "test"])
def test_an_exported_client_is_read_again(tmp_path: Path, name: str, part: str) -> None:
    out = tmp_path / name
    text = run("export", "digits", "--client", 17, "--out", out, "--part", part)
    data = build_dataset({}, seed=0)
    client = data.client(17)
    x, y = {
        "all": (
            np.concatenate([client.x_train, client.x_test]),
            np.concatenate([client.y_train, client.y_test]),
        ),
        "train": (client.x_train, client.y_train),
        "test": (client.x_test, client.y_test),
    }[part]
    assert f"{len(y)} examples of client 17" in text
    back_x, back_y = read_examples(out, data.schema)
    assert (back_x == x).all() and (back_y == y).all()


def test_export_by_name_and_never_over_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, value in (("ann", 1), ("bob", 2)):
        (folder / f"{name}.csv").write_text("a,kind\n" + f"{value},x\n{value},y\n" * 3)
    out = tmp_path / "bob.csv"
    arguments = ["export", folder, "--set", "label=kind", "--client", "bob", "--out", out]
    run(*arguments)
    assert out.read_text().splitlines()[0] == "a,kind"
    assert {line.split(",")[0] for line in out.read_text().splitlines()[1:]} == {"2.0"}
    with pytest.raises(OutputError, match="use --force"):
        run(*arguments)
    run(*arguments, "--force")
