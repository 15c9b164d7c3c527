"""What a page consists of, as plain values: sections with tables, charts, commands and words.

:mod:`headstart.report._html_page` renders a page. To make a page for another result, build a
:class:`Page` and write it with :func:`headstart.report.write_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headstart.report._charts import Chart


@dataclass(frozen=True)
class Table:
    """A table of texts; ``warned`` repeats the page's warning above it."""

    kind: ClassVar = "table"
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    warned: bool = False


@dataclass(frozen=True)
class Command:
    """Something to do next: the purpose, and what to type."""

    kind: ClassVar = "command"
    purpose: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Glossary:
    """Words used on the page, with their meanings."""

    kind: ClassVar = "glossary"
    words: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Details:
    """Something that is shown on request: a text, or names with values."""

    kind: ClassVar = "details"
    title: str
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class PageSection:
    """A part of the page under a heading; without any parts it is left out."""

    kind: ClassVar = "section"
    title: str
    parts: Sequence[Table | Command | Glossary | Details]


@dataclass(frozen=True)
class Page:
    """A page, from top to bottom."""

    title: str
    subtitle: str
    headline: Sequence[str]
    sections: Sequence[PageSection | Chart]
    warning: str = ""
    """Repeated beside everything it is about."""
    alarms: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def charts(self) -> list[Chart]:
        """The charts among the sections."""
        return [section for section in self.sections if isinstance(section, Chart)]
