"""Small federations for tests: the folder, the sites, and a grid without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flower.local_grid import LocalGrid

from headstart._experiments.configuration import Experiment
from headstart.flower._federation_config import FederationConfig
from headstart.flower.deploy._federation_folder import write_federation, write_site_data
from headstart.flower.site.client_app import app

TABLE: dict[str, Any] = {
    "seed": 3,
    "rounds": 3,
    "participation": 0.67,
    "data": {"source": "digits", "partition": "iid", "clients": 4, "new_clients": 1},
    "model": {"name": "mlp", "hidden": [5]},
    "algorithm": {"name": "per-fedavg", "local_steps": 2, "batch_size": 8},
    "evaluation": {"every": 2, "adapt_steps": 2, "curve_steps": 3},
}


def experiment(**changes: Any) -> Experiment:
    """The small experiment with some sections changed."""
    table = {
        key: {**value, **changes.pop(key, {})} if isinstance(value, Mapping) else value
        for key, value in TABLE.items()
    }
    return Experiment.from_table({**table, **changes})


def federation_in(folder: Path, plan: Experiment, **options: Any) -> LocalGrid:
    """A federation's folder with the experiment's clients as sites; the grid that joins them."""
    data = plan.build_data()
    names = [f"site-{number}" for number in range(data.clients)]
    known = names[: data.known_clients]
    late = names[data.known_clients :]
    config = FederationConfig(sites=tuple(known), late=tuple(late), **options)
    write_federation(folder, plan, data.schema, config, own_data=False)
    write_site_data(folder, names, data)
    sites = {name: folder / "sites" / name / "site.toml" for name in names}
    return LocalGrid(dict.fromkeys(names, app), sites)
