"""From run directories to the files of a report: the page, and its figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart._atomic_files import write_bytes
from headstart.errors import OutputError
from headstart.records import StoredComparison, StoredRun
from headstart.report._charts import figures_of
from headstart.report._comparison_page import comparison_page
from headstart.report._html_page import render_html
from headstart.report._page_parts import Page
from headstart.report._run_page import run_page
from headstart.report._side_by_side import read_folders

PAGE_FILE = "report.html"


def make_report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page and its figures; return the page's path.

    ``paths`` is one run, one comparison, or several runs. The page of a run or a comparison goes
    into its folder unless ``out`` is given, the page of several runs into the current folder.
    """
    stored = read_folders([Path(path) for path in paths])
    return write_page(page_of(stored), Path(out) if out is not None else default_out(stored))


def page_of(stored: StoredRun | StoredComparison) -> Page:
    """Return the page of a run or of a comparison."""
    return run_page(stored) if isinstance(stored, StoredRun) else comparison_page(stored)


def default_out(stored: StoredRun | StoredComparison) -> Path:
    """Return where the page goes by default."""
    return Path(PAGE_FILE) if stored.path is None else stored.path / PAGE_FILE


def write_page(page: Page, out: Path) -> Path:
    """Write any page, with its charts as PNG and SVG in a folder beside it."""
    from headstart.report._matplotlib_backend import save_figures

    if out.is_dir():
        raise OutputError(f"{out} is a folder; name the page, as {out / PAGE_FILE}")
    folder = "figures" if out.name == PAGE_FILE else f"{out.stem}-figures"
    save_figures(figures_of(page.charts), out.parent / folder)
    write_bytes(out, render_html(page, folder).encode("utf-8", "replace"))
    return out
