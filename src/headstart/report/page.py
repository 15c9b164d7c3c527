"""One self-contained page from run directories; it works from disk, without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.atomic_files import write_bytes
from headstart.errors import OutputError
from headstart.report.content import Content, content_of
from headstart.report.gathering import read
from headstart.report.reading import Comparison, Run

if TYPE_CHECKING:
    from jinja2 import Environment

    from headstart.report.plots import Plot

PAGE = "report.html"


def make_report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page, and its figures beside it; the result is the page's path.

    ``paths`` is one run, one comparison, or several runs. The page of a run or a comparison goes
    into its folder unless ``out`` says otherwise, that of several runs into the present one.
    """
    from headstart.report.figures import figures_of, save_figures

    thing = read([Path(path) for path in paths])
    target = Path(out) if out is not None else default_out(thing)
    if target.is_dir():
        raise OutputError(f"{target} is a folder; name the page, as {target / PAGE}")
    figures = target.parent / figures_folder(target)
    save_figures(figures_of(thing), figures)
    write_bytes(target, render(thing, figures.name).encode("utf-8", "replace"))
    return target


def default_out(thing: Run | Comparison) -> Path:
    """Where the page goes if nobody says."""
    return Path(PAGE) if thing.path is None else thing.path / PAGE


def figures_folder(page: Path) -> str:
    """A folder of its own for the figures of each page."""
    return "figures" if page.name == PAGE else f"{page.stem}-figures"


def render(thing: Run | Comparison, figures: str = "figures") -> str:
    """The page's text."""
    from headstart.report.plots import plots_of

    return assemble(content_of(thing), plots_of(thing), figures)


def assemble(content: Content, plots: Sequence[Plot], figures: str) -> str:
    """Texts and plots as one page that needs nothing else."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    env = environment()
    library = get_plotlyjs().replace("\r\n", "\n")
    code = source(env, "report.js")
    return env.get_template("report.html").render(
        content=content,
        plots=plots,
        figures=figures,
        style=Markup(source(env, "report.css")),
        data=Markup(plot_data(plots)),
        library=Markup(library),
        code=Markup(code),
        policy=policy(library, code),
    )


def environment() -> Environment:
    """Templates of this package; every value is escaped unless it is marked as safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("headstart.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["glued"] = glued
    return env


def glued(text: str) -> str:
    r"""Numbers that no line break tears from their units and intervals.

    >>> glued("97.1 % ± 0.8 on average").split(" ")
    ['97.1\xa0%\xa0±\xa00.8', 'on', 'average']
    """
    return text.replace(" %", "\xa0%").replace(" ± ", "\xa0±\xa0")


def source(env: Environment, name: str) -> str:
    """A template file as it is."""
    assert env.loader is not None
    return env.loader.get_source(env, name)[0]


def plot_data(plots: Sequence[Plot]) -> str:
    """All panels as one JSON object, by the plots' keys."""
    entries = (f"{json.dumps(plot.key)}:{plot.to_json()}" for plot in plots)
    return "{" + ",".join(entries) + "}"


def policy(*scripts: str) -> str:
    """A content security policy: only these scripts run, and nothing is fetched from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    )
