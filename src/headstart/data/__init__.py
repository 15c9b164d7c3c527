"""Data of many clients: sources, partitions and the user's own files.

>>> from headstart import data
>>> digits = data.load("digits").split(data.class_groups(clients=20), new_clients=4, seed=0)
>>> digits.clients, digits.new_clients, digits.schema.shape
(20, 4, (8, 8, 1))
"""

from __future__ import annotations

from headstart.data._dataset_summary import describe
from headstart.data._example_files import read_examples, write_examples
from headstart.data._example_pool import Pool
from headstart.data._federated import ClientData, FederatedDataset, from_clients
from headstart.data._partition import (
    PARTITIONS,
    Partition,
    class_groups,
    dirichlet,
    dirichlet_labels,
    iid,
    natural,
    shards,
)
from headstart.data._schema import Schema
from headstart.data._store import StoreWriter, open_store, write_store
from headstart.data._user_data import read_folder, read_table
from headstart.data.sources import SOURCES
from headstart.data.sources import find_source as _find_source
from headstart.data.sources._source import Source
from headstart.data.sources._synthetic import Synthetic

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "ClientData",
    "FederatedDataset",
    "Partition",
    "Pool",
    "Schema",
    "Source",
    "StoreWriter",
    "Synthetic",
    "class_groups",
    "describe",
    "dirichlet",
    "dirichlet_labels",
    "from_clients",
    "iid",
    "load",
    "natural",
    "open_store",
    "read_examples",
    "read_folder",
    "read_table",
    "shards",
    "write_examples",
    "write_store",
]


def load(name: str) -> Pool:
    """Return the examples of a source by its name; ``SOURCES`` lists them.

    >>> load("digits").x.shape
    (1797, 8, 8, 1)
    """
    return _find_source(name, "source").load()
