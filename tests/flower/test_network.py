"""Whole federations on loopback, with TLS and node keys: processes are killed for real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tomli_w
from flower.federations import experiment

from headstart._experiments import load_run, run_experiment
from headstart._experiments.configuration import Experiment
from headstart.flower._federation_config import FederationConfig, SiteConfig
from headstart.flower._federation_errors import WorkerError
from headstart.flower.deploy._certificates import make_certificates, make_site_key
from headstart.flower.deploy._flower_processes import (
    end,
    flwr,
    free_port,
    register_sites,
    start_node,
    start_server,
    write_connection,
)
from headstart.flower.protocol._encoding import encode
from headstart.flower.protocol._messages import WireMessage
from headstart.flower.site._order_execution import Site, read_order
from headstart.flower.site._worker_socket import AnswerBytes, listen

pytestmark = [pytest.mark.slow, pytest.mark.network]
PLAN: dict[str, Any] = {
    "participation": 1.0,
    "data": {"clients": 4, "new_clients": 1},
    "algorithm": {"name": "apfl", "local_steps": 2, "batch_size": 8},
}
PATIENCE = 400.0
"""Seconds for anything; the machine may be busy with other tests."""


def headstart(*words: str) -> list[str]:
    return [sys.executable, "-m", "headstart", *words]


def test_a_whole_federation_gives_the_simulations_model(tmp_path: Path) -> None:
    plan = experiment(**PLAN, rounds=2)
    (tmp_path / "e.toml").write_text(tomli_w.dumps(plan.to_table()))
    done = subprocess.run(
        headstart("federate", "up", "e.toml", "--out", "run", "--no-report"),
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "round 2 of 2: 3 sites" in done.stderr
    same_as_simulated(tmp_path / "run", plan, tmp_path)
    assert load_run(tmp_path / "run").summary.to_table()["bytes"]["up"] > 1000
    sites = tmp_path / "run-federation" / "sites"
    for number in range(4):
        assert list((sites / f"site-{number}").glob("work/runs/*/personal.safetensors"))
    again = subprocess.run(
        headstart("federate", "personalize", str(sites / "site-3/site.toml"), "--json"),
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    table = load_run(tmp_path / "run").clients[3]
    assert json.loads(again.stdout)["accuracy_after"] == pytest.approx(table["accuracy"].after)
    nothing_left(tmp_path)


class Running:
    """A federation whose parts are started, stopped and killed one by one."""

    def __init__(self, folder: Path, plan: Experiment, **options: Any) -> None:
        self.folder = folder
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "e.toml").write_text(tomli_w.dumps(plan.to_table()))
        subprocess.run(
            headstart("federate", "init", "f", "e.toml", "--address", f"127.0.0.1:{free_port()}"),
            cwd=folder, check=True, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
        config = folder / "f/federation.toml"
        text = config.read_text()
        for name, value in options.items():
            text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        config.write_text(text)

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.children[name] = subprocess.Popen(
                headstart("federate", *words), cwd=self.folder, stdout=log, stderr=log
            )

    def join(self, number: int) -> None:
        self.start(f"site-{number}", "join", f"f/sites/site-{number}/site.toml")

    def serve(self, run: str, *words: str) -> None:
        self.start("serve", "serve", "f", "--out", run, "--no-report", *words)

    def said(self, name: str = "serve") -> str:
        return (self.folder / f"{name}.log").read_text()

    def until(self, true: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < limit, self.said()
            time.sleep(0.2)

    def ended(self, name: str) -> int:
        return self.children[name].wait(PATIENCE)

    def events(self, run: str, kind: str = "round") -> list[dict[str, Any]]:
        path = self.folder / run / "rounds.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def kill_server(self) -> None:
        os.killpg(int((self.folder / "f/logs/server.pid").read_text()), signal.SIGKILL)

    def end(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
        for child in self.children.values():
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    plan = experiment(**PLAN, rounds=4, evaluation={"every": 10})
    federation = Running(tmp_path, plan, min_sites=3, deadline=180.0, wait=180.0)
    yield federation
    federation.end()


def test_killed_hanging_and_leaving(running: Running, tmp_path: Path) -> None:
    for number in range(3):
        running.join(number)

    # The server is killed after the first round, and started again.
    running.serve("one")
    running.until(lambda: len(running.events("one")) >= 1)
    running.kill_server()
    assert running.ended("serve") == 1
    assert "was ended by signal 9" in running.said()
    assert "resume with: headstart federate serve f --resume --out one" in running.said()
    running.serve("one", "--resume")
    assert running.ended("serve") == 0, running.said()
    assert "1 of them done (resumed)" in running.said() or "2 of them" in running.said()
    plan = experiment(**PLAN, rounds=4, evaluation={"every": 10})
    same_as_simulated(running.folder / "one", plan, tmp_path, known_only=True)

    # A site hangs, another is killed with its worker: the rounds go on with who is left.
    config = running.folder / "f/federation.toml"
    config.write_text(re.sub(r"min_sites = \d+", "min_sites = 1", config.read_text()))
    config.write_text(re.sub(r"deadline = .*", "deadline = 30.0", config.read_text()))
    running.serve("two")
    running.until(lambda: len(running.events("two")) >= 1)
    running.children["site-1"].send_signal(signal.SIGSTOP)
    running.children["site-2"].kill()
    running.children["site-2"].wait()
    running.until(lambda: len(running.events("two")) >= 3)
    running.children["site-1"].send_signal(signal.SIGCONT)
    assert running.ended("serve") == 0, running.said()
    rounds = running.events("two")
    assert sum(event["done"] for event in rounds) == 4, rounds
    # On a busy machine the lease of a site that hangs may end before its deadline does.
    lost = [event["silent"] + event["not_connected"] for event in rounds]
    for name in ("site-1", "site-2"):
        assert any(name in names for names in lost), rounds
    assert load_run(running.folder / "two").summary.rounds == 4

    # It comes back, a late one joins: both get the finished model, nothing is trained.
    model = (running.folder / "two/model.safetensors").read_bytes()
    running.join(2)
    running.join(3)
    running.until(lambda: "joining" in running.said("site-3"))
    config.write_text(re.sub(r"min_sites = \d+", "min_sites = 2", config.read_text()))
    running.serve("two", "--distribute")
    assert running.ended("serve") == 0, running.said()
    assert (running.folder / "two/model.safetensors").read_bytes() == model


LIES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda a: np.full_like(a, np.nan),
    lambda a: a[..., None],
    lambda a: (a + 1) * a.dtype.type(1e7),
]


def lying_worker(site: Site) -> AnswerBytes:
    """A site that fails once, then lies three times, then behaves."""
    orders: list[WireMessage] = []

    def answer(content: bytes) -> bytes:
        orders.append(read_order(content))
        if len(orders) == 1:
            raise WorkerError("ValueError")
        honest = site.answer(orders[-1])
        if len(orders) > 1 + len(LIES):
            return encode(honest)
        lie = LIES[len(orders) - 2]
        tensors = {name: lie(array) for name, array in honest.tensors.items()}
        return encode(honest.model_copy(update={"tensors": tensors}))

    return answer


def test_raising_lying_leaving(tmp_path: Path) -> None:
    plan = experiment(**PLAN, rounds=8, evaluation={"every": 10})
    running = Running(tmp_path, plan, deadline=180.0, wait=180.0)
    file = tmp_path / "f/sites/site-2/site.toml"
    site = SiteConfig.read(file)
    node = None
    try:
        for number in (0, 1):
            running.join(number)
        with listen(Path(site.work), lying_worker(Site(site))):
            running.serve("run")
            running.until(lambda: (tmp_path / "f/logs/server.pid").exists())
            node = start_site_node(running, site, file)
            assert running.ended("serve") == 0, running.said()
        events = running.events("run")
        rounds = [event for event in events if event["done"]]
        assert len(rounds) == 8  # on a busy machine a round may have been tried twice
        reasons = [event["rejected"]["site-2"] for event in events if event["rejected"]]
        wanted = ["ValueError, code 199", "not finite", "expected", "norm"]
        for reason, part in zip(reasons, wanted, strict=True):
            assert part in reason
        assert rounds[-1]["trained"] == ["site-0", "site-1", "site-2"]

        # All but one leave: the server waits, says so, and ends.
        end([node])
        running.children["site-1"].terminate()
        assert running.ended("site-1") == 0
        config = tmp_path / "f/federation.toml"
        config.write_text(re.sub(r"wait = .*", "wait = 20.0", config.read_text()))
        running.serve("few")
        assert running.ended("serve") == 1
        assert "waiting for sites: " in running.said()
        assert re.search(r"of the 2 sites needed were there after waiting 20 s", running.said())
        assert "no round was completed" in running.said()
    finally:
        if node is not None:
            end([node])
        running.end()


def start_site_node(running: Running, site: SiteConfig, file: Path) -> Any:
    """Flower's node as ``join`` starts it; refused until the server has registered the key."""
    log = running.folder / "node.log"
    for _ in range(20):
        node = start_node(site, file, log)
        for _ in range(60):
            if "SuperNode ID" in log.read_text():
                return node
            if node.poll() is not None:
                break
            time.sleep(1.0)
        end([node])
    raise AssertionError(log.read_text())


def test_who_is_refused(tmp_path: Path) -> None:
    """An unregistered key, a server of another authority, and plain text."""
    folder = tmp_path / "f"
    federation = FederationConfig(
        address=f"127.0.0.1:{free_port()}", sites=("good", "other"), min_sites=1
    )
    make_certificates(folder / "server", "127.0.0.1")
    make_certificates(tmp_path / "elsewhere", "127.0.0.1")
    public = make_site_key(tmp_path / "good.key")
    (folder / "server/sites").mkdir()
    (folder / "server/sites/good.pub").write_bytes(public.read_bytes())
    make_site_key(tmp_path / "stranger.key")
    write_connection(folder, federation)
    server = start_server(folder, federation, tmp_path / "server.log")
    good = SiteConfig(
        name="good", data="x", server=federation.address, work=str(tmp_path / "work"),
        certificate=str(folder / "server/ca.crt"), key=str(tmp_path / "good.key"),
    )  # fmt: skip
    attempts = {
        "good": good,
        "unregistered": replace(good, key=str(tmp_path / "stranger.key")),
        "wrong authority": replace(good, certificate=str(tmp_path / "elsewhere/ca.crt")),
        "plain text": replace(good, insecure=True),
    }
    nodes = {}
    try:
        register_sites(folder, ["good"])
        for number, (name, config) in enumerate(attempts.items()):
            log = tmp_path / f"node-{number}.log"
            nodes[name] = (start_node(config, tmp_path / "site.toml", log), log)
        limit = time.monotonic() + PATIENCE
        while online(folder) != 1:
            assert time.monotonic() < limit
            time.sleep(1.0)
        # The stranger is turned away at once; the other two never get a line.
        assert nodes["unregistered"][0].wait(PATIENCE) != 0
        time.sleep(5.0)
        assert "SuperNode ID" in nodes["good"][1].read_text()
        assert online(folder) == 1
        for name in ("wrong authority", "plain text"):
            said = nodes[name][1].read_text()
            assert "Connection attempt failed" in said and "SuperNode ID" not in said, (name, said)
        assert nodes["good"][0].poll() is None
    finally:
        end([node for node, _ in nodes.values()])
        end([server])


def online(folder: Path) -> int:
    """How many nodes Flower says are online."""
    [answer] = flwr(folder, ["supernode", "list", "federation"])
    return sum(node["status"] == "online" for node in answer["nodes"])


def same_as_simulated(
    run: Path, plan: Experiment, scratch: Path, *, known_only: bool = False
) -> None:
    """The federation's model is the simulation's, to rounding; so are the accuracies."""
    simulated = run_experiment(plan, scratch / "simulated")
    federated = load_run(run)
    for ours, theirs in zip(
        jax.tree.leaves(federated.params), jax.tree.leaves(simulated.params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for group in ["known"] if known_only else ["known", "new"]:
        mine, other = (run.summary.scores.groups[group].loss for run in (federated, simulated))
        assert mine is not None and other is not None
        assert mine.after.mean == pytest.approx(other.after.mean, 1e-3)


def nothing_left(folder: Path) -> None:
    """No process that was started for this folder is still there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert not [line for line in listed.stdout.splitlines() if str(folder) in line]
