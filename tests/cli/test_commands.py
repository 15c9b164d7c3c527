"""Every command that a document shows or that Headstart prints works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.test_cli import run

from headstart._atomic_files import write_text
from headstart.records import RunDirectory

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NOT_RUN_HERE = {
    r"federate": "tests/flower runs federations over loopback",
    r"reproduce (?!$)": "tests/studies runs quick versions of every study",
    r"data get": "needs files or a network",
    r".*fedprox:FedProx": "tests/test_adding_an_algorithm.py has the module, and runs it",
    r"(plan|diagnose) examples/mnist": "needs MNIST",
    r"data describe mnist": "needs MNIST",
    r".*--processes 3": "needs three hosts; tests/cli/test_processes.py runs two processes",
}
SMALLER = {"--clients 1000000": "--clients 300", "--processes 2": "--processes 1"}
"""Sizes only: nothing that decides whether a command works."""
SMALL_FILE = """
rounds = 3
[data]
source = "digits"
[model]
name = "logistic"
[evaluation]
every = 3
"""


def documented() -> list[str]:
    """Commands in blocks of the documents and in inline code, without what is said about them."""
    found: dict[str, None] = {}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            command = re.match(r" *(headstart [a-z].*)", line)
            if command and not line.rstrip().endswith("\\"):
                found[re.split(r" {2,}| #", command[1])[0].strip()] = None
        for command in re.findall(r"`(headstart [^`]+)`", text):
            found[command] = None
    return sorted(found)


def placeholder(command: str) -> bool:
    """Whether the command names a kind of thing (FOLDER, NAME) or is only the name of a command."""
    words = command.split()
    return bool(re.search(r"\b[A-Z]{3,}\b|…", command)) or words[1:] in (
        *([w] for w in ("compare", "personalize", "diagnose", "report", "federate")),
        *(["data", w] for w in ("export", "pack")),
    )


RUN = [
    c
    for c in documented()
    if not placeholder(c)
    and not any(re.match(f"headstart {pattern}", c) for pattern in NOT_RUN_HERE)
]


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """A folder with everything that the documents' commands name."""
    monkeypatch.chdir(tmp_path)
    for name in ("experiment", "my", "a", "b"):
        label = f'label = "{name}"\n' if name in "ab" else ""
        write_text(tmp_path / f"{name}.toml", label + SMALL_FILE)
    return tmp_path


def prepare(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What an earlier command would have left behind."""
    needs = {
        "runs/mine": ["run", "my.toml", "--out", "runs/mine", "--no-report"],
        "runs/wards": ["run", "my.toml", "--out", "runs/wards", "--no-report"],
        "me.csv": ["data", "export", "digits", "--client", "17", "--out", "me.csv"],
        "packed": ["data", "pack", "experiment.toml", "--out", "packed"],
        "data.path=million": ["data", "synthetic", "--clients", "20000", "--out", "million"],
    }
    made = re.search(r"--out (\S+)", command) if "--resume" not in command else None
    for name, words in needs.items():
        if name in command and (made is None or made[1] != name):
            assert run(capsys, *words)[0] == 0


LONG = re.compile(r"million|headstart compare|headstart diagnose|--search|--devices|--layout")
"""Commands that train several times, on many clients, or in a process of their own."""


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow if LONG.search(c) else ()) for c in RUN],
)
def test_a_documented_command_works(
    command: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(command, capsys)
    words = command.replace("/srv/", "").replace(" --label diagnosis", "")
    for large, small in SMALLER.items():
        words = words.replace(large, small)
    if "plan my.toml --epsilon" in words:
        words += " --clients 4 --examples 8"
    if "--devices" in words:  # too late in a process where JAX runs already
        program = [sys.executable, "-m", "headstart"]
        ended = subprocess.run([*program, *shlex.split(words)[1:]], capture_output=True)
        assert ended.returncode == 0, ended.stderr
        return
    code, _, err = run(capsys, *shlex.split(words)[1:])
    assert code == 0, err


def test_commands_are_found() -> None:
    assert len(RUN) > 20 and "headstart run" in RUN


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--clients 100", "--clients 5000", "--beta 100"])
def test_the_command_that_synthetic_data_print_trains(
    options: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Literally, and with a useful model at the end."""
    code, out, _ = run(capsys, "data", "synthetic", *options.split(), "--out", "many")
    assert code == 0
    printed = out.rpartition("headstart ")[2].strip()
    code, out, err = run(capsys, *shlex.split(printed))
    assert code == 0 and "FAILED" not in out, err + out
    (folder,) = Path("runs").iterdir()
    summary = RunDirectory(folder).summary()
    reached = summary.known["accuracy"].after
    assert reached.mean is not None and reached.ci95 is not None
    assert summary.failures == () and reached.mean - reached.ci95 > 3 / 10  # chance: one in ten


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1600, 4000])
def test_the_default_run_may_be_four_or_ten_times_longer(
    rounds: int, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "run", "--set", f"rounds={rounds}", "--no-report")
    assert code == 0 and "FAILED" not in out, err


def test_other_data_do_not_inherit_the_steps_of_the_demo() -> None:
    from headstart._experiments import Experiment, load_experiment

    for setting in ("data.source=digits", "data.partition=iid"):
        key, _, value = setting.partition("=")
        plain = Experiment.from_table({"data": {key.removeprefix("data."): value}})
        assert load_experiment(None, [setting]) == plain


def test_the_page_advises_commands_that_work(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the label has another name, and a column was dropped."""
    rng = np.random.default_rng(0)
    rows = ["who,visit,u,v,kind"]
    for client in ("north", "south", "east"):
        for _ in range(40):
            u, v = rng.normal(size=2)
            word = "high" if u + v > 0 else "low"
            rows.append(f"{client},{rng.integers(9)},{u:.4f},{v:.4f},{word}")
    write_text(workplace / "all.csv", "\n".join(rows) + "\n")
    write_text(
        workplace / "mine.toml",
        'rounds = 20\n[data]\npath = "all.csv"\nclient = "who"\nlabel = "kind"\ndrop = ["visit"]\n'
        '[algorithm]\nname = "fedavg"\nbatch_size = 10\n[model]\nname = "logistic"\n',
    )
    assert run(capsys, "run", "mine.toml", "--out", "r")[0] == 0
    page = (workplace / "r" / "report.html").read_text(encoding="utf-8")
    found = re.findall(r"headstart (?:data|personalize|run|compare)[^<\n]*", page)
    commands = [c for c in dict.fromkeys(found) if not placeholder(c)]
    assert any("personalize r --data mine.csv" in c for c in commands), commands
    for command in commands:
        code, _, err = run(capsys, *shlex.split(command)[1:])
        assert code == 0, (command, err)
