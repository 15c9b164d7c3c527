"""``headstart reproduce``: the papers' experiments, from raw data to a page with verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which experiment; none: list them and what is done.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted up from 0.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version on the embedded digits, in a minute.")
    ] = False,
    results: Annotated[
        Path, typer.Option(help="Folder with a small file of results per experiment.")
    ] = Path("results"),
    work: Annotated[
        Path, typer.Option(help="Folder for the runs themselves, to resume them.")
    ] = Path("runs/reproduce"),
) -> None:
    """Run an experiment of the papers and show what they report beside what we measure.

    What is done is not repeated, and what was interrupted is resumed: stop it whenever you like.

    Examples:

      headstart reproduce

      headstart reproduce per-fedavg-table1 --seeds 5

      headstart reproduce generalized-fig1 --quick
    """
    from headstart.cli.progress import stage
    from headstart.options import choose
    from headstart.reproduction import STUDIES, Results, carry_out

    study = choose(STUDIES, name or "", "experiment")
    if quick:
        results, work = results / "quick", work / "quick"
    with stage() as shown:
        carry_out(
            study,
            Results(results, study.name),
            work / study.name,
            seeds=range(seeds),
            quick=quick,
            listener=lambda label: shown.listener(label, brief=True),
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
