"""``headstart federate up``: a whole federation on this machine, one process per site."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from headstart._experiments.configuration import Experiment, apply_setting, read_toml
from headstart.errors import ConfigError, InputError
from headstart.flower._federation_config import LOOPBACK, FederationConfig
from headstart.flower._federation_errors import FederationError
from headstart.flower.deploy._flower_processes import (
    Child,
    end,
    environment,
    free_port,
    last_line,
    start,
)
from headstart.flower.deploy._new_federation import make_federation_of_clients
from headstart.flower.deploy._serving import Listener, serve
from headstart.records import next_free

DEFAULT: dict[str, Any] = {
    "rounds": 10,
    "participation": 1.0,
    "data": {"source": "digits", "partition": "iid", "clients": 4, "own_labels": True},
    "model": {"name": "mlp"},
    "algorithm": {
        "name": "per-fedavg",
        "inner_steps": 3,
        "inner_lr": 0.4,
        "local_lr": 0.1,
        "local_steps": 40,
        "max_gradient_norm": math.inf,
    },
    "evaluation": {"every": 5, "adapt_steps": 3},
}
"""Like the demo, but with few clients, few rounds and many local steps, since a round between
machines takes seconds. The step sizes are the best of twelve tries by the held-out accuracy of
seed 0, so the accuracy is optimistic: an example, not a result."""


def run_local_trial(
    experiment: Path | None, settings: Sequence[str], *, clients: int | None, out: Path | None,
    resume: bool, insecure: bool, listener: Listener, say: Callable[[str], None],
    advise: Callable[[str, Path], AbstractContextManager[None]],
) -> Path:  # fmt: skip
    """Make the federation, or find it to resume; start server and sites; wait for the end.

    Every round waits for all sites: they are all started here, so the model does not depend on
    which of them is ready first. ``advise`` says how to resume a run that ends early.
    """
    if resume:
        if out is None:
            raise ConfigError("--resume needs --out: the folder of the run to resume")
        folder = folder_beside(out)
        if not (folder / "federation.toml").exists():
            raise InputError(f"{folder} does not exist; there is nothing to resume in {out}")
    else:
        plan = _read_plan(experiment, settings, clients)
        name = plan.data.get("source") or Path(str(plan.data.get("path"))).stem
        out = out or next_free(Path("runs"), f"{name}-federated")
        folder = folder_beside(out)
        address = f"{LOOPBACK}:{free_port()}"
        federation = make_federation_of_clients(folder, plan, address=address, insecure=insecure)
        count = len(federation.sites) + len(federation.late)
        say(f"{count} sites in {folder}; server at {address}" + " without TLS" * insecure)
    children = start_sites(folder)
    try:
        with advise("headstart federate up", out):
            serve(
                folder, out, listener, resume=resume, wait_for_all=True,
                check=lambda: _refuse_ended(folder, children),
            )  # fmt: skip
    finally:
        end(list(children.values()))
    return out


def folder_beside(out: Path) -> Path:
    """Return the folder of the federation of a run."""
    return out.with_name(f"{out.name}-federation")


def start_sites(folder: Path) -> dict[str, Child]:
    """Start ``headstart federate join`` for every site."""
    federation = FederationConfig.read(folder / "federation.toml")
    children = {}
    for name in (*federation.sites, *federation.late):
        site = folder / "sites" / name / "site.toml"
        command = [sys.executable, "-m", "headstart", "federate", "join", str(site)]
        log = folder / "logs" / f"{name}.log"
        children[name] = start(command, log, environment(folder / ".flwr"))
    return children


def _refuse_ended(folder: Path, children: dict[str, Child]) -> None:
    """Raise if a site's process has ended: in a trial nothing restarts it."""
    for name, child in children.items():
        if child.poll() is not None:
            said = last_line(folder / "logs" / f"{name}.log")
            raise FederationError(f"{name} ended with code {child.returncode}; {said}")


def _read_plan(experiment: Path | None, settings: Sequence[str], clients: int | None) -> Experiment:
    table = json.loads(json.dumps(DEFAULT)) if experiment is None else read_toml(experiment)
    for setting in settings:
        apply_setting(table, setting)
    if clients is not None:
        table.setdefault("data", {})["clients"] = clients
    return Experiment.from_table(table)
