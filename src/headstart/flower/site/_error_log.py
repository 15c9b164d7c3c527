"""``errors.log`` in a site's work folder: the text of exceptions, which never leaves the site."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path

from headstart.flower._federation_config import SiteConfig

ERROR_LOG = "errors.log"


def log_exception(site_file: Path) -> None:
    """Append the current exception; ignore errors, since there is no other place for them."""
    with suppress(Exception):
        append_exception(Path(SiteConfig.read(site_file).work))


def append_exception(work: Path) -> Path:
    """Append the current exception and return the file."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / ERROR_LOG
    with path.open("a", encoding="utf-8") as file:
        file.write(traceback.format_exc() + "\n")
    return path
