"""The folder of a federation, as ``headstart federate init`` writes it.

experiment.toml   what is trained
schema.json       what an example looks like; all sites must agree on it
federation.toml   which sites take part, where the server is, how long it waits
app/              the Flower app: a few lines that import Headstart's
server/           certificates, and the sites' public keys; stays at the server
sites/NAME/       one folder per site, to be copied there: its file, key and start scripts
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path

import tomli_w
from jinja2 import Environment, StrictUndefined

from headstart._atomic_files import clear_write_errors, write_json, write_text
from headstart._experiments.configuration import Experiment
from headstart.data._federated import FederatedDataset
from headstart.data._schema import Schema
from headstart.data._store import write_store
from headstart.errors import OutputError
from headstart.flower._federation_config import FederationConfig, as_toml
from headstart.flower.deploy._certificates import make_certificates, make_site_key

OPTIONS = ("address", "sites", "late", "min_sites", "deadline", "wait", "retries", "max_norm")


def write_federation(
    folder: Path,
    experiment: Experiment,
    schema: Schema,
    federation: FederationConfig,
    *,
    own_data: bool,
    label: str = "label",
) -> None:
    """Write everything except the sites' data; with ``own_data`` no data set is named."""
    _refuse_taken(folder)
    table = experiment.to_table()
    if own_data:
        del table["data"]
    write_text(folder / "experiment.toml", tomli_w.dumps(table))
    write_json(folder / "schema.json", asdict(schema))
    write_text(folder / "federation.toml", _federation_toml(federation))
    host, port = federation.host_port
    values = {"host": host, "port": port, "federation": federation, "rounds": experiment.rounds}
    for source, target in (
        ("README.md", "README.md"),
        ("compose.yaml", "compose.yaml"),
        ("Containerfile", "Containerfile"),
        ("server.sh", "server/start.sh"),
        ("server.service", "server/headstart-server.service"),
    ):
        _render(source, folder / target, values)
    write_app(folder)
    if not federation.insecure:
        make_certificates(folder / "server", host)
    for name in (*federation.sites, *federation.late):
        write_site(folder, name, federation, label)


def write_app(folder: Path) -> None:
    """Write the Flower app."""
    for source, target in (
        ("pyproject.toml", "pyproject.toml"),
        ("app_init.py", "headstart_app/__init__.py"),
        ("client_app.py", "headstart_app/client_app.py"),
        ("server_app.py", "headstart_app/server_app.py"),
    ):
        _render(source, folder / "app" / target, {})


def write_site(folder: Path, name: str, federation: FederationConfig, label: str) -> None:
    """Write one site's folder with a key; its public half goes to the server."""
    home = folder / "sites" / name
    values = {"name": name, "federation": federation, "label": label}
    _render("site.toml", home / "site.toml", values)
    _render("site.sh", home / "start.sh", values)
    _render("site.service", home / "headstart-site.service", values)
    if federation.insecure:
        return
    write_text(home / "ca.crt", (folder / "server" / "ca.crt").read_text(encoding="utf-8"))
    public = make_site_key(home / "site.key")
    write_text(folder / "server" / "sites" / f"{name}.pub", public.read_text(encoding="utf-8"))


def write_site_data(folder: Path, names: Sequence[str], data: FederatedDataset) -> None:
    """Write client i's examples into the folder of site i."""
    for client, name in enumerate(names):
        write_store(folder / "sites" / name / "data", data.part(client, client + 1))


def _refuse_taken(folder: Path) -> None:
    with clear_write_errors(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} exists already and is not empty; choose another folder")


def _federation_toml(federation: FederationConfig) -> str:
    """Return the options, each with its meaning."""
    lines = ["# Which sites take part, where the server is, and how long it waits."]
    for option in OPTIONS:
        lines += [f"# {_MEANINGS[option]}", f"{option} = {as_toml(getattr(federation, option))}"]
    if federation.insecure:
        lines.append("insecure = true")
    return "\n".join(lines) + "\n"


_MEANINGS = {
    "address": "Where the sites reach the server: host and port.",
    "sites": "Sites that train; their order gives them their numbers, so only add at the end.",
    "late": "Sites that do not train and get their model at the end.",
    "min_sites": "The number of usable answers a round needs.",
    "deadline": "Seconds a site has to answer; then the round continues without it.",
    "wait": "Seconds the server waits for enough sites before it ends the run.",
    "retries": "How often a round with too few answers is tried again.",
    "max_norm": "An answer is rejected if its norm is this many times that of what was sent.",
}
assert set(_MEANINGS) == set(OPTIONS) <= {f.name for f in fields(FederationConfig)}


def _render(source: str, target: Path, values: Mapping[str, object]) -> None:
    template = files("headstart.flower.deploy") / "templates" / f"{source}.jinja"
    page = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    page.filters["toml"] = as_toml
    write_text(target, page.from_string(template.read_text(encoding="utf-8")).render(**values))
    if source.endswith(".sh"):
        os.chmod(target, 0o755)
