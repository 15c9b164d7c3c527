"""``headstart report``: make a page from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of one comparison.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: report.html in the folder.")
    ] = None,
) -> None:
    """Make a self-contained HTML page, and the figures as PNG and SVG.

    Example:

      headstart report runs/digits-per-fedavg-001
    """
    from headstart.report import make_report

    typer.echo(f"page: {make_report(runs, out)}")
