"""Two processes on loopback share one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from headstart.cli.main import app
from headstart.cli.processes import free_port

COMMAND = [sys.executable, "-m", "headstart.cli.main", "run", "--no-report"]
PLAN = """
rounds = {rounds}
participation = 0.7
[data]
partition = "iid"
clients = 10
new_clients = 2
[model]
name = "logistic"
[algorithm]
name = "apfl"
batch_size = 10
[evaluation]
every = 20
adapt_steps = 1
curve_steps = 2
"""


@pytest.mark.slow
def test_two_processes_train_the_same_model_and_a_lost_one_is_reported(tmp_path: Path) -> None:
    """One process; two processes; two of which one is killed, and the rest after it."""
    plan, alone, both = tmp_path / "plan.toml", tmp_path / "alone", tmp_path / "both"
    plan.write_text(PLAN.format(rounds=100000))
    process = start(str(plan), "--out", str(both), "--processes", "2")
    checkpoint = both / "checkpoint"
    wait_for(lambda: len(list(checkpoint.glob("*"))) > 1 or process.poll() is not None)
    os.kill(follower(process.pid), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "process 1 of 2 was ended by signal 9; the run was stopped." in err
    assert f"headstart run --resume --out {both} --processes 2" in err
    assert not orphans(str(both))

    done = max(int("".join(filter(str.isdigit, path.stem))) for path in checkpoint.glob("*"))
    rounds = f"rounds={done + 30}"
    resumed = start("--resume", "--out", str(both), "--processes", "2", "--set", rounds)
    out, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
    assert f"{done + 30} rounds" in out and "[Gloo]" not in out
    out, err = start(str(plan), "--out", str(alone), "--set", rounds).communicate(timeout=120)
    one, two = (load_file(folder / "model.safetensors") for folder in (alone, both))
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-4, err_msg=name)
    assert (alone / "clients.csv").read_text().count("\n") == 11


@pytest.mark.slow
def test_without_a_launcher_the_survivor_says_so_and_ends(tmp_path: Path) -> None:
    """As on two hosts: nobody watches the processes but they themselves."""
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(PLAN.format(rounds=100000))
    words = [str(plan), "--out", str(out), "--processes", "2", "--devices", "1"]
    words += ["--coordinator", f"127.0.0.1:{free_port()}", "--process-id"]
    survivor, lost = start(*words, "0"), start(*words, "1")
    wait_for(lambda: len(list(out.glob("checkpoint/*"))) > 1 or survivor.poll() is not None)
    lost.kill()
    lost.communicate()
    _, err = survivor.communicate(timeout=30)
    assert survivor.returncode == 1, err
    assert "headstart: process 0 lost the others" in err
    assert f"headstart run --resume --out {out} --processes 2" in err


def test_a_mistake_in_joining_is_one_line() -> None:
    run = CliRunner().invoke
    alone = run(app, ["run", "--processes", "2", "--process-id", "1"])
    assert "belong together" in str(alone.exception)
    beyond = run(
        app, ["run", "--processes", "2", "--process-id", "2", "--coordinator", "127.0.0.1:1"]
    )
    assert "must lie in 0 … 1" in str(beyond.exception)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition: object, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)


def commands() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().decode().replace("\0", " ")
        except OSError:
            continue
        found[int(folder.name)] = (parent, words)
    return found


def follower(parent: int) -> int:
    """The process that does not lead."""
    return next(
        pid for pid, (above, words) in commands().items()
        if above == parent and "--process-id 1" in words
    )  # fmt: skip


def orphans(folder: str) -> list[str]:
    return [
        words for _, words in commands().values() if folder in words and "--process-id" in words
    ]
