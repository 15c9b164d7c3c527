"""From run directories to tables, figures and one page; never trains.

Only what a run wrote to disk is read, so a report can be made anywhere, long after the run and
without the data. Charts and pages are described as plain data (:mod:`headstart.report.charts`,
:mod:`headstart.report.page_parts`); :func:`write_page` writes any page.
"""

from headstart.report.page_files import make_report, write_page
from headstart.report.page_parts import Command, Folded, Glossary, Page, Section, Table
from headstart.report.terminal_tables import comparison_table, summary_table

__all__ = [
    "Command",
    "Folded",
    "Glossary",
    "Page",
    "Section",
    "Table",
    "comparison_table",
    "make_report",
    "summary_table",
    "write_page",
]
