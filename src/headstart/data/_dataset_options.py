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
    """A description of data passed in from Python, which cannot be built from a file."""
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
    own_labels: bool | float = False
    """Rename the classes of each client by a random permutation; a number: this share of them."""
    own_rotation: bool | float = False
    """Rotate the images of each client by an angle of its own, at most this many degrees."""

    def __post_init__(self) -> None:
        """Refuse a share that is none, and angles beyond half a turn."""
        if not 0 <= self.own_labels <= 1:
            raise ConfigError(
                f"data.own_labels={self.own_labels} must be true, false or a share between 0 and 1"
            )
        if self.own_rotation is True or not 0 <= self.own_rotation <= 180:
            raise ConfigError(
                f"data.own_rotation={self.own_rotation} must be a number of degrees between 0 "
                "(off) and 180"
            )


_SHARED = tuple(f.name for f in dataclasses.fields(DataOptions))
_OWN_FILES = ("label", "client", "features", "drop", "classes", "standardize", "stored")
"""Options that only make sense for the user's own files."""
_STORE = ("path", "stored")
"""Options of a data set that is already split."""

Plan = Partition | Maker
"""The origin of clients: assigned from a pool, or generated."""


def resolve_data_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with every default filled in, without the options that stay open (None).

    ``own_rotation`` appears only if it is set, so older experiments keep their fingerprints.

    >>> resolve_data_options({"source": "digits", "test_fraction": 0.25})["clients"]
    20
    >>> resolve_data_options(resolve_data_options({})) == resolve_data_options({})
    True
    """
    shared, plan = _parse(table)
    resolved = options.to_table(shared)
    if not shared.own_rotation:
        del resolved["own_rotation"]
    if shared.given is not None:
        return {"given": shared.given}
    if shared.stored:
        return {key: resolved[key] for key in _STORE}
    if shared.path is None:
        resolved = {key: value for key, value in resolved.items() if key not in _OWN_FILES}
    return resolved | options.to_table(plan)


def build_dataset(
    table: Mapping[str, Any], *, seed: int, target: Target = "class"
) -> FederatedDataset:
    """Build the data set that a ``[data]`` table describes; all randomness comes from the seed.

    ``target`` says how labels of the user's own files are read.
    """
    shared, plan = _parse(table)
    if shared.given is not None:
        raise ConfigError(
            f"the data of this run ({shared.given}) were given from Python and cannot be built "
            "from its configuration; pass them again: data=…"
        )
    if shared.stored:
        return open_store(_expand_path(str(shared.path)))
    data = _split(shared, plan, seed, target)
    if shared.own_labels:
        data = data.with_own_labels(seed, share=float(shared.own_labels))
    if shared.own_rotation:
        with _prefix_option_names():
            data = data.with_own_rotation(seed, degrees=shared.own_rotation)
    return data


def _split(shared: DataOptions, plan: Plan, seed: int, target: Target) -> FederatedDataset:
    new, fraction, least = shared.new_clients, shared.test_fraction, shared.min_examples
    if isinstance(plan, Maker):
        with _prefix_option_names():
            return plan.dataset(new_clients=new or 0, test_fraction=fraction, seed=seed)
    pool = _load_pool(shared, target)
    with _prefix_option_names():
        return pool.split(
            plan, new_clients=new, test_fraction=fraction, min_examples=least, seed=seed
        )


def _parse(table: Mapping[str, Any]) -> tuple[DataOptions, Plan]:
    """Parse and check both halves of the table, and fill in the defaults that depend on others."""
    given = {key: value for key, value in table.items() if value is not None}
    maker = _find_maker(given.get("source"))
    maker_options = option_names(maker) if maker else []
    shared_table = {k: given[k] for k in _SHARED if k in given and k not in maker_options}
    shared = options.build_from_table(DataOptions, shared_table, "data")
    if shared.given is not None:
        options.refuse_unknown(given, ("given",), "data")
        return shared, Natural()
    if shared.source is None and shared.path is None:
        shared = dataclasses.replace(shared, source="digits")
    _check_origin(shared, shared_table)
    if shared.stored or (shared.stored is None and _holds_store(shared.path)):
        _refuse_splitting_store(given)
        return dataclasses.replace(shared, stored=True), Natural()
    name = shared.partition or _default_partition(shared)
    cls: type[Plan] = options.choose(PARTITIONS, name, "data.partition")
    if maker:
        _refuse_partitioning(shared)
        cls = maker
    _refuse_inapplicable(given, name, cls)
    with _prefix_option_names():
        plan = options.build_from_table(
            cls, {k: v for k, v in given.items() if k not in shared_table}, "data"
        )
        check_split(shared.test_fraction, shared.min_examples, 0)
    new = _count_new_clients(shared, plan)
    return dataclasses.replace(shared, partition=name, new_clients=new), plan


def _find_maker(source: Any) -> type[Maker] | None:
    """Return the class that generates the source's clients; None if they come from files."""
    return find_source(source, "data.source").maker if isinstance(source, str) else None


def _holds_store(path: str | None) -> bool:
    try:
        return path is not None and is_store(Path(path).expanduser())
    except RuntimeError:  # an unknown home folder; reported when the data are read
        return False


def _refuse_splitting_store(given: Mapping[str, Any]) -> None:
    """Refuse options that would split a store again."""
    known = [*_SHARED, *(name for plan in _plans() for name in option_names(plan))]
    options.refuse_unknown(given, known, "data")
    for key in given:
        if key not in _STORE:
            raise ConfigError(
                f"data.{key} cannot be set for {given['path']}: it holds a data set that is "
                "already split (store.json); leave it out, or pack the original data again with it"
            )


def _refuse_partitioning(shared: DataOptions) -> None:
    for key in ("partition", "min_examples"):
        value = getattr(shared, key)
        if value not in (None, "natural"):
            raise ConfigError(
                f"data.{key}={value!r} does not apply to data.source={shared.source!r}, which "
                "generates its clients; leave it out"
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


def _refuse_inapplicable(given: Mapping[str, Any], name: str, cls: type[Plan]) -> None:
    """Refuse options that do not apply, naming the partition or source they belong to."""
    known = [*_SHARED, *option_names(cls)]
    for key in given:
        owners = [other for other, part in PARTITIONS.items() if key in option_names(part)]
        if key not in known and owners:
            raise ConfigError(
                f"data.{key} is not an option of partition {name!r}; it belongs to "
                f"{', '.join(owners)} (set data.partition)"
            )
        makers = [other for other, src in SOURCES.items() if key in option_names(src.maker)]
        if key not in known and makers:
            raise ConfigError(f"data.{key} is an option of data.source={makers[0]!r} only")
    source = given.get("source")
    if name == "natural" and source and not find_source(source, "data.source").natural:
        raise ConfigError(
            f"data.partition='natural': {source} does not name the client of each "
            f"example; use one of {', '.join(p for p in PARTITIONS if p != 'natural')}"
        )
    options.refuse_unknown(given, known, "data")


def _count_new_clients(shared: DataOptions, plan: Plan) -> int | None:
    """Return the number of new clients, or None if it depends on the data.

    The built-in digits keep one client in five out of training when no partition is named, so that
    a user's first run shows what the method does for a client that was not in training.
    """
    clients = getattr(plan, "clients", None)
    new = shared.new_clients
    if new is None and clients is not None:
        by_default = shared.source == "digits" and shared.partition is None
        new = clients // 5 if by_default else 0
    if new is not None and (new < 0 or (clients is not None and new >= clients)):
        most = "" if clients is None else f" and less than data.clients={clients}"
        raise ConfigError(f"data.new_clients={new} must be at least 0{most}")
    return new


def _load_pool(shared: DataOptions, target: Target) -> Pool:
    if shared.path is None:
        return find_source(str(shared.source), "data.source").load()
    from headstart.data._table_files import Columns
    from headstart.data._user_data import read_path

    return read_path(
        _expand_path(shared.path),
        Columns(shared.label, shared.client, shared.features or (), shared.drop or ()),
        natural=shared.partition == "natural",
        classes=shared.classes,
        standardize=shared.standardize,
        target=target,
    )


def _expand_path(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"data.path={path!r} names a home folder that does not exist") from None


@contextmanager
def _prefix_option_names() -> Iterator[None]:
    """Name options as ``data.…`` in the messages of code that does not know the table."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("data.") else f"data.{text}") from None
