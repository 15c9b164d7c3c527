"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart._cli.main import app, main
from headstart._experiments import load_experiment

COMMANDS = (
    *(
        ["run"],
        ["compare"],
        ["personalize"],
        ["predict"],
        ["report"],
        ["reproduce"],
        ["plan"],
        ["diagnose"],
    ),
    *(["data", "list"], ["data", "describe"], ["data", "get"], ["data", "export"]),
    *(["data", "pack"], ["data", "synthetic"], ["data", "check"]),
)
SMALL = [
    *("--set", "rounds=2", "--set", "model.name=logistic", "--set", "algorithm.local_steps=1"),
    *("--set", "evaluation.every=1", "--set", "evaluation.curve_steps=3"),
]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["headstart", *words])
        patch.setenv("JAX_COMPILATION_CACHE_DIR", "")
        with pytest.raises(SystemExit) as ended:
            main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    assert "Example" in shown.output and "headstart" in shown.output


def test_no_command_is_without_a_test_of_its_help() -> None:
    listed = CliRunner().invoke(app, ["--help"]).output
    for command in ("run", "compare", "personalize", "report", "reproduce", "plan", "data"):
        assert command in listed
    assert {c[0] for c in COMMANDS} == {c.name for c in app.registered_commands} | {"data"}


@pytest.mark.parametrize(
    "words, message",
    [
        (["run", "nowhere.toml"], "nowhere.toml does not exist"),
        (["run", "--set", "algorithm.inner_lr=-1"], "algorithm.inner_lr=-1"),
        (["run", "--set", "participation=0.001"], "selects none; use at least 0.0625"),
        (["run", "--set", "algorithm.batch_size=500"], "the largest has"),
        (["run", "--set", "data.path=nowhere"], "nowhere"),
        (["run", "--set", "model.name=char-lstm"], "char-lstm"),
        (["run", "--resume"], "--resume needs --out"),
        (["run", "--resume", "--out", "nowhere"], "nowhere"),
        (["compare", "--algorithms", "fedavg,fedprox"], "fedprox"),
        (["compare", "--algorithms", "fedavg", "--baseline", "x"], "--baseline 'x'"),
        (["personalize", "nowhere", "--data", "x.csv"], "nowhere does not exist"),
        (["report", "nowhere"], "nowhere"),
        (["data", "describe", "imagenet"], "imagenet"),
        (["data", "get", "mnistt"], "mnist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_gets_one_line_and_exit_two(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 2, err
    assert message in err and out == ""
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == [], "nothing is half-written"


def test_the_whole_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run, run again, resume, export a client, personalise, page."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "run", *SMALL, "--no-report", "--out", "r")
    assert code == 0, err
    assert "known clients" in out and "new clients" in out and "headstart personalize r" in out
    code, _, err = run(capsys, "run", *SMALL, "--out", "r")
    assert code == 2 and "already holds another run" in err
    code, out, _ = run(capsys, "run", "--resume", "--out", "r", "--no-report", "--json")
    assert code == 0 and json.loads(out)["rounds"] == 2
    code, _, _ = run(capsys, "data", "export", "--client", "19", "--out", "c.csv")
    assert code == 0
    code, out, _ = run(capsys, "personalize", "r", "--data", "c.csv", "--steps", "2")
    assert code == 0 and "before" in out and Path("r/personal/c.safetensors").exists()
    code, _, err = run(capsys, "report", "r", "--out", "r")
    assert code == 2 and "is a folder" in err and not Path("r-figures").exists()
    code, out, _ = run(capsys, "report", "r")
    assert code == 0 and Path("r/report.html").stat().st_size > 10_000
    text = Path("c.csv").read_text().splitlines()
    Path("bad.csv").write_text("\n".join([text[0], text[1].replace(text[1][:3], "x,", 1)]))
    code, _, err = run(capsys, "personalize", "r", "--data", "bad.csv")
    assert code == 2 and "bad.csv" in err


def test_a_damaged_run_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "run", *SMALL, "--no-report", "--out", "r")[0] == 0
    assert run(capsys, "data", "export", "--client", "1", "--out", "c.csv")[0] == 0
    for name, text in (
        ("metrics.jsonl", '{"round": 0'),
        ("clients.csv", "a,b\n1"),
        ("summary.json", "[]"),
        ("schema.json", '{"foo": 1}'),
        ("schema.json", "[1]"),
    ):
        good = Path("r", name).read_text()
        Path("r", name).write_text(text)
        code, _, err = run(capsys, "personalize", "r", "--data", "c.csv")
        assert code == 2 and len(err.strip().splitlines()) == 1, (name, text)
        Path("r", name).write_text(good)
    Path("afile").write_text("x")
    code, _, err = run(capsys, "run", *SMALL, "--out", "afile")
    assert code == 2 and "afile is a file" in err


def test_compare_from_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(
        capsys, "compare", *SMALL, "--algorithms", "fedavg,local", "--seeds", "2", "--no-report"
    )
    assert code == 0, err
    assert "fedavg" in out and "local" in out and "runs/comparison-001" in out
    assert "next: headstart personalize runs/comparison-001/" in out


def test_importing_headstart_stays_light() -> None:
    """Only what the core needs; the rest is imported by the command that uses it."""
    heavy = ["matplotlib", "plotly", "pandas", "flwr", "sklearn", "pyarrow", "jinja2", "flax"]
    heavy += ["torch", "typer", "pydantic", "scipy.stats"]
    code = f"import headstart, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


def test_public_names_are_those_listed() -> None:
    import headstart as hs

    assert set(hs.__all__) == {name for name in dir(hs) if not name.startswith("_")}
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hs.nothing  # noqa: B018


def test_plan_says_what_the_theory_promises(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "model.name=logistic", "--rounds", "2", "--points", "2", "--examples", "4"]
    code, out, _ = run(capsys, "plan", "--epsilon", "2", "--clients", "4", *small, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["promised"]["total"] <= 2 and found["constants"]["L"] > 0
    assert "lower estimates" in found["what"] and found["plan"]["rounds"] >= 1
    assert found["plan"]["max_gradient_norm"] == "inf"
    code, out, _ = run(capsys, "plan", "--epsilon", "2", "--clients", "4", *small)
    assert code == 0 and "What the theorem guarantees" in out and "worst case" in out
    assert "set algorithm.max_gradient_norm=inf" in out


@pytest.mark.parametrize(
    "words, text",
    [
        (["--epsilon", "0"], "epsilon"),
        (["--set", "algorithm.name=apfl"], "theorems cover only per-fedavg"),
        (["nothing.toml"], "does not exist"),
    ],
)
def test_plan_refuses_what_it_cannot_do(
    capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    code, _, err = run(capsys, "plan", "--rounds", "1", "--points", "1", *words)
    assert code == 2 and text in err.splitlines()[-1]


def test_plan_searches_and_writes_an_experiment_that_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    best = tmp_path / "best.toml"
    words = ["plan", "--search", "--budget", "3000", "--tries", "3", "--out", str(best)]
    small = ["--set", "model.name=logistic", "--set", "evaluation.adapt_steps=1"]
    code, out, err = run(capsys, *words, *small)
    assert code == 0 and "stage 1 of 1, 3 of 3" in err and f"headstart run {best}" in out
    assert load_experiment(best).model["name"] == "logistic"
    code, _, err = run(capsys, *words, *small)
    assert code == 2 and "exists already" in err
