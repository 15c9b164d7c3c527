"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the experiment, such as algorithm.inner_lr=0.05. Repeatable.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; must be new or empty.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Devices = Annotated[
    int | None,
    typer.Option(help="Number of JAX devices to split the CPU into; default: one per core."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="How a device processes its clients: mapped, vmapped, or either with a group size, "
        "such as vmapped:16; default: chosen by the size of the network.",
    ),
]
Page = Annotated[bool, typer.Option("--report/--no-report", help="Also write the HTML page.")]
