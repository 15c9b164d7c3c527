"""From an experiment and the names of sites to a federation's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.data.federated import FederatedDataset, Schema
from headstart.data.tables import read_path
from headstart.errors import ConfigError
from headstart.flower.folder import give_data, write_federation
from headstart.flower.settings import FederationConfig
from headstart.runs.config import Experiment, load_experiment


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
    insecure: bool = False,
) -> FederationConfig:
    """Write the folder; who is in it."""
    plan = load_experiment(experiment, settings)
    if sites is None:
        if like is not None or late:
            raise ConfigError("--like and --late need --sites: the names of the sites that train")
        return federation_of_clients(folder, plan, address=address, insecure=insecure)
    schema = _schema(plan, like, label)
    federation = FederationConfig(
        address=address, sites=sites, late=late, min_sites=min(2, len(sites)), insecure=insecure
    )
    write_federation(folder, plan, schema, federation, own_data=True, label=label)
    return federation


def federation_of_clients(
    folder: Path, plan: Experiment, *, address: str, insecure: bool
) -> FederationConfig:
    """Every client of the experiment's data becomes a site and gets its examples."""
    data = plan.build_data()
    names = site_names(data)
    federation = FederationConfig(
        address=address,
        sites=tuple(names[: data.known_clients]),
        late=tuple(names[data.known_clients :]),
        min_sites=min(2, data.known_clients),
        insecure=insecure,
    )
    write_federation(folder, plan, data.schema, federation, own_data=False)
    give_data(folder, names, data)
    return federation


def site_names(data: FederatedDataset) -> list[str]:
    """The clients' own names where they can be names of sites, else numbers."""
    own = [data.name(client) for client in range(data.clients)]
    try:
        FederationConfig(sites=tuple(own), min_sites=1)
        named = data.names is not None
    except ConfigError:
        named = False
    return own if named else [f"site-{client}" for client in range(data.clients)]


def _schema(plan: Experiment, like: Path | None, label: str) -> Schema:
    """Of the sample file, or of the data set the experiment names."""
    if like is None:
        return plan.build_data().schema
    pool = read_path(
        like, label=label, client="client", natural=False, classes=None, standardize=False
    )
    return pool.schema
