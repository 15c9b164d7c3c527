"""Several processes on this machine that share the clients of one run."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeAlias

import typer

from headstart.errors import ProcessLostError
from headstart.machine import count_cores
from headstart.records import RunDirectory
from headstart.records._checkpoint import checkpoint_files

Child: TypeAlias = "subprocess.Popen[bytes]"
LOOPBACK = "127.0.0.1"
GRACE_SECONDS = 5.0
"""How long the others may take to end by themselves once one has ended in error."""


def launch(words: list[str], folder: Path, processes: int, devices: int | None) -> None:
    """Run ``headstart run`` in so many processes and wait; if one is lost, end them all."""
    coordinator = f"{LOOPBACK}:{free_port()}"
    share = devices or max(1, count_cores() // processes)
    command = [
        sys.executable,
        "-P",
        "-m",
        "headstart",
        "run",
        *words,
        "--out",
        str(folder),
    ]
    command += ["--processes", str(processes), "--coordinator", coordinator]
    command += ["--devices", str(share), "--process-id"]
    # The libraries below JAX report a lost process in many lines of their own.
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    with TemporaryFile("w+") as results, TemporaryFile("w+") as complaints:
        children = [
            subprocess.Popen(
                [*command, str(number)],
                stdout=results if number == 0 else subprocess.DEVNULL,
                stderr=None if number == 0 else complaints,
                env=quiet,
            )
            for number in range(processes)
        ]
        try:
            _wait(children, folder, complaints)
        except KeyboardInterrupt:
            # The terminal has interrupted the children as well; process 0 says how to go on.
            _end(children, GRACE_SECONDS)
            raise typer.Exit(130) from None
        finally:
            _end(children, 0.0)
        results.seek(0)
        typer.echo("".join(line for line in results if not line.startswith("[Gloo]")), nl=False)


def _wait(children: list[Child], folder: Path, complaints: IO[str]) -> None:
    """Until all have ended well; the first that has not decides how the run ends."""
    while any(child.poll() is None for child in children):
        if any(child.poll() for child in children):
            break
        time.sleep(0.05)
    codes = [child.poll() for child in children]
    failed = [number for number, code in enumerate(codes) if code]
    if not failed:
        return
    # Who was killed is the cause; the others have only missed it.
    lost = min(failed, key=lambda number: (codes[number] or 0) > 0)
    code = codes[lost] or 0
    if lost == 0 and code > 0:  # It has said why.
        raise typer.Exit(code)
    _end([child for child in children if child is not children[lost]], 0.0)
    why = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise ProcessLostError(
        f"process {lost} of {len(children)} {why}{_last_words(complaints)}; the run was "
        f"stopped. {how_to_go_on(folder, len(children))}"
    )


def _last_words(complaints: IO[str]) -> str:
    complaints.seek(0)
    own = [line for line in complaints if line.startswith("headstart:")]
    return f" ({own[-1].removeprefix('headstart:').strip()[:200]})" if own else ""


def how_to_go_on(folder: Path, processes: int) -> str:
    """Where a run stands that was stopped from outside, and the command to take it up."""
    found = checkpoint_files(RunDirectory(folder).checkpoints)
    if not found:
        return f"No checkpoint was written yet in {folder}"
    return (
        f"The last checkpoint is {found[-1].name}; go on with: headstart run --resume "
        f"--out {shlex.quote(str(folder))} --processes {processes}"
    )


def _end(children: list[Child], grace: float) -> None:
    """End those that still run: they wait for the lost one and would wait for ever."""
    until = time.monotonic() + grace
    for child in children:
        while child.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if child.poll() is None:
            child.kill()
        child.wait()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
