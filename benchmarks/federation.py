"""What Headstart adds to a round of Flower's: the same nodes, an app that does nothing, and ours.

Four sites on this machine, over loopback with TLS and node keys. On one server and the same nodes
an empty app and Headstart's take turns; each sends a message to all four sites and waits for all
answers, looking every quarter of a second. It also times ``headstart federate up``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import write_section
from headstart._experiments.configuration import Experiment
from headstart.flower._federation_config import LOOPBACK
from headstart.flower.deploy._flower_processes import (
    end,
    free_port,
    register_sites,
    start_server,
    submit,
    submit_app,
    write_connection,
)
from headstart.flower.deploy._local_trial import DEFAULT, start_sites
from headstart.flower.deploy._new_federation import make_federation_of_clients
from headstart.flower.server._run_record import EVENTS_FILE
from headstart.records._federation_events import RoundEnded, follow_events

TURNS, EXCHANGES = 2, 8
RESULT = Path(__file__).parent / "results" / "federation.json"
PATIENCE = 600.0
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "empty-app"
version = "1.0.0"
description = "does nothing"
license = "Apache-2.0"
dependencies = ["flwr==1.41.0"]
[tool.flwr.app]
publisher = "headstart"
[tool.flwr.app.components]
serverapp = "empty_app.server_app:app"
clientapp = "empty_app.client_app:app"
[tool.flwr.app.config]
out = ""
exchanges = 0
"""
CLIENT = """
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    return Message(RecordDict(), reply_to=message)
"""
SERVER = """
import json
import time

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    while len(nodes := list(grid.get_node_ids())) < 4:
        time.sleep(0.5)
    seconds = []
    for _ in range(context.run_config["exchanges"]):
        begin = time.monotonic()
        messages = [Message(RecordDict(), n, MessageType.TRAIN) for n in nodes]
        waiting = set(grid.push_messages(messages))
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
            if waiting:
                time.sleep(0.25)
        seconds.append(time.monotonic() - begin)
    with open(context.run_config["out"], "w") as file:
        json.dump(seconds, file)
"""


def main() -> None:
    """Let both apps take turns on the same nodes, then time the whole command."""
    with tempfile.TemporaryDirectory() as scratch:
        empty, ours = measure_exchanges(Path(scratch))
        command = time_command(Path(scratch))
    result = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "empty_seconds": empty,
        "headstart_seconds": ours,
        "overhead_seconds": statistics.median(ours) - statistics.median(empty),
        **command,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    write_section("federation", describe(result))
    print(describe(result))


def measure_exchanges(scratch: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of every exchange but each turn's first, which compiles."""
    folder = scratch / "federation"
    plan = Experiment.from_table({**DEFAULT, "rounds": EXCHANGES})
    address = f"{LOOPBACK}:{free_port()}"
    federation = make_federation_of_clients(folder, plan, address=address, insecure=False)
    app = scratch / "empty"
    for name, text in (
        ("pyproject.toml", PYPROJECT),
        ("empty_app/__init__.py", ""),
        ("empty_app/client_app.py", CLIENT),
        ("empty_app/server_app.py", SERVER),
    ):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    write_connection(folder, federation)
    server = start_server(folder, federation, folder / "logs/server.log")
    sites = {}
    try:
        register_sites(folder, list(federation.sites))
        sites = start_sites(folder)
        empty: list[float] = []
        ours: list[float] = []
        for turn in range(TURNS):
            times = scratch / f"empty-{turn}.json"
            submit_app(folder, app, {"out": str(times), "exchanges": EXCHANGES})
            wait_for(times.exists)
            time.sleep(1.0)
            empty += json.loads(times.read_text())[1:]
            out = scratch / f"run-{turn}"
            submit(folder, out, {"wait-for-all": True})
            wait_for((out / "summary.json").exists)
            events = [event for _, event in follow_events(out / EVENTS_FILE, 0)]
            rounds = [event for event in events if isinstance(event, RoundEnded) and event.done]
            ours += [event.seconds for event in rounds[1:]]
    finally:
        end(list(sites.values()))
        end([server])
    return empty, ours


def time_command(scratch: Path) -> dict[str, Any]:
    """Time ``headstart federate up`` with four clients and ten rounds."""
    command = [sys.executable, "-m", "headstart", "federate", "up", "--clients", "4"]
    begin = time.monotonic()
    subprocess.run(
        [*command, "--out", str(scratch / "up")], check=True, capture_output=True, timeout=PATIENCE
    )
    seconds = time.monotonic() - begin
    summary = json.loads((scratch / "up" / "summary.json").read_text())
    return {"up_seconds": seconds, "up_rounds": summary["rounds"], "bytes": summary["bytes"]}


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the federation made no progress")
        time.sleep(0.2)


def describe(result: dict[str, Any]) -> str:
    """Return the result in a few lines."""
    empty, ours = (sorted(result[k]) for k in ("empty_seconds", "headstart_seconds"))
    rows = [
        f"| {name} | {len(values)} | {values[0]:.2f} | {statistics.median(values):.2f} "
        f"| {values[-1]:.2f} |"
        for name, values in (("an empty app", empty), ("Headstart, training digits", ours))
    ]
    met = "met" if result["overhead_seconds"] < 1.0 else "not met"
    soon = "met" if result["up_seconds"] < 180 else "not met"
    return "\n".join([
        f"{result['date']}. Seconds of an exchange with four sites:",
        "",
        "| app | exchanges | least | median | most |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
        "",
        f"Headstart adds {result['overhead_seconds']:.2f} s to the median; asked: less than 1 s "
        f"({met}). `headstart federate up --clients 4`, {result['up_rounds']} rounds: "
        f"{result['up_seconds']:.0f} s from start to end; asked: less than 180 s ({soon}).",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
