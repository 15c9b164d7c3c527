"""Runs killed with SIGKILL at random moments, and a disk that is full."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.commands import PATIENCE, Start

ROUNDS = 8000
RUN = ["run", "--no-report"]
PLAN = f"""
rounds = {ROUNDS}
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
every = 40
adapt_steps = 1
curve_steps = 2
"""


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_gives_the_identical_model(
    tmp_path: Path, start: Start
) -> None:
    """One kill while starting, three up to a second and a half after a new checkpoint."""
    # As users run it, without the tests' compiler flags.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    (tmp_path / "plan.toml").write_text(PLAN)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(start(*RUN, str(tmp_path / "plan.toml"), "--out", str(whole), env=env))
    moments, rounds = random.Random(0), []
    for number in range(4):
        process = start(
            *RUN, *resume_arguments(cut, tmp_path / "plan.toml"), "--out", str(cut), env=env
        )
        seen = newest(cut)
        while number and newest(cut) == seen and process.poll() is None:
            time.sleep(0.01)
        time.sleep((1.5 if number else 5.0) * moments.random())
        process.kill()
        process.communicate(timeout=PATIENCE)
        rounds.append(newest(cut))
    assert not (cut / "summary.json").exists(), f"killed too late to mean anything: {rounds}"
    finish(start(*RUN, *resume_arguments(cut, tmp_path / "plan.toml"), "--out", str(cut), env=env))
    for name in ("model.safetensors", "clients.csv"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), rounds


def resume_arguments(folder: Path, plan: Path) -> list[str]:
    """What a user would type: resume if there is a run, else start."""
    return ["--resume"] if (folder / "config.toml").exists() else [str(plan)]


def newest(folder: Path) -> str:
    """The newest checkpoint's name."""
    return max((p.name for p in (folder / "checkpoint").glob("round-*")), default="")


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    """Files may grow to 4,000 bytes only: the first checkpoint does not fit."""
    (tmp_path / "plan.toml").write_text(PLAN)
    limited = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); "
        "runpy.run_module('headstart', run_name='__main__')"
    )
    words = ["run", "--no-report", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", limited, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "cannot write" in last and "--out" in last and "Traceback" not in done.stderr
    left = [p.name for p in (tmp_path / "run").rglob("*") if p.name.startswith(".")]
    assert left == [], "no half-written file stays behind"
