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
from headstart._experiments.configuration import load_experiment
from headstart.data._example_pool import Pool
from headstart.errors import HeadstartError
from headstart.flower._federation_config import LOOPBACK
from headstart.flower.deploy._flower_processes import (
    Child,
    end,
    environment,
    free_port,
    last_line,
    start,
)

Words = Sequence[str | Path]
DISTRIBUTIONS = 3
"""How often to try: the server waits half a minute for all sites, which may be too short."""
PATIENCE = 20.0
"""Seconds that all processes have to end."""
AGAIN = 50
"""Adaptation steps of the second model that the late hospital makes, without the server."""


class StepFailedError(HeadstartError):
    """A command of the example failed; the example ends with the same exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code if code > 0 else 1


def run(pool: Pool, out: Path) -> dict[str, Any]:
    """Train at three hospitals, let the fourth join, and return every hospital's accuracies.

    ``sites`` are the hospitals after the plan's adaptation steps, ``again`` is the late hospital
    after more of them.
    """
    folder, run_folder = out / "federation", out / "run"
    write_federation(pool, folder)
    joined: dict[str, Child] = {}
    try:
        for name in hospitals.training(pool):
            joined[name] = join(folder, name)
        headstart(["federate", "serve", folder, "--out", run_folder], folder, joined)
        joined[hospitals.LATE] = join(folder, hospitals.LATE)
        distribute(folder, run_folder, joined)
    finally:
        end(list(joined.values()), PATIENCE)
    results = {name: personalize(folder, name) for name in joined}
    again = personalize(folder, hospitals.LATE, "--steps", str(AGAIN))
    return {"sites": results, "again": again}


def write_federation(pool: Pool, folder: Path) -> None:
    """Write the federation's folder, with every hospital's patients in its own folder."""
    headstart([
        "federate", "init", folder, hospitals.EXPERIMENT,
        "--sites", ",".join(hospitals.training(pool)), "--late", hospitals.LATE,
        "--address", f"{LOOPBACK}:{free_port()}",
    ])  # fmt: skip
    # Wait for all: if an answer is missing, a round gives another model than the simulation.
    hospitals.edit(folder / "federation.toml", "min_sites", str(len(hospitals.training(pool))))
    for name in pool.owner_names:
        hospitals.write_patients(pool, name, folder / "sites" / name)


def join(folder: Path, name: str) -> Child:
    """Start one hospital as a process that runs until the end."""
    site = folder / "sites" / name / "site.toml"
    words: Words = ["federate", "join", site]
    show(words)
    return start(command(words), log_file(folder, name), environment(folder / ".flwr"))


def distribute(folder: Path, run_folder: Path, joined: Mapping[str, Child]) -> None:
    """Send the finished model to every site, until the late hospital has it."""
    work = folder / "sites" / hospitals.LATE / "work"
    for _ in range(DISTRIBUTIONS):
        headstart(
            ["federate", "serve", folder, "--out", run_folder, "--distribute"], folder, joined
        )
        if any(work.glob("runs/*/start.safetensors")):
            return
    raise HeadstartError(
        f"{hospitals.LATE} received no model; see {log_file(folder, hospitals.LATE)}"
    )


def personalize(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """Make and score a hospital's own model from the shared start, without a server."""
    site = folder / "sites" / name / "site.toml"
    words: Words = ["federate", "personalize", site, *options, "--json"]
    show(words)
    process = subprocess.run(command(words), capture_output=True, text=True, check=False)
    if process.returncode:
        message = process.stderr.strip() or f"{name} has no model"
        raise StepFailedError(message, process.returncode)
    return json.loads(process.stdout)


def simulate(pool: Pool, folder: Path) -> dict[str, dict[str, float | None]]:
    """Simulate the same hospitals, files and random draws; the federation should agree."""
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
    accuracies = [client["accuracy"] for client in run.clients]
    return {
        name: {"accuracy_before": accuracy.before, "accuracy_after": accuracy.after}
        for name, accuracy in zip(names, accuracies, strict=True)
    }


def headstart(
    words: Words,
    folder: Path | None = None,
    needed: Mapping[str, Child] | None = None,
) -> None:
    """Run one ``headstart`` command; the processes it needs must not end before it."""
    show(words)
    # In a new session: Ctrl-C reaches the command only through us, once.
    child = subprocess.Popen(end_with_us(command(words)), start_new_session=True)
    try:
        while child.poll() is None:
            for name, other in (needed or {}).items():
                if folder is not None and other.poll() is not None:
                    said = last_line(log_file(folder, name))
                    raise StepFailedError(f"{name} ended too early; {said}", other.returncode)
            time.sleep(0.1)
    except BaseException:
        stop(child)
        raise
    if child.returncode:
        raise StepFailedError(f"headstart {words[0]} {words[1]} failed", child.returncode)


def stop(child: Child) -> None:
    """Ask a process to end, with everything it has started; kill it after a while."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        end([child])


def command(words: Words) -> list[str]:
    """Return the ``headstart`` command of the Python that runs this."""
    return [sys.executable, "-m", "headstart", *map(str, words)]


def end_with_us(words: Sequence[str]) -> list[str]:
    """Return a command that ends when this process ends, even if this process is killed."""
    return [sys.executable, "-m", "headstart.flower._end_with_parent", str(os.getpid()), *words]


def show(words: Words) -> None:
    """Print the command as a user would type it."""
    print(f"\n$ headstart {shlex.join(map(str, words))}", file=sys.stderr, flush=True)


def log_file(folder: Path, name: str) -> Path:
    """Return the log of a hospital's process."""
    return folder / "logs" / f"{name}.log"
