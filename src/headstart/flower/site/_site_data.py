"""A site's examples: its own file, or a folder of mapped arrays."""

from __future__ import annotations

from pathlib import Path

from headstart._experiments.personalization import split_rows
from headstart.data._example_files import read_examples
from headstart.data._federated import FederatedDataset, from_clients
from headstart.data._schema import Schema
from headstart.data._store import is_store, open_store
from headstart.errors import DataError
from headstart.flower._federation_config import SiteConfig


def read_site_data(config: SiteConfig, schema: Schema) -> FederatedDataset:
    """Read a site's file or folder as a data set with one client."""
    path = Path(config.data)
    if is_store(path):
        data = open_store(path)
        if data.clients != 1:
            raise DataError(f"{path} holds {data.clients} clients; a site has one")
        if _form(data.schema) != _form(schema):
            raise DataError(
                f"{path} holds examples of {_describe(data.schema)}; the federation's have "
                f"{_describe(schema)}"
            )
        return data
    x, y = read_examples(path, schema, label=config.label)
    train, test = split_rows(len(y), config.test_fraction, config.split_seed, path)
    split = (x[train], y[train], x[test], y[test])
    return from_clients([split], schema, names=[config.name])


def _form(schema: Schema) -> tuple[tuple[int, ...], str, int]:
    return schema.shape, schema.target, schema.outputs


def _describe(schema: Schema) -> str:
    targets = {"class": "classes", "number": "numbers to predict", "labels": "labels"}
    return f"shape {schema.shape} with {schema.outputs} {targets[schema.target]}"


class CachedSiteData:
    """A site's examples, read again when the file or the schema changes."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self._stamp: tuple[int, int, Schema] | None = None
        self._data: FederatedDataset | None = None

    def read(self, schema: Schema) -> FederatedDataset:
        """Return the examples as a data set with one client."""
        path = Path(self.config.data)
        try:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size, schema)
        except OSError:
            raise DataError(f"{path} does not exist; set data in site.toml") from None
        if self._data is None or self._stamp != stamp:
            self._data, self._stamp = read_site_data(self.config, schema), stamp
        return self._data
