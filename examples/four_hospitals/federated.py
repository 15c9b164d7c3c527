"""The federation, with the commands a user would type: init, join, serve, personalize.

Everything is on this machine, over loopback, with TLS and a key for every hospital; between four
real hospitals the same commands run on five machines.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hospitals

import headstart as hs
from headstart.data.example_pool import Pool
from headstart.errors import HeadstartError
from headstart.experiments.configuration import load_experiment
from headstart.flower.deploy.flower_processes import (
    Child,
    end,
    environment,
    free_port,
    last_line,
    start,
)
from headstart.flower.federation_config import LOOPBACK

Words = Sequence[str | Path]
DISTRIBUTIONS = 3
"""The server waits half a minute for everybody; who comes later has to be handed out to again."""
PATIENCE = 20.0
"""Seconds everybody has to end."""
AGAIN = 50
"""Steps of the second model that the late hospital makes: it need not ask anybody for it."""


class StepFailedError(HeadstartError):
    """A command of the example ended with another code than 0; ours is the same."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code if code > 0 else 1


def run(pool: Pool, out: Path) -> dict[str, Any]:
    """Three hospitals train, the fourth joins, each makes its own model; accuracies of all.

    ``sites`` after the plan's steps of adaptation, ``again`` the late one after more of them.
    """
    folder, kept = out / "federation", out / "run"
    make(pool, folder)
    joined: dict[str, Child] = {}
    try:
        for name in hospitals.training(pool):
            joined[name] = join(folder, name)
        headstart(["federate", "serve", folder, "--out", kept], folder, joined)
        joined[hospitals.LATE] = join(folder, hospitals.LATE)
        distribute(folder, kept, joined)
    finally:
        end(list(joined.values()), PATIENCE)
    made = {name: personalize(folder, name) for name in joined}
    again = personalize(folder, hospitals.LATE, "--steps", str(AGAIN))
    return {"sites": made, "again": again}


def make(pool: Pool, folder: Path) -> None:
    """The federation's folder, and every hospital's patients in that hospital's own."""
    headstart([
        "federate", "init", folder, hospitals.EXPERIMENT,
        "--sites", ",".join(hospitals.training(pool)), "--late", hospitals.LATE,
        "--address", f"{LOOPBACK}:{free_port()}",
    ])  # fmt: skip
    # Wait for all: with an answer missing, a round gives another model than the simulation.
    hospitals.edit(folder / "federation.toml", "min_sites", str(len(hospitals.training(pool))))
    for name in pool.owner_names:
        hospitals.write_patients(pool, name, folder / "sites" / name)


def join(folder: Path, name: str) -> Child:
    """One hospital, in a process of its own that stays until the end."""
    site = folder / "sites" / name / "site.toml"
    words: Words = ["federate", "join", site]
    show(words)
    return start(command(words), log_file(folder, name), environment(folder / ".flwr"))


def distribute(folder: Path, kept: Path, joined: Mapping[str, Child]) -> None:
    """Give the finished model to everybody, until the late hospital has it."""
    work = folder / "sites" / hospitals.LATE / "work"
    for _ in range(DISTRIBUTIONS):
        headstart(["federate", "serve", folder, "--out", kept, "--distribute"], folder, joined)
        if any(work.glob("runs/*/start.safetensors")):
            return
    raise HeadstartError(f"{hospitals.LATE} got no model; see {log_file(folder, hospitals.LATE)}")


def personalize(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """A hospital makes its own model from the start it got, and scores it; no server is needed."""
    site = folder / "sites" / name / "site.toml"
    words: Words = ["federate", "personalize", site, *options, "--json"]
    show(words)
    done = subprocess.run(command(words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailedError(done.stderr.strip() or f"{name} has no model", done.returncode)
    return json.loads(done.stdout)


def simulate(pool: Pool, folder: Path) -> dict[str, dict[str, float]]:
    """The same hospitals, files and draws in one process: what the federation should give."""
    names = [*hospitals.training(pool), hospitals.LATE]
    plan = load_experiment(hospitals.EXPERIMENT, [])
    run = hs.train(
        hospitals.read_as_sites(folder, names, pool.schema),
        plan.build_model(),
        plan.build_algorithm(),
        rounds=plan.rounds,
        participation=plan.participation,
        seed=plan.seed,
        evaluation=plan.evaluation,
    )
    columns = ("accuracy_before", "accuracy_after")
    return {
        name: {column: client[column] for column in columns}
        for name, client in zip(names, run.clients, strict=True)
    }


def headstart(
    words: Words,
    folder: Path | None = None,
    needed: Mapping[str, Child] | None = None,
) -> None:
    """One command of ours, shown and waited for; whoever it needs must not end before it."""
    show(words)
    # A session of its own: Ctrl-C reaches it through us, once.
    child = subprocess.Popen(end_with_us(command(words)), start_new_session=True)
    try:
        while child.poll() is None:
            for name, other in (needed or {}).items():
                if folder is not None and other.poll() is not None:
                    said = last_line(log_file(folder, name))
                    raise StepFailedError(f"{name} ended before its time; {said}", other.returncode)
            time.sleep(0.1)
    except BaseException:
        stop(child)
        raise
    if child.returncode:
        raise StepFailedError(f"headstart {words[0]} {words[1]} failed", child.returncode)


def stop(child: Child) -> None:
    """Let it end what it has started; insist after a while."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        end([child])


def command(words: Words) -> list[str]:
    """``headstart`` with the Python that runs this."""
    return [sys.executable, "-m", "headstart.cli.main", *map(str, words)]


def end_with_us(words: Sequence[str]) -> list[str]:
    """So that it does not outlive us, even when we are killed."""
    return [sys.executable, "-m", "headstart.flower.end_with_parent", str(os.getpid()), *words]


def show(words: Words) -> None:
    """What a user would type."""
    print(f"\n$ headstart {shlex.join(map(str, words))}", file=sys.stderr, flush=True)


def log_file(folder: Path, name: str) -> Path:
    """What a hospital's process said."""
    return folder / "logs" / f"{name}.log"
