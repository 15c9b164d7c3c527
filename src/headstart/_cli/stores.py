"""``headstart data pack | synthetic | check``: data sets that need not fit in memory."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart._cli.datasets import Seed, Settings, Target, build

if TYPE_CHECKING:
    from headstart.data._store import StoreCard

Out = Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")]

_SUGGESTED_PER_ROUND = 100
"""Clients per round that are suggested for a very large data set."""


def pack(
    out: Out,
    target: Target = None,
    settings: Settings = None,
    seed: Seed = None,
) -> None:
    """Write any data, split as configured, to a folder that is read in place.

    Example: headstart data pack experiment.toml --out packed
    """
    from headstart.data._store import refuse_taken, write_store

    refuse_taken(out)
    _, data = build(target, settings, seed)
    with _count_clients("packing", data.clients) as count:
        card = write_store(out, data, written=count)
    _print_next_step(out, card)


def synthetic(
    out: Out,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 100,
    examples: Annotated[int, typer.Option(help="Examples per client, both splits together.")] = 20,
    features: Annotated[int, typer.Option(help="Numbers per example.")] = 60,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    alpha: Annotated[float, typer.Option(help="α, variance of a client's mean weight.")] = 1.0,
    beta: Annotated[float, typer.Option(help="β, variance of a client's mean input.")] = 1.0,
    new_clients: Annotated[int, typer.Option(help="Clients excluded from training.")] = 0,
    test_fraction: Annotated[float, typer.Option(help="Fraction held out per client.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
) -> None:
    """Generate clients by the formula of Li et al. 2020; memory does not grow with their number.

    Example: headstart data synthetic --clients 1000000 --examples 20 --out million
    """
    from headstart.data import StoreWriter, Synthetic

    generator = Synthetic(clients, examples, features, classes, alpha, beta)
    generator.check(new_clients=new_clients, test_fraction=test_fraction, seed=seed)
    writer = StoreWriter(
        out, generator.schema, new_clients=new_clients, description=generator.description
    )
    with writer, _count_clients("generating", clients) as count:
        for part in generator.parts(seed=seed, test_fraction=test_fraction):
            writer.add(part)
            count(part.clients)
    _print_next_step(out, writer.card)


def check(
    folder: Annotated[Path, typer.Argument(help="A folder written by pack or synthetic.")],
) -> None:
    """Read every byte of a packed data set and verify it against its digest.

    Example: headstart data check packed
    """
    from rich.console import Console

    from headstart.data._store import read_card, verify

    size = _format_size(read_card(folder))
    with Console(stderr=True).status(f"reading {size} …"):
        card = verify(folder)
    typer.echo(f"{_describe_store(folder, card)}: as written, digest {card.digest}")


def _describe_store(folder: Path, card: StoreCard) -> str:
    return f"{folder}: {card.clients:,} clients, {card.examples:,} examples, {_format_size(card)}"


def _format_size(card: StoreCard) -> str:
    unit, name = (1e9, "GB") if card.nbytes >= 1e9 else (1e6, "MB")
    return f"{card.nbytes / unit:.1f} {name}"


def _print_next_step(folder: Path, card: StoreCard) -> None:
    """Print one line: what was written, and the command that trains on it."""
    from headstart._experiments.configuration import build_algorithm
    from headstart.data import open_store

    data = open_store(folder)
    # Features can have any unit: without a bound on the step, a first run may diverge.
    settings = [f"data.path={folder}", "algorithm.max_gradient_norm=1.0"]
    if data.known_clients > 2 * _SUGGESTED_PER_ROUND:
        settings.append(f"participation={_SUGGESTED_PER_ROUND / data.known_clients:.2g}")
    largest = int(data.train_counts[: data.known_clients].max())
    if largest < build_algorithm({}).largest_batch:
        settings.append(f"algorithm.batch_size={largest}")
    command = " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
    typer.echo(f"{_describe_store(folder, card)}; train on it with: headstart run {command}")


@contextmanager
def _count_clients(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many clients are done: a bar on a terminal, occasional lines elsewhere."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _ProgressLines(what, total).add
        return
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"{what} clients", total=total)
        yield lambda count: bar.advance(task, count)


class _ProgressLines:
    """Prints progress lines, but not too often."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.began = self.spoke = time.monotonic()

    def add(self, count: int) -> None:
        """Record that ``count`` more clients are done."""
        from headstart._experiments.progress import PLAIN_SECONDS

        self.done += count
        now = time.monotonic()
        if now - self.spoke > PLAIN_SECONDS and self.done < self.total:
            self.spoke = now
            left = (now - self.began) * (self.total - self.done) / self.done
            text = f"{self.what} clients: {self.done:,} of {self.total:,}, {left:.0f} s left"
            typer.echo(text, err=True)
