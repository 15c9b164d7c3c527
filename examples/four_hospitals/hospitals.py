"""Which hospitals take part, and each hospital's own file of patients."""

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
"""The smallest hospital, and the most different: 123 patients, 93 % of them ill, none with a
cholesterol value. Alone it can learn the least, and the others' model fits it least."""
FILE = "patients.csv"


def load() -> Pool:
    """Return the patients of all hospitals, or raise an error that says how to get them."""
    try:
        return hs.data.load(SOURCE)
    except DataError as error:
        raise DataError(f"{error}; with a connection: headstart data get {SOURCE}") from None


def training(pool: Pool) -> tuple[str, ...]:
    """Return the hospitals that take part from the beginning."""
    return tuple(name for name in pool.owner_names if name != LATE)


def write_patients(pool: Pool, name: str, site: Path) -> None:
    """Write a hospital's patients to its own folder, and the file name to its ``site.toml``."""
    assert pool.owner is not None
    mine = pool.owner == list(pool.owner_names).index(name)
    write_examples(site / FILE, pool.x[mine], pool.y[mine], pool.schema)
    edit(site / "site.toml", "data", f'"{FILE}"')


def edit(settings: Path, option: str, value: str) -> None:
    """Change one option of a TOML file that ``headstart federate init`` wrote."""
    text, replaced = re.subn(
        rf"^{option} = .*$", f"{option} = {value}", settings.read_text(encoding="utf-8"), flags=re.M
    )
    if replaced != 1:
        raise DataError(f"{settings} has {replaced} lines that begin with '{option} =', not 1")
    write_text(settings, text)


def read_as_sites(folder: Path, names: Sequence[str], schema: Schema) -> FederatedDataset:
    """Return the data of all sites of a federation as one data set; the last site joins later."""
    sites = [SiteConfig.read(folder / "sites" / name / "site.toml") for name in names]
    parts = [read_site_data(site, schema).client(0) for site in sites]
    return together(parts, schema, known=len(parts) - 1)


def together(
    parts: Sequence[ClientData], schema: Schema, *, known: int | None = None
) -> FederatedDataset:
    """Combine hospitals into one federated data set; the first ``known`` train, by default all."""
    return from_clients(
        [(part.x_train, part.y_train, part.x_test, part.y_test) for part in parts],
        schema,
        new_clients=0 if known is None else len(parts) - known,
        names=[part.name for part in parts],
    )


def facts(pool: Pool) -> dict[str, dict[str, float]]:
    """Return patients, share with disease and share of missing values (of 13) by hospital."""
    assert pool.owner is not None
    by_hospital = {}
    for number, name in enumerate(pool.owner_names):
        mine = pool.owner == number
        by_hospital[name] = {
            "patients": int(np.sum(mine)),
            "ill": float(np.mean(pool.y[mine])),
            "missing": missing(pool.x[mine], pool.schema.feature_names),
        }
    return by_hospital


def missing(x: np.ndarray, columns: Sequence[str]) -> float:
    """Return the share of clinical values that are missing.

    A missing number has a 1 in its column ``…_missing``; a missing category has 0 in all columns.
    """
    values = [c for c in columns if "=" not in c and not c.endswith("_missing")]
    categories = sorted({c.partition("=")[0] for c in columns if "=" in c})
    absent = np.sum([x[:, n] for n, c in enumerate(columns) if c.endswith("_missing")])
    for category in categories:
        own = [n for n, c in enumerate(columns) if c.startswith(f"{category}=")]
        absent += np.sum(x[:, own].sum(axis=1) == 0)
    return float(absent / (len(x) * (len(values) + len(categories))))
