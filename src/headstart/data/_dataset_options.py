"""From the ``[data]`` table of an experiment file to a data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart import options
from headstart.data._example_pool import Pool, check_split
from headstart.data._federated import FederatedDataset
from headstart.data._partition import PARTITIONS, Natural, Partition, option_names
from headstart.data._schema import Target
from headstart.data._store import is_store, open_store
from headstart.data.sources import SOURCES, find_source
from headstart.data.sources._source import Maker
from headstart.errors import ConfigError


@dataclass(frozen=True)
class DataOptions:
    """The options every source shares; a partition adds its own."""

    source: str | None = None
    path: str | None = None
    """A folder with a file per client, a table with a column that names the client, or a store."""
    given: str | None = None
    """A description of data that were given from Python: they cannot be built from a file."""
    stored: bool | None = None
    """Whether the path is a store; by default, whether it looks like one."""
    partition: str | None = None
    new_clients: int | None = None
    test_fraction: float = 0.2
    min_examples: int | None = None
    label: str = "label"
    client: str = "client"
    features: tuple[str, ...] | None = None
    """Columns to learn from; by default all but the label and the client."""
    drop: tuple[str, ...] | None = None
    """Columns to leave out."""
    classes: int | None = None
    standardize: bool = False
    own_labels: bool = False
    """Every client names the classes in its own way."""


_SHARED = tuple(f.name for f in dataclasses.fields(DataOptions))
_OWN_FILES = ("label", "client", "features", "drop", "classes", "standardize", "stored")
"""Options that only make sense for the user's own files."""
_STORE = ("path", "stored")
"""Options of a data set that is split already."""

Plan = Partition | Maker
"""The origin of clients: assigned from a pool, or generated."""


def resolve_data_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with every default filled in; options that stay open (None) are absent.

    >>> resolve_data_options({"source": "digits", "test_fraction": 0.25})["clients"]
    20
    >>> resolve_data_options(resolve_data_options({})) == resolve_data_options({})
    True
    """
    shared, plan = _parse(table)
    found = options.to_table(shared)
    if shared.given is not None:
        return {"given": shared.given}
    if shared.stored:
        return {key: found[key] for key in _STORE}
    own = shared.path is not None
    kept = {key: value for key, value in found.items() if own or key not in _OWN_FILES}
    return kept | options.to_table(plan)


def build_dataset(
    table: Mapping[str, Any], *, seed: int, target: Target = "class"
) -> FederatedDataset:
    """The data set a ``[data]`` table describes; the seed alone decides what is random.

    ``target`` says how labels of the user's own files are read.
    """
    shared, plan = _parse(table)
    if shared.given is not None:
        raise ConfigError(
            f"the data of this run ({shared.given}) were given from Python and cannot be built "
            "from its configuration; give them again: data=…"
        )
    if shared.stored:
        return open_store(_expanded(str(shared.path)))
    data = _split(shared, plan, seed, target)
    return data.with_own_labels(seed) if shared.own_labels else data


def _split(shared: DataOptions, plan: Plan, seed: int, target: Target) -> FederatedDataset:
    new, fraction, least = shared.new_clients, shared.test_fraction, shared.min_examples
    if isinstance(plan, Maker):
        with _named():
            return plan.dataset(new_clients=new or 0, test_fraction=fraction, seed=seed)
    pool = _pool(shared, target)
    with _named():
        return pool.split(
            plan, new_clients=new, test_fraction=fraction, min_examples=least, seed=seed
        )


def _parse(table: Mapping[str, Any]) -> tuple[DataOptions, Plan]:
    """Both halves of the table, checked, with the defaults that depend on one another."""
    given = {key: value for key, value in table.items() if value is not None}
    maker = _maker(given.get("source"))
    own = option_names(maker) if maker else []
    first = {key: given[key] for key in _SHARED if key in given and key not in own}
    shared = options.build_from_table(DataOptions, first, "data")
    if shared.given is not None:
        options.refuse_unknown(given, ("given",), "data")
        return shared, Natural()
    if shared.source is None and shared.path is None:
        shared = dataclasses.replace(shared, source="digits")
    _check_origin(shared, first)
    if shared.stored or (shared.stored is None and _holds_store(shared.path)):
        _refuse_changes(given)
        return dataclasses.replace(shared, stored=True), Natural()
    name = shared.partition or _default_partition(shared)
    cls: type[Plan] = options.choose(PARTITIONS, name, "data.partition")
    if maker:
        _refuse_dealing(shared)
        cls = maker
    _refuse_strange(given, name, cls)
    with _named():
        plan = options.build_from_table(
            cls, {k: v for k, v in given.items() if k not in first}, "data"
        )
        check_split(shared.test_fraction, shared.min_examples, 0)
    new = _new_clients(shared, plan)
    return dataclasses.replace(shared, partition=name, new_clients=new), plan


def _maker(source: Any) -> type[Maker] | None:
    """What makes the clients of the source, if they are made."""
    return find_source(source, "data.source").maker if isinstance(source, str) else None


def _holds_store(path: str | None) -> bool:
    try:
        return path is not None and is_store(Path(path).expanduser())
    except RuntimeError:  # a home folder that is not there; said when the data are read
        return False


def _refuse_changes(given: Mapping[str, Any]) -> None:
    """Reject options that would split a store again: it is already split."""
    known = [*_SHARED, *(name for plan in _plans() for name in option_names(plan))]
    options.refuse_unknown(given, known, "data")
    for key in given:
        if key not in _STORE:
            raise ConfigError(
                f"data.{key} cannot be set for {given['path']}: it holds a data set that is split "
                "already (store.json); leave it out, or pack the original data again with it"
            )


def _refuse_dealing(shared: DataOptions) -> None:
    for key in ("partition", "min_examples"):
        value = getattr(shared, key)
        if value not in (None, "natural"):
            raise ConfigError(
                f"data.{key}={value!r} is not for data.source={shared.source!r}, which makes its "
                "clients itself; leave it out"
            )


def _plans() -> list[type[Plan]]:
    return [*PARTITIONS.values(), *(s.maker for s in SOURCES.values() if s.maker)]


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
    for key in _OWN_FILES:
        if key in given:
            raise ConfigError(
                f"data.{key} is for your own files; leave it out with "
                f"data.source={shared.source!r}, or give data.path"
            )


def _default_partition(shared: DataOptions) -> str:
    own_clients = shared.path is not None or find_source(str(shared.source), "data.source").natural
    return "natural" if own_clients else "class-groups"


def _refuse_strange(given: Mapping[str, Any], name: str, cls: type[Plan]) -> None:
    """Refuse options that do not apply, naming the partition or source they belong to."""
    known = [*_SHARED, *option_names(cls)]
    for key in given:
        owners = [other for other, its in PARTITIONS.items() if key in option_names(its)]
        if key not in known and owners:
            raise ConfigError(
                f"data.{key} is not an option of partition {name!r}; it belongs to "
                f"{', '.join(owners)} (set data.partition)"
            )
        makers = [source for source, its in SOURCES.items() if key in option_names(its.maker)]
        if key not in known and makers:
            raise ConfigError(f"data.{key} is an option of data.source={makers[0]!r} only")
    source = given.get("source")
    if name == "natural" and source and not find_source(source, "data.source").natural:
        raise ConfigError(
            f"data.partition='natural': {given['source']} does not say whose its examples are; "
            f"use one of {', '.join(p for p in PARTITIONS if p != 'natural')}"
        )
    options.refuse_unknown(given, known, "data")


def _new_clients(shared: DataOptions, plan: Plan) -> int | None:
    """The number of new clients as far as it is known before any data are read.

    The embedded digits keep every fifth client out when no partition is named, so that the first
    run of all shows what the method does for a client that was never there.
    """
    clients = getattr(plan, "clients", None)
    new = shared.new_clients
    if new is None and clients is not None:
        first_run = shared.source == "digits" and shared.partition is None
        new = clients // 5 if first_run else 0
    if new is not None and (new < 0 or (clients is not None and new >= clients)):
        most = "" if clients is None else f" and less than data.clients={clients}"
        raise ConfigError(f"data.new_clients={new} must be at least 0{most}")
    return new


def _pool(shared: DataOptions, target: Target) -> Pool:
    if shared.path is None:
        return find_source(str(shared.source), "data.source").load()
    from headstart.data._table_files import Columns
    from headstart.data._user_data import read_path

    return read_path(
        _expanded(shared.path),
        Columns(shared.label, shared.client, shared.features or (), shared.drop or ()),
        natural=shared.partition == "natural",
        classes=shared.classes,
        standardize=shared.standardize,
        target=target,
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
