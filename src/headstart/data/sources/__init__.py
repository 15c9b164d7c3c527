"""The built-in data sets.

Every module here that defines ``SOURCE`` is one: to add a data set, add a file.
"""

from __future__ import annotations

import importlib
import pkgutil

from headstart._extensions import find_extension, require_instance
from headstart.data.sources._source import Source


def _collect_sources() -> dict[str, Source]:
    """Return every source by its name; those that need no files come first."""
    modules = [
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
    ]
    sources = [module.SOURCE for module in modules if hasattr(module, "SOURCE")]
    ordered = sorted(sources, key=lambda source: (bool(source.files), source.name))
    return {source.name: source for source in ordered}


SOURCES = _collect_sources()
"""Every built-in source by the name an experiment file uses."""


def find_source(name: str, where: str) -> Source:
    """Return a source by its name: built in, an entry point, or ``package.module:SOURCE``."""
    return find_extension("source", name, SOURCES, where, require_instance(Source))
