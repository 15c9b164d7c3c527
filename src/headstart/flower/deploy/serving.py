"""Run a federation's server: Flower's process, the sites' keys, one run, and its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.atomic_files import write_text
from headstart.errors import ConfigError, InputError, OutputError
from headstart.experiments.configuration import read_experiment
from headstart.flower.deploy.flower_processes import (
    Child,
    end,
    last_line,
    register_sites,
    run_log,
    run_status,
    start_server,
    submit,
    write_connection,
)
from headstart.flower.federation_config import FederationConfig
from headstart.flower.protocol.error_codes import FederationError
from headstart.flower.server.run_record import ROUNDS, Ledger, follow
from headstart.flower.server.server_app import read_session

LOOK_SECONDS = 0.25
ASK_SECONDS = 10.0
"""So long without a word from the run, and Flower is asked how it is."""

Hear = Callable[[dict[str, Any]], None]


def serve(
    folder: Path, out: Path, hear: Hear, *, resume: bool = False, hand_out: bool = False,
    check: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Carry out the run in ``out``; ``hear`` is told every event, ``check`` may raise to stop."""
    federation = FederationConfig.read(folder / "federation.toml")
    refuse_unready(folder, out, federation, resume=resume, hand_out=hand_out)
    log = folder / "logs" / "server.log"
    write_connection(folder, federation)
    server = start_server(folder, federation, log)
    write_text(folder / "logs" / "server.pid", f"{server.pid}\n")
    try:
        if not federation.insecure:
            register_sites(folder, _with_keys(folder, federation, hear))
        begin = _end_of(out / ROUNDS)
        run = submit(folder, out, resume=resume, hand_out=hand_out)
        _watch(folder, out, server, run, begin, hear, check)
    finally:
        end([server])


def refuse_unready(
    folder: Path, out: Path, federation: FederationConfig, *, resume: bool, hand_out: bool
) -> None:
    """Everything that can be known to be wrong before anything is started."""
    session = read_session(folder, "check")
    if resume or hand_out:
        if not (out / "config.toml").exists():
            raise InputError(f"{out} holds no run to go on with; leave out --resume")
        kept = read_experiment(out).fingerprint(with_data=False)
        if kept != session.experiment.fingerprint(with_data=False):
            raise ConfigError(f"{out} was made with other settings than {folder}/experiment.toml")
        Ledger(out, session).newest()
    elif out.exists() and any(out.iterdir()):
        raise OutputError(
            f"{out} is not empty; choose another folder with --out, or go on with --resume"
        )
    if federation.insecure:
        return
    for name in ("ca.crt", "server.crt", "server.key"):
        if not (folder / "server" / name).exists():
            raise ConfigError(f"{folder / 'server' / name} is missing; TLS needs it")


def _with_keys(folder: Path, federation: FederationConfig, hear: Hear) -> list[str]:
    """The sites whose public keys are here; the others cannot take part yet."""
    found = []
    for name in (*federation.sites, *federation.late):
        if (folder / "server" / "sites" / f"{name}.pub").exists():
            found.append(name)
        else:
            hear({"event": "no key", "site": name})
    return found


def _watch(
    folder: Path, out: Path, server: Child, run: int, seen: int, hear: Hear,
    check: Callable[[], None],
) -> None:  # fmt: skip
    """Pass events on until the run has ended, one way or another."""
    heard = time.monotonic()
    while True:
        check()
        for place, event in follow(out / ROUNDS, seen):
            seen, heard = place, time.monotonic()
            hear(event)
            if event["event"] == "notice":
                print(event["text"], file=sys.stderr, flush=True)
            if event["event"] == "finished":
                return
            if event["event"] == "failed":
                raise FederationError(event["why"])
        if server.poll() is not None:
            code = server.returncode
            why = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            log = folder / "logs" / "server.log"
            raise FederationError(f"Flower's server {why}; {last_line(log)}")
        if time.monotonic() - heard > ASK_SECONDS:
            heard = time.monotonic()
            if run_status(folder, run).startswith("finished"):
                _raise_last_words(folder, out, run, seen)
        time.sleep(LOOK_SECONDS)


def _raise_last_words(folder: Path, out: Path, run: int, seen: int) -> None:
    """The run has ended without saying so: it could not begin, or was ended from outside."""
    if any(True for _ in follow(out / ROUNDS, seen)):
        return
    log = folder / "logs" / "run.log"
    write_text(log, run_log(folder, run))
    raise FederationError(f"the run ended without a result; {last_line(log)} (see {log})")


def _end_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
