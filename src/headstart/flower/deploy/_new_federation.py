"""``headstart federate init``: from an experiment and the names of sites to a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from headstart._experiments.configuration import Experiment, load_experiment
from headstart.data._federated import FederatedDataset
from headstart.data._schema import Schema
from headstart.data._table_files import Columns
from headstart.data._user_data import read_path
from headstart.errors import ConfigError
from headstart.flower._federation_config import FederationConfig
from headstart.flower.deploy._federation_folder import write_federation, write_site_data
from headstart.models.objectives import find_target


def make_federation(
    folder: Path,
    experiment: Path | None,
    settings: Sequence[str],
    *,
    sites: tuple[str, ...] | None,
    late: tuple[str, ...],
    address: str,
    like: Path | None,
    label: str,
    schema_file: Path | None = None,
    min_sites: int | None = None,
    insecure: bool = False,
) -> FederationConfig:
    """Write the folder and return which sites are in it."""
    plan = load_experiment(experiment, settings)
    if sites is None:
        if like is not None or schema_file is not None or late:
            raise ConfigError(
                "--like, --schema and --late need --sites: the names of the sites that train"
            )
        return make_federation_of_clients(
            folder, plan, address=address, insecure=insecure, min_sites=min_sites
        )
    schema = _schema(plan, like, label, schema_file)
    least = min(2, len(sites)) if min_sites is None else min_sites
    federation = FederationConfig(
        address=address, sites=sites, late=late, min_sites=least, insecure=insecure
    )
    write_federation(folder, plan, schema, federation, own_data=True, label=label)
    return federation


def make_federation_of_clients(
    folder: Path, plan: Experiment, *, address: str, insecure: bool, min_sites: int | None = None
) -> FederationConfig:
    """Make every client of the experiment's data a site, with its examples."""
    data = plan.build_data()
    names = site_names(data)
    federation = FederationConfig(
        address=address,
        sites=tuple(names[: data.known_clients]),
        late=tuple(names[data.known_clients :]),
        min_sites=min(2, data.known_clients) if min_sites is None else min_sites,
        insecure=insecure,
    )
    write_federation(folder, plan, data.schema, federation, own_data=False)
    write_site_data(folder, names, data)
    return federation


def read_schema(path: Path) -> Schema:
    """Read a ``schema.json`` of a run or a federation."""
    try:
        return Schema.from_table(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a schema: {error}; use a run's schema.json") from None


def site_names(data: FederatedDataset) -> list[str]:
    """Return the clients' own names if they can be names of sites, else numbers."""
    own = [data.name(client) for client in range(data.clients)]
    try:
        FederationConfig(sites=tuple(own), min_sites=1)
        named = data.names is not None
    except ConfigError:
        named = False
    return own if named else [f"site-{client}" for client in range(data.clients)]


def _schema(plan: Experiment, like: Path | None, label: str, schema: Path | None) -> Schema:
    """Return the given schema, that of the sample file, or that of the experiment's data set."""
    if schema is not None:
        return read_schema(schema)
    if like is None:
        return plan.build_data().schema
    target = find_target(plan.objective)
    return read_path(like, Columns(label, "client"), natural=False, target=target).schema
