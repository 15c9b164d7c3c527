"""``headstart federate``: run the same algorithms between real machines, on Flower."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart._cli.shared_options import Json, Out, Page, Settings

if TYPE_CHECKING:
    from headstart.records._federation_events import FederationEvent, RoundEnded

app = typer.Typer(
    no_args_is_help=True,
    help="Train across real machines with Flower. Start with: headstart federate up",
)

Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Use no TLS and no node keys; only for trials on this machine."
    ),
]


def _require_flower() -> None:
    from headstart.errors import ConfigError

    try:
        import flwr  # noqa: F401
    except ImportError:
        raise ConfigError(
            'headstart federate needs Flower; install it with: pip install "headstart[flower]"'
        ) from None


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the federation.")],
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file (TOML): what to train.")
    ] = None,
    settings: Settings = None,
    sites: Annotated[
        str | None, typer.Option(help="Names of the sites that train, comma-separated.")
    ] = None,
    late: Annotated[
        str, typer.Option(help="Names of sites that do not train, comma-separated.")
    ] = "",
    address: Annotated[
        str, typer.Option(help="HOST:PORT at which the sites reach the server.")
    ] = "127.0.0.1:9443",
    like: Annotated[
        Path | None,
        typer.Option(
            help="A file with the columns and classes of every site's data, needed if the "
            "experiment names no data set. Its numbers need not be real."
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="With --like: the label column.")] = "label",
    schema: Annotated[
        Path | None,
        typer.Option(help="Instead of --like: a schema.json, which also holds agreed scales."),
    ] = None,
    min_sites: Annotated[
        int | None, typer.Option(min=1, help="Answers that a round needs; default: 2.")
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Write the folder of a federation: the Flower app, certificates, keys and start scripts.

    With --sites, the sites bring their own data. Without it, each client of the experiment becomes
    a site with its share of the data, for trials on one machine.

    Example:

      headstart federate init wards heart.toml --sites north,south --late west --like columns.csv
    """
    _require_flower()
    from headstart.flower.deploy import make_federation

    names = None if sites is None else tuple(_split_names(sites))
    federation = make_federation(
        folder, experiment, settings or [], sites=names, late=tuple(_split_names(late)),
        address=address, like=like, label=label, schema_file=schema, min_sites=min_sites,
        insecure=insecure,
    )  # fmt: skip
    count = len(federation.sites) + len(federation.late)
    typer.echo(f"{folder}: a federation of {count} sites, server at {federation.address}")
    typer.echo(f"step-by-step instructions: {folder / 'README.md'}")
    quoted = shlex.quote(str(folder))
    typer.echo(f"next, on the server: headstart federate serve {quoted}")
    first = shlex.quote(str(folder / "sites" / federation.sites[0] / "site.toml"))
    typer.echo(f"and at each site:    headstart federate join {first}")


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder that init wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the run; default: runs/…")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --out where it stopped.")
    ] = False,
    resume_if_started: Annotated[
        bool,
        typer.Option("--resume-if-started", help="Resume if --out holds a run; else start one."),
    ] = False,
    distribute: Annotated[
        bool,
        typer.Option(
            "--distribute",
            help="Do not train: send the finished model in --out to every connected site.",
        ),
    ] = False,
    hand_out: Annotated[bool, typer.Option("--hand-out", hidden=True)] = False,
    page: Page = True,
    as_json: Json = False,
) -> None:
    """Run the server of a federation: wait for the sites, train, and show every round.

    Examples:

      headstart federate serve hospitals

      headstart federate serve hospitals --out runs/hospitals-001 --resume

      headstart federate serve hospitals --out runs/hospitals-001 --distribute
    """
    _require_flower()
    from headstart.errors import ConfigError
    from headstart.flower.deploy import serve as serve_run
    from headstart.records import next_free

    distribute = distribute or hand_out
    if out is None and (resume or distribute or resume_if_started):
        raise ConfigError("--resume and --distribute need --out: the folder of the run")
    run = out or next_free(Path("runs"), folder.resolve().name)
    resume = resume or (resume_if_started and (run / "config.toml").exists())
    display = EventDisplay()
    with _advise_to_resume(f"headstart federate serve {shlex.quote(str(folder))}", run):
        serve_run(folder, run, display.show, resume=resume, distribute=distribute)
    _show_results(run, page=page, as_json=as_json)


@app.command()
def join(
    site: Annotated[Path, typer.Argument(help="The site's file, site.toml.")],
) -> None:
    """Join a federation as one site, and stay until stopped.

    The data never leave the site: only model updates, sizes and scores do.

    Example:

      headstart federate join site.toml
    """
    _require_flower()
    from headstart.flower.deploy import join as join_federation
    from headstart.flower.deploy._joining import stop_on_signals

    join_federation(site, _print_line, until=stop_on_signals())


@app.command()
def personalize(
    site: Annotated[Path, typer.Argument(help="The site's file, site.toml.")],
    steps: Annotated[
        int | None,
        typer.Option(help="Adaptation steps; default: chosen by cross-validation on the data."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data to use instead of that in site.toml.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Model file; default: the run's personal.safetensors.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The run whose initial model to use; default: the latest.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the site's own model from the shared one it received, without the server.

    Part of the data is held out: the model adapts on the rest and is scored on that part.

    Example:

      headstart federate personalize site.toml --steps 5
    """
    _require_flower()
    from headstart.flower.site._site_personalization import personalize_site

    result = personalize_site(site, steps=steps, data=data, out=out, run=run)
    if as_json:
        typer.echo(json.dumps(result.to_table(), indent=2))
        return
    typer.echo(
        f"{result.site}: {result.train_examples} examples to adapt on, "
        f"{result.test_examples} held out\n{result}\nmodel in {result.model}"
    )


@app.command()
def up(
    experiment: Annotated[
        Path | None,
        typer.Argument(help="Experiment file (TOML); default: the embedded digits."),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="Number of sites that train; default: 4 for the digits."),
    ] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="Override the experiment's seed.")] = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the federation in --out.")
    ] = False,
    insecure: Insecure = False,
    page: Page = True,
    as_json: Json = False,
) -> None:
    """Run a whole federation on this machine: server and sites, over loopback with TLS.

    Every client of the experiment becomes a site with its share of the data. The run directory is
    like that of headstart run; the sites' folders are next to it, in OUT-federation.

    Examples:

      headstart federate up --clients 4

      headstart federate up my.toml --set rounds=20 --out runs/mine
    """
    _require_flower()
    from headstart.flower.deploy import run_local_trial

    chosen = [*(settings or []), *([] if seed is None else [f"seed={seed}"])]
    run = run_local_trial(
        experiment, chosen, clients=clients, out=out, resume=resume, insecure=insecure,
        listener=EventDisplay().show, say=_print_line, advise=_advise_to_resume,
    )  # fmt: skip
    _show_results(run, page=page, as_json=as_json)


class EventDisplay:
    """Prints the events of a run as lines on standard error."""

    def __init__(self) -> None:
        self.rounds = 0

    def show(self, event: FederationEvent) -> None:
        """Print the line of an event, if it has one."""
        line = self.line(event)
        if line:
            _print_line(line)

    def line(self, event: FederationEvent) -> str:
        """Return the line of an event; empty if there is nothing to show."""
        from headstart.records import _federation_events as events

        match event:
            case events.RunStarted():
                self.rounds = event.rounds
                done = f", {event.round} of them done (resumed)" if event.round else ""
                return f"{event.rounds} rounds{done}"
            case events.Evaluated():
                last = event.round >= self.rounds
                return ("  final: " if last else f"  before round {event.round + 1}: ") + str(event)
            case events.RoundEnded():
                return self._round_line(event)
            case events.WaitingForSites():
                return (
                    f"waiting for sites: {event.there} connected, {event.needed} needed; absent: "
                    + ", ".join(event.absent)
                )
            case events.RoundRepeated():
                return f"round {event.round + 1} had too few answers; trying again"
            case events.KeyMissing():
                return f"{event.site} has no public key in server/sites yet: it will be refused"
        return ""

    def _round_line(self, event: RoundEnded) -> str:
        last = event.round >= self.rounds
        head = "final evaluation" if last else f"round {event.round + 1} of {self.rounds}"
        loss = "" if event.loss is None else f", loss {event.loss:.3f}"
        line = (
            f"{head}: {_describe_sites(event.scored if last else event.trained)}{loss}, "
            f"{event.seconds:.1f} s, {_format_bytes(event.bytes_down)} down, "
            f"{_format_bytes(event.bytes_up)} up"
        )
        problems = [f"{name} rejected: {why}" for name, why in event.rejected.items()]
        if event.silent:
            problems.insert(0, f"{', '.join(event.silent)} did not answer in time")
        if event.not_connected:
            problems.insert(0, f"{', '.join(event.not_connected)} not connected")
        return "\n  ! ".join([line, *problems])


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _describe_sites(names: Sequence[str]) -> str:
    """Return the number of sites, and their names if they are few."""
    few = 0 < len(names) <= 5
    return f"{len(names)} sites" + (f" ({', '.join(names)})" if few else "")


def _format_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@contextmanager
def _advise_to_resume(command: str, run: Path) -> Iterator[None]:
    """Say how to resume a run that is stopped inside the block."""
    from headstart.flower._federation_errors import FederationError
    from headstart.records._checkpoint import checkpoint_files

    def advice() -> str:
        if not checkpoint_files(run / "checkpoint"):
            return "no round was completed"
        return f"resume with: {command} --resume --out {shlex.quote(str(run))}"

    try:
        yield
    except FederationError as error:
        raise FederationError(f"{error}; {advice()}") from None
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {advice()}", err=True)
        raise typer.Exit(130) from None


def _show_results(run: Path, *, page: bool, as_json: bool) -> None:
    from headstart._experiments.run_files import load_run

    result = load_run(run)
    if page:
        from headstart.report import make_report

        make_report([run])
    if as_json:
        typer.echo(json.dumps(result.summary.to_table(), indent=2))
        return
    typer.echo(str(result.summary))
    sent = result.summary.bytes
    if sent is not None:
        typer.echo(f"  {_format_bytes(sent.down)} to the sites, {_format_bytes(sent.up)} from them")
    typer.echo(f"results in {run}" + (f", page: {run / 'report.html'}" if page else ""))
    typer.echo(
        "every site has its own model; score it with: headstart federate personalize SITE.toml"
    )


def _split_names(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
