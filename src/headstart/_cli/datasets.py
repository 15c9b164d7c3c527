"""Build the data set that a command names: a source, a folder, a table or an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headstart.data import FederatedDataset

Target = Annotated[
    str | None,
    typer.Argument(help="A source, a folder, a table or an experiment file; default: digits."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="An option of the data table, such as clients=50."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the split; default: the seed in the file, or 0.")
]


def build(
    target: str | None, settings: list[str] | None, seed: int | None
) -> tuple[dict[str, Any], FederatedDataset]:
    """Return the complete ``[data]`` table for a target, and its data."""
    from headstart._experiments.configuration import apply_setting
    from headstart.data import _dataset_options as dataset_options
    from headstart.errors import ConfigError
    from headstart.models.objectives import find_target, resolve_objective
    from headstart.options import convert

    table = target_table(target)
    for setting in settings or []:
        inside = setting.startswith(("data.", "objective.", "seed="))
        apply_setting(table, setting if inside else f"data.{setting}")
    if not isinstance(table.get("data", {}), dict):
        raise ConfigError("data must be a table: [data]")
    chosen = convert(int, table.get("seed", 0) if seed is None else seed, "seed")
    if chosen < 0:
        raise ConfigError(f"seed={chosen} must be at least 0")
    resolved = dataset_options.resolve_data_options(table.get("data", {}))
    labels = find_target(resolve_objective(table.get("objective", {})))
    return resolved, dataset_options.build_dataset(resolved, seed=chosen, target=labels)


def target_table(target: str | None) -> dict[str, Any]:
    """Return the experiment table for a source, a path or an experiment file."""
    from headstart._experiments.configuration import read_toml
    from headstart._extensions import available_names
    from headstart.data import SOURCES
    from headstart.errors import ConfigError

    if target is None:
        return {"data": {}}
    if target in SOURCES:
        return {"data": {"source": target}}
    if target.endswith(".toml"):
        return read_toml(Path(target))
    if Path(target).exists():
        return {"data": {"path": target}}
    sources = available_names("source", SOURCES)
    if target in sources or ":" in target:
        return {"data": {"source": target}}
    raise ConfigError(
        f"{target!r} is not a source, a file or a folder; the sources are {', '.join(sources)}"
    )
