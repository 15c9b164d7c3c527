"""``headstart data``: list, describe, download and export data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart._cli import stores
from headstart._cli.datasets import Seed, Settings, Target, build

if TYPE_CHECKING:
    from rich.table import Table

    from headstart.data import FederatedDataset

app = typer.Typer(
    no_args_is_help=True, help="List, describe, download, export, pack and generate data."
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SHOWN_CLIENTS = 30
_SHOWN_CLASSES = 16
_LISTED_CLIENTS = 10_000
"""With more clients than this, the JSON has only their number and size range."""


@app.command("list")
def list_sources(as_json: Json = False) -> None:
    """List the named data sets and whether their files are on this machine.

    Example: headstart data list
    """
    from headstart._extensions import available_names
    from headstart.data import SOURCES

    rows = [_source_row(name) for name in available_names("source", SOURCES)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = _make_table("source", "what", "clients", "here")
    for row in rows:
        here = "yes" if row["available"] else f"headstart data get {row['name']}"
        table.add_row(row["name"], row["summary"], row["clients"], here)
    _print_table(table)


@app.command()
def describe(
    target: Target = None, settings: Settings = None, seed: Seed = None, as_json: Json = False
) -> None:
    """Show the clients of a data set: their sizes, their classes and the columns in use.

    Example: headstart data describe mnist --set clients=50 --set a=196
    """
    from headstart.data._dataset_summary import count_classes
    from headstart.data._dataset_summary import describe as describe_data

    table, data = build(target, settings, seed)
    small = data.clients <= _SHOWN_CLIENTS and data.schema.classes <= _SHOWN_CLASSES
    about = {"options": table, **describe_data(data), **_licence(table.get("source"))}
    if as_json:
        few = data.clients <= _LISTED_CLIENTS
        rows = {"per_client": count_classes(data)} if few else {}
        typer.echo(json.dumps(about | rows, indent=2))
        return
    _print_table(_overview_table(about))
    if about["columns"]:
        _print_table(_columns_table(about["columns"]))
    if small:
        _print_table(_clients_table(data))


@app.command()
def get(source: Annotated[str, typer.Argument(help="A name from `headstart data list`.")]) -> None:
    """Find or download the files of a data set, verify them and print their paths.

    Example: headstart data get mnist
    """
    from rich.console import Console

    from headstart.data import _downloads as downloads
    from headstart.data.sources import find_source

    known = find_source(source, "source")
    with Console(stderr=True).status(f"getting {source} …"):
        paths = downloads.get(known.files)
        known.load()
    for path in dict.fromkeys(paths):
        typer.echo(path)
    typer.echo(f"{source} is complete" if paths else f"{source} comes with Headstart")


@app.command()
def export(
    client: Annotated[str, typer.Option(help="Number or name of the client.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .npz.")],
    target: Target = None,
    part: Annotated[str, typer.Option(help="all, train or test (held out).")] = "all",
    settings: Settings = None,
    seed: Seed = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write one client's examples to a file that `headstart personalize` can read.

    Example: headstart data export digits --client 17 --out client17.csv
    """
    import numpy as np

    from headstart.data import write_examples
    from headstart.errors import OutputError
    from headstart.options import require_one_of

    require_one_of(("all", "train", "test"), part=part)
    if out.exists() and not force:
        raise OutputError(f"{out} exists already; use --force to replace it")
    table, data = build(target, settings, seed)
    one = data.client(data.number_of(client))
    splits = {"train": (one.x_train, one.y_train), "test": (one.x_test, one.y_test)}
    chosen = list(splits.values()) if part == "all" else [splits[part]]
    x, y = (np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
    write_examples(out, x, y, data.schema, label=table.get("label", "label"))
    typer.echo(f"{out}: {len(y)} examples of client {one.name}")


app.command()(stores.pack)
app.command()(stores.synthetic)
app.command()(stores.check)


def _source_row(name: str) -> dict[str, Any]:
    from headstart.data import _downloads as downloads
    from headstart.data.sources import find_source

    source = find_source(name, "source")
    return {
        "name": name,
        "summary": source.summary,
        "clients": source.clients,
        "available": not source.missing(),
        "folders": list(dict.fromkeys(str(downloads.home(f.folder)) for f in source.files)),
        "home": source.home,
        "licence": source.licence,
        "citation": source.citation,
    }


def _licence(source: str | None) -> dict[str, str]:
    from headstart.data.sources import find_source

    if source is None:
        return {}
    known = find_source(source, "data.source")
    return {"licence": known.licence, "citation": known.citation, "home": known.home}


def _overview_table(about: dict[str, Any]) -> Table:
    table = _make_table("", about["description"])
    for key, value in about.items():
        if key in ("description", "options", "columns"):
            continue
        if isinstance(value, dict):
            low, high, middle = (_format_number(value[key]) for key in ("min", "max", "median"))
            value = f"{low} … {high}, median {middle}"
        table.add_row(key.replace("_", " "), str(value))
    options = ", ".join(f"{key}={value}" for key, value in about["options"].items())
    table.add_row("options", options)
    return table


def _format_number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _columns_table(columns: list[dict[str, Any]]) -> Table:
    table = _make_table("column in use", "smallest", "largest")
    for column in columns:
        table.add_row(column["name"], f"{column['min']:g}", f"{column['max']:g}")
    return table


def _clients_table(data: FederatedDataset) -> Table:
    from headstart.data._dataset_summary import count_classes

    names = data.schema.class_names or tuple(map(str, range(data.schema.classes)))
    table = _make_table("client", "", "train", "held out", *names)
    for row in count_classes(data):
        counts = [str(n) if n else "·" for n in row["labels"]]
        new = "new" if row["new"] else ""
        table.add_row(row["name"], new, str(row["train"]), str(row["held_out"]), *counts)
    return table


def _make_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print_table(table: Table) -> None:
    from rich.console import Console

    Console(markup=False, highlight=False).print(table)
