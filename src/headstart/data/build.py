"""From the ``[data]`` table of an experiment file to a data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart import options
from headstart.data.federated import FederatedDataset
from headstart.data.partition import PARTITIONS, Partition, options_of
from headstart.data.pool import Pool, check_split
from headstart.data.sources import SOURCES
from headstart.errors import ConfigError


@dataclass(frozen=True)
class DataOptions:
    """The options every source shares; a partition's own stand beside them."""

    source: str | None = None
    path: str | None = None
    """A folder with a file per client, or one table with a column that names the client."""
    partition: str | None = None
    new_clients: int | None = None
    test_fraction: float = 0.2
    min_examples: int | None = None
    label: str = "label"
    client: str = "client"
    classes: int | None = None
    standardize: bool = False
    own_labels: bool = False
    """Every client names the classes in its own way."""


_SHARED = tuple(f.name for f in dataclasses.fields(DataOptions))
_OWN_FILES = ("label", "client", "classes", "standardize")
"""Options that only make sense for the user's own files."""


def resolve(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with every default filled in; options that stay open (None) are absent.

    >>> resolve({"source": "digits", "test_fraction": 0.25})["clients"]
    20
    >>> resolve(resolve({})) == resolve({})
    True
    """
    shared, partition = _parse(table)
    found = options.as_table(shared) | options.as_table(partition)
    own = shared.path is not None
    return {key: value for key, value in found.items() if own or key not in _OWN_FILES}


def build(table: Mapping[str, Any], *, seed: int) -> FederatedDataset:
    """The data set a ``[data]`` table describes; the seed alone decides what is random."""
    shared, partition = _parse(table)
    pool = _pool(shared)
    with _named():
        data = pool.split(
            partition,
            new_clients=shared.new_clients,
            test_fraction=shared.test_fraction,
            min_examples=shared.min_examples,
            seed=seed,
        )
    return data.with_own_labels(seed) if shared.own_labels else data


def _parse(table: Mapping[str, Any]) -> tuple[DataOptions, Partition]:
    """Both halves of the table, checked, with the defaults that depend on one another."""
    given = {key: value for key, value in table.items() if value is not None}
    first = {key: given[key] for key in _SHARED if key in given}
    shared = options.build(DataOptions, first, "data")
    if shared.source is None and shared.path is None:
        shared = dataclasses.replace(shared, source="digits")
    _check_origin(shared, given)
    name = shared.partition or _default_partition(shared)
    cls = options.choose(PARTITIONS, name, "data.partition")
    _refuse_strange(given, name, cls)
    with _named():
        partition = options.build(cls, {k: v for k, v in given.items() if k not in _SHARED}, "data")
        check_split(shared.test_fraction, shared.min_examples, 0)
    new = _new_clients(shared, partition)
    return dataclasses.replace(shared, partition=name, new_clients=new), partition


def _check_origin(shared: DataOptions, given: Mapping[str, Any]) -> None:
    if shared.path is not None and shared.source is not None:
        raise ConfigError(
            f"data.source={shared.source!r} and data.path={shared.path!r} exclude each other; "
            "keep one"
        )
    if shared.classes is not None and shared.classes < 2:
        raise ConfigError(f"data.classes={shared.classes} must be at least 2")
    if shared.path is not None:
        if not shared.path.strip():
            raise ConfigError("data.path is empty; give a folder or a table")
        return
    options.choose(SOURCES, str(shared.source), "data.source")
    for key in _OWN_FILES:
        if key in given:
            raise ConfigError(
                f"data.{key} is for your own files; leave it out with "
                f"data.source={shared.source!r}, or give data.path"
            )


def _default_partition(shared: DataOptions) -> str:
    own_clients = shared.path is not None or SOURCES[str(shared.source)].natural
    return "natural" if own_clients else "class-groups"


def _refuse_strange(given: Mapping[str, Any], name: str, cls: type[Partition]) -> None:
    """An option of another partition gets told so; anything else its nearest match."""
    known = [*_SHARED, *options_of(cls)]
    for key in given:
        owners = [other for other, its in PARTITIONS.items() if key in options_of(its)]
        if key not in known and owners:
            raise ConfigError(
                f"data.{key} is not an option of partition {name!r}; it belongs to "
                f"{', '.join(owners)} (set data.partition)"
            )
    if name == "natural" and "source" in given and not SOURCES[given["source"]].natural:
        raise ConfigError(
            f"data.partition='natural': {given['source']} does not say whose its examples are; "
            f"use one of {', '.join(p for p in PARTITIONS if p != 'natural')}"
        )
    options.refuse_unknown(given, known, "data")


def _new_clients(shared: DataOptions, partition: Partition) -> int | None:
    """The number of new clients as far as it is known before any data are read.

    The embedded digits keep every fifth client out when no partition is named, so that the first
    run of all shows what the method does for a client that was never there.
    """
    clients = getattr(partition, "clients", None)
    new = shared.new_clients
    if new is None and clients is not None:
        first_run = shared.source == "digits" and shared.partition is None
        new = clients // 5 if first_run else 0
    if new is not None and (new < 0 or (clients is not None and new >= clients)):
        most = "" if clients is None else f" and less than data.clients={clients}"
        raise ConfigError(f"data.new_clients={new} must be at least 0{most}")
    return new


def _pool(shared: DataOptions) -> Pool:
    if shared.path is None:
        return SOURCES[str(shared.source)].load()
    from headstart.data.tables import read_path

    return read_path(
        _expanded(shared.path),
        label=shared.label,
        client=shared.client,
        natural=shared.partition == "natural",
        classes=shared.classes,
        standardize=shared.standardize,
    )


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"data.path={path!r} names a home folder that is not there") from None


@contextmanager
def _named() -> Iterator[None]:
    """Messages of parts that do not know of the table name their option as ``data.…``."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("data.") else f"data.{text}") from None
