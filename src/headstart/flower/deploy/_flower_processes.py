"""Flower's own processes: started quietly, without telemetry, and ended with their parent.

None of them uses the internet: no telemetry, no check for updates, no installation of packages
when a run starts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tomli_w

from headstart._atomic_files import write_text
from headstart.flower._federation_config import LOOPBACK, FederationConfig, SiteConfig
from headstart.flower._federation_errors import FederationError

Child: TypeAlias = "subprocess.Popen[bytes]"
CONNECTION = "federation"
START_SECONDS = 60.0
GRACE_SECONDS = 5.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes; ``home`` is where it keeps its settings."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home.absolute()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    }


def start(command: Sequence[str], log: Path, env: Mapping[str, str]) -> Child:
    """Start a child that writes to a log and ends when this process ends or is killed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    bound = [sys.executable, "-m", "headstart.flower._end_with_parent", str(os.getpid())]
    with log.open("ab") as out:
        return subprocess.Popen(
            [*bound, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=dict(env), start_new_session=True,
        )  # fmt: skip


def end(children: Sequence[Child], grace: float = GRACE_SECONDS) -> None:
    """Ask the children and all their processes to end; kill them after a while."""
    for child in children:
        _signal(child, signal.SIGTERM)
    until = time.monotonic() + grace
    for child in children:
        while child.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        _signal(child, signal.SIGKILL)
        child.wait()


def start_server(folder: Path, federation: FederationConfig, log: Path) -> Child:
    """Start Flower's server and return once it can be reached."""
    host, port = federation.host_port
    command = [
        "flower-superlink", "--host", _listen_at(host), "--port", str(port),
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    if federation.insecure:
        command.append("--insecure")
    else:
        server = folder / "server"
        command += [
            "--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile",
            str(server / "server.crt"), "--ssl-keyfile", str(server / "server.key"),
            "--enable-supernode-auth",
        ]  # fmt: skip
    if _listens(port):
        raise FederationError(
            f"port {port} is taken already; stop the process that listens there, or change address "
            f"in {folder / 'federation.toml'}"
        )
    child = start(_with_full_path(command), log, environment(home_of(folder)))
    until = time.monotonic() + START_SECONDS
    while not _listens(port):
        if child.poll() is not None or time.monotonic() > until:
            end([child])
            raise FederationError(f"Flower's server did not start; {last_line(log)} (see {log})")
        time.sleep(0.1)
    return child


def home_of(folder: Path) -> Path:
    """Return the folder of Flower's settings for the server's operator."""
    return folder / ".flwr"


def write_connection(folder: Path, federation: FederationConfig) -> None:
    """Tell ``flwr`` where the server is."""
    _, port = federation.host_port
    connection: dict[str, Any] = {"address": f"{LOOPBACK}:{port}"}
    if federation.insecure:
        connection["insecure"] = True
    else:
        connection["root-certificates"] = str((folder / "server" / "ca.crt").absolute())
    text = tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: connection}})
    write_text(home_of(folder) / "config.toml", text)


def register_sites(folder: Path, names: Sequence[str]) -> None:
    """Let the server accept these sites' keys."""
    keys = {name: folder / "server" / "sites" / f"{name}.pub" for name in names}
    answers = flwr(
        folder,
        *(
            ["supernode", "register", str(key), CONNECTION, "--name", name]
            for name, key in keys.items()
        ),
    )
    for name, answer in zip(names, answers, strict=True):
        if not answer.get("success") and "already" not in str(answer).lower():
            why = answer.get("error-message", answer)
            raise FederationError(f"the key {keys[name]} could not be registered: {why}")


def submit(folder: Path, out: Path, options: Mapping[str, bool]) -> int:
    """Start a run of the federation's app and return its number."""
    folders = {"federation": str(folder.absolute()), "out": str(out.absolute())}
    return submit_app(folder, folder / "app", {**folders, **options})


def submit_app(folder: Path, app: Path, config: Mapping[str, str | bool | int]) -> int:
    """Start a run of any app with this configuration and return its number."""
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    options = ["--run-config", words] if words else []
    [answer] = flwr(folder, ["run", str(app), CONNECTION, *options])
    if not answer.get("success"):
        why = answer.get("error-message", answer)
        raise FederationError(f"Flower did not accept the run: {why}")
    return int(answer["run-id"])


def run_status(folder: Path, run: int) -> str:
    """Return the status in Flower's words: starting, running, finished:completed …"""
    [answer] = flwr(folder, ["list", CONNECTION, "--run-id", str(run)])
    runs = answer.get("runs") or [{}]
    return str(runs[0].get("status", "unknown"))


def run_log(folder: Path, run: int) -> str:
    """Return what the run has printed."""
    [answer] = flwr(folder, ["log", str(run), CONNECTION, "--show"])
    return str(answer.get("text", answer))


def flwr(folder: Path, *commands: Sequence[str]) -> list[dict[str, Any]]:
    """Run ``flwr`` commands in one process, since a start takes seconds; return the answers."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "headstart.flower.deploy._flwr_commands"],
            env=environment(home_of(folder)),
            input=json.dumps(commands), capture_output=True, text=True, timeout=START_SECONDS,
            check=False,
        )  # fmt: skip
        return json.loads(process.stdout)
    except subprocess.TimeoutExpired:
        raise FederationError(f"flwr did not answer in {START_SECONDS:g} s") from None
    except ValueError:
        last = (process.stderr.strip().splitlines() or ["nothing"])[-1]
        raise FederationError(f"flwr could not be run; it said: {last}") from None


def start_node(config: SiteConfig, site_file: Path, log: Path) -> Child:
    """Start Flower's node for one site."""
    command = [
        "flower-supernode", "--superlink", config.server, "--port", str(free_port()),
        "--node-config", f"site={json.dumps(str(site_file.absolute()))}",
    ]  # fmt: skip
    if config.insecure:
        command.append("--insecure")
    else:
        command += ["--root-certificates", config.certificate]
        command += ["--auth-supernode-private-key", config.key]
    return start(_with_full_path(command), log, environment(Path(config.work) / ".flwr"))


def free_port() -> int:
    """Return a port of this machine that is not in use now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def last_line(log: Path) -> str:
    """Return a phrase with the last line that a process wrote."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    return f"it said: {lines[-1][:300]}" if lines else "it said nothing"


def _with_full_path(command: list[str]) -> list[str]:
    """Return the command with the executable next to this Python, which may not be on PATH."""
    beside = Path(sys.executable).parent / command[0]
    return [str(beside) if beside.exists() else command[0], *command[1:]]


def _listen_at(host: str) -> str:
    """Return the address to listen at: loopback for a trial, else all addresses."""
    return LOOPBACK if host in (LOOPBACK, "localhost") else "0.0.0.0"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _signal(child: Child, number: int) -> None:
    """Send a signal to the child's whole session: Flower's processes start others."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return
