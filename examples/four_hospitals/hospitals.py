"""Who takes part, and every hospital's own file of patients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import headstart as hs
from headstart._atomic_files import write_text
from headstart.data._example_files import write_examples
from headstart.data._example_pool import Pool
from headstart.data._federated import ClientData, FederatedDataset, from_clients
from headstart.data._schema import Schema
from headstart.errors import DataError
from headstart.flower._federation_config import SiteConfig
from headstart.flower.site._site_data import read_site_data

SOURCE = "heart-disease"
EXPERIMENT = Path(__file__).parent / "hospitals.toml"
LATE = "switzerland"
"""The smallest and the strangest: 123 patients, 93 % of them ill, no cholesterol known of any.
It has the least to learn from alone, and the others' model fits it least."""
FILE = "patients.csv"


def load() -> Pool:
    """The patients of all hospitals, or one line that says how to get them."""
    try:
        return hs.data.load(SOURCE)
    except DataError as error:
        raise DataError(f"{error}; with a connection: headstart data get {SOURCE}") from None


def training(pool: Pool) -> tuple[str, ...]:
    """The hospitals that are there from the beginning."""
    return tuple(name for name in pool.owner_names if name != LATE)


def write_patients(pool: Pool, name: str, site: Path) -> None:
    """Put a hospital's patients into its own folder, and name the file in its ``site.toml``."""
    assert pool.owner is not None
    mine = pool.owner == list(pool.owner_names).index(name)
    write_examples(site / FILE, pool.x[mine], pool.y[mine], pool.schema)
    edit(site / "site.toml", "data", f'"{FILE}"')


def edit(settings: Path, option: str, value: str) -> None:
    """Change one option of a TOML file that ``headstart federate init`` wrote."""
    text, found = re.subn(
        rf"^{option} = .*$", f"{option} = {value}", settings.read_text(encoding="utf-8"), flags=re.M
    )
    if found != 1:
        raise DataError(f"{settings} has {found} lines that begin with '{option} ='; not 1")
    write_text(settings, text)


def read_as_sites(folder: Path, names: Sequence[str], schema: Schema) -> FederatedDataset:
    """What the sites of a federation read, in one data set; the last of them joins later."""
    sites = [SiteConfig.read(folder / "sites" / name / "site.toml") for name in names]
    parts = [read_site_data(site, schema).client(0) for site in sites]
    return together(parts, schema, known=len(parts) - 1)


def together(
    parts: Sequence[ClientData], schema: Schema, *, known: int | None = None
) -> FederatedDataset:
    """Hospitals as one federated data set; the first ones (by default all) train."""
    return from_clients(
        [(part.x_train, part.y_train, part.x_test, part.y_test) for part in parts],
        schema,
        new_clients=0 if known is None else len(parts) - known,
        names=[part.name for part in parts],
    )


def facts(pool: Pool) -> dict[str, dict[str, float]]:
    """Per hospital: patients, share with disease, share of the 13 values that are missing."""
    assert pool.owner is not None
    found = {}
    for number, name in enumerate(pool.owner_names):
        mine = pool.owner == number
        found[name] = {
            "patients": int(np.sum(mine)),
            "ill": float(np.mean(pool.y[mine])),
            "missing": missing(pool.x[mine], pool.schema.feature_names),
        }
    return found


def missing(x: np.ndarray, columns: Sequence[str]) -> float:
    """Share of clinical values that are not there.

    A missing number has a companion column that is 1, a missing category is 0 in all its columns.
    """
    values = [c for c in columns if "=" not in c and not c.endswith("_missing")]
    categories = sorted({c.partition("=")[0] for c in columns if "=" in c})
    absent = np.sum([x[:, n] for n, c in enumerate(columns) if c.endswith("_missing")])
    for category in categories:
        own = [n for n, c in enumerate(columns) if c.startswith(f"{category}=")]
        absent += np.sum(x[:, own].sum(axis=1) == 0)
    return float(absent / (len(x) * (len(values) + len(categories))))
