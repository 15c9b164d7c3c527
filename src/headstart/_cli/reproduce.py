"""``headstart reproduce``: run the papers' experiments and write a page with verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart.errors import InputError

if TYPE_CHECKING:
    from studies import Results, Study


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Experiment to run; default: list all and their progress.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds, starting at 0; default: 5, or 2 with --quick."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Run a small version on the embedded digits, within a minute."
        ),
    ] = False,
    results: Annotated[
        Path, typer.Option(help="Folder with a small result file per experiment.")
    ] = Path("studies/results"),
    work: Annotated[
        Path, typer.Option(help="Folder for the runs, from which they are resumed.")
    ] = Path("runs/reproduce"),
    page: Annotated[
        Path | None,
        typer.Option(help="Page to write; default: reproduction.md in --results."),
    ] = None,
    only_page: Annotated[
        bool,
        typer.Option(
            "--only-page", help="Write the page from stored results without running anything."
        ),
    ] = False,
) -> None:
    """Run an experiment of the papers, and compare the reported numbers with the measured ones.

    Finished runs are not repeated and interrupted ones are resumed: stop it at any time.

    Examples:

      headstart reproduce

      headstart reproduce per-fedavg-table1 --seeds 5

      headstart reproduce generalized-fig1 --quick
    """
    _import_studies_folder()
    from studies import STUDIES, Results, build_page

    seeds = seeds or (2 if quick else 5)
    if quick:
        results, work = results / "quick", work / "quick"
    if name is None and not only_page:
        _list(results, range(seeds), quick)
        return
    if name is not None:
        from headstart.options import choose

        study: Study = choose(STUDIES, name, "experiment")
        if not only_page:
            _run(study, results, work / name, seeds, quick)
        _show(study, Results.of_study(results, study))
    written = build_page(results, page or results / "reproduction.md")
    typer.echo(f"results in {results}, page: {written[0]}")


def _import_studies_folder() -> None:
    """Make the ``studies`` folder of a checkout importable; it is not part of the wheel."""
    root = Path(__file__).parents[3]
    if not (root / "studies" / "__init__.py").exists():
        raise InputError(
            "the papers' experiments are not part of the installed package; "
            "run headstart reproduce from a checkout of the repository (make install)"
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))


def _run(study: Study, results: Path, work: Path, seeds: int, quick: bool) -> None:
    from headstart._experiments.progress import open_display
    from studies import Results, run_study

    with open_display() as display:
        done = run_study(
            study,
            Results.of_study(results, study),
            work,
            seeds=range(seeds),
            quick=quick,
            listener=lambda label: display.listener(label, brief=True),
            say=display.say,
        )
    if not done:
        print(f"{study.name}: all runs were finished already", file=sys.stderr)


def _show(study: Study, stored: Results) -> None:
    """Print the claims of one study with their verdicts."""
    if not stored.records:
        raise InputError(f"there are no results of {study.name} yet; run it without --only-page")
    typer.echo(f"{study.title}, accuracy in percent")
    for claim in study.section(stored.seen).claims:
        typer.echo(f"\n{claim.verdict}: {claim.text}")
        for line in claim.evidence:
            typer.echo(f"  {line}")
    typer.echo("")


def _list(results: Path, seeds: range, quick: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from studies import STUDIES, Results

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("experiment", "what", "done"):
        table.add_column(column, overflow="fold")
    for name, study in STUDIES.items():
        stored = Results.of_study(results, study)
        pieces = study.pieces(seeds, quick, stored.seen)
        done = sum(stored.of(piece) is not None for piece in pieces)
        table.add_row(name, study.summary, f"{done} of {len(pieces)}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    typer.echo("next: headstart reproduce NAME, or with --quick for a small version")
