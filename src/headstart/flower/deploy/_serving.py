"""``headstart federate serve``: Flower's server, the sites' keys, one run, and its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from headstart._atomic_files import write_text
from headstart._experiments.configuration import read_experiment
from headstart.errors import ConfigError, InputError, OutputError
from headstart.flower._federation_config import FederationConfig
from headstart.flower._federation_errors import FederationError
from headstart.flower.deploy._federation_folder import write_app
from headstart.flower.deploy._flower_processes import (
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
from headstart.flower.server._run_record import EVENTS_FILE, RunRecord
from headstart.flower.server._session import Session
from headstart.records._federation_events import (
    FederationEvent,
    KeyMissing,
    Notice,
    RunFailed,
    RunFinished,
    follow_events,
)

LOOK_SECONDS = 0.25
ASK_SECONDS = 10.0
"""After this long without an event, Flower is asked for the status of the run."""

Listener = Callable[[FederationEvent], None]


def serve(
    folder: Path, out: Path, listener: Listener, *, resume: bool = False, distribute: bool = False,
    wait_for_all: bool = False, check: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Conduct the run in ``out``; pass every event to ``listener``; ``check`` may raise."""
    federation = FederationConfig.read(folder / "federation.toml")
    refuse_unready(folder, out, federation, continued=resume or distribute)
    write_app(folder)  # The folder may have been made by an earlier version.
    log = folder / "logs" / "server.log"
    write_connection(folder, federation)
    server = start_server(folder, federation, log)
    write_text(folder / "logs" / "server.pid", f"{server.pid}\n")
    try:
        if not federation.insecure:
            register_sites(folder, _sites_with_keys(folder, federation, listener))
        begin = _size(out / EVENTS_FILE)
        options = {"resume": resume, "distribute": distribute, "wait-for-all": wait_for_all}
        run = submit(folder, out, options)
        _watch(folder, out, server, run, begin, listener, check)
    finally:
        end([server])


def refuse_unready(
    folder: Path, out: Path, federation: FederationConfig, *, continued: bool
) -> None:
    """Refuse what can be known to be wrong before anything starts."""
    session = Session.from_folder(folder, "check")
    if continued:
        if not (out / "config.toml").exists():
            raise InputError(f"{out} holds no run to resume; leave out --resume")
        stored = read_experiment(out).fingerprint(with_data=False)
        if stored != session.experiment.fingerprint(with_data=False):
            raise ConfigError(f"{out} was made with other settings than {folder}/experiment.toml")
        RunRecord(out, session).newest_checkpoint()
    elif out.exists() and any(out.iterdir()):
        raise OutputError(
            f"{out} is not empty; choose another folder with --out, or resume with --resume"
        )
    if federation.insecure:
        return
    for name in ("ca.crt", "server.crt", "server.key"):
        if not (folder / "server" / name).exists():
            raise ConfigError(f"{folder / 'server' / name} is missing; TLS needs it")


def _sites_with_keys(folder: Path, federation: FederationConfig, listener: Listener) -> list[str]:
    """Return the sites whose public keys are here; the others cannot take part yet."""
    names = []
    for name in (*federation.sites, *federation.late):
        if (folder / "server" / "sites" / f"{name}.pub").exists():
            names.append(name)
        else:
            listener(KeyMissing(site=name))
    return names


def _watch(
    folder: Path, out: Path, server: Child, run: int, position: int, listener: Listener,
    check: Callable[[], None],
) -> None:  # fmt: skip
    """Pass on events until the run has ended, in whatever way."""
    last_event = time.monotonic()
    while True:
        check()
        for place, event in follow_events(out / EVENTS_FILE, position):
            position, last_event = place, time.monotonic()
            listener(event)
            if isinstance(event, Notice):
                print(event.text, file=sys.stderr, flush=True)
            if isinstance(event, RunFinished):
                return
            if isinstance(event, RunFailed):
                raise FederationError(event.why)
        if server.poll() is not None:
            code = server.returncode
            why = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            log = folder / "logs" / "server.log"
            raise FederationError(f"Flower's server {why}; {last_line(log)}")
        if time.monotonic() - last_event > ASK_SECONDS:
            last_event = time.monotonic()
            if run_status(folder, run).startswith("finished"):
                _raise_last_words(folder, out, run, position)
        time.sleep(LOOK_SECONDS)


def _raise_last_words(folder: Path, out: Path, run: int, position: int) -> None:
    """Raise if the run ended without an event: it could not begin, or something ended it."""
    if any(True for _ in follow_events(out / EVENTS_FILE, position)):
        return
    log = folder / "logs" / "run.log"
    write_text(log, run_log(folder, run))
    raise FederationError(f"the run ended without a result; {last_line(log)} (see {log})")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
