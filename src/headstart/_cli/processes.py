"""Start several processes on this machine that share the clients of one run."""

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
"""How long the other processes may take to exit once one has failed."""


def launch(arguments: list[str], folder: Path, processes: int, devices: int | None) -> None:
    """Run ``headstart run`` in ``processes`` processes and wait; if one is lost, stop them all."""
    coordinator = f"{LOOPBACK}:{free_port()}"
    share = devices or max(1, count_cores() // processes)
    command = [sys.executable, "-P", "-m", "headstart", "run", *arguments, "--out", str(folder)]
    command += ["--processes", str(processes), "--coordinator", coordinator]
    command += ["--devices", str(share), "--process-id"]
    # The libraries below JAX log many lines about a lost process.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    with TemporaryFile("w+") as output, TemporaryFile("w+") as error_output:
        children = [
            subprocess.Popen(
                [*command, str(number)],
                stdout=output if number == 0 else subprocess.DEVNULL,
                stderr=None if number == 0 else error_output,
                env=environment,
            )
            for number in range(processes)
        ]
        try:
            _wait_for(children, folder, error_output)
        except KeyboardInterrupt:
            # The terminal has interrupted the children as well; process 0 says how to resume.
            _stop(children, GRACE_SECONDS)
            raise typer.Exit(130) from None
        finally:
            _stop(children, 0.0)
        output.seek(0)
        typer.echo("".join(line for line in output if not line.startswith("[Gloo]")), nl=False)


def _wait_for(children: list[Child], folder: Path, error_output: IO[str]) -> None:
    """Wait until all have succeeded; the first failure decides how the run ends."""
    while any(child.poll() is None for child in children):
        if any(child.poll() for child in children):
            break
        time.sleep(0.05)
    codes = [child.poll() for child in children]
    failed = [number for number, code in enumerate(codes) if code]
    if not failed:
        return
    # A process that was killed is the cause; the others failed because they lost it.
    lost = min(failed, key=lambda number: (codes[number] or 0) > 0)
    code = codes[lost] or 0
    if lost == 0 and code > 0:  # It has printed the reason.
        raise typer.Exit(code)
    _stop([child for child in children if child is not children[lost]], 0.0)
    why = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    raise ProcessLostError(
        f"process {lost} of {len(children)} {why}{_last_message(error_output)}; the run was "
        f"stopped. {resume_advice(folder, len(children))}"
    )


def _last_message(error_output: IO[str]) -> str:
    error_output.seek(0)
    own = [line for line in error_output if line.startswith("headstart:")]
    return f" ({own[-1].removeprefix('headstart:').strip()[:200]})" if own else ""


def is_lost_connection(error: Exception) -> bool:
    """Return whether an exception of a shared run means that another process is gone.

    JAX reports a broken collective operation as RuntimeError or, depending on the moment at which
    the connection breaks, as ValueError; only the text of the latter names the cause.
    """
    return isinstance(error, RuntimeError) or "gloo" in str(error).lower()


def resume_advice(folder: Path, processes: int) -> str:
    """Return the last checkpoint of a stopped run and the command that resumes it."""
    checkpoints = checkpoint_files(RunDirectory(folder).checkpoints)
    if not checkpoints:
        return f"No checkpoint was written yet in {folder}"
    return (
        f"The last checkpoint is {checkpoints[-1].name}; resume with: headstart run --resume "
        f"--out {shlex.quote(str(folder))} --processes {processes}"
    )


def _stop(children: list[Child], grace: float) -> None:
    """Stop the processes still running: they would wait forever for the lost one."""
    deadline = time.monotonic() + grace
    for child in children:
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if child.poll() is None:
            child.kill()
        child.wait()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
