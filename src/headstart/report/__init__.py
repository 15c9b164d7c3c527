"""From run directories to tables, figures and one page; never trains.

Only what a run wrote to disk is read, so a report can be made anywhere, long after the run and
without the data. Charts and pages are plain data: describe a :class:`Chart` once, and it is drawn
on the page (Plotly) and for papers (Matplotlib); :func:`write_page` writes any :class:`Page`.
"""

from headstart.report._charts import (
    Axis,
    Bars,
    Box,
    Chart,
    Guide,
    HeatMap,
    Line,
    Panel,
    Points,
    RowSpans,
    View,
)
from headstart.report._matplotlib_backend import draw_figure, render_figure
from headstart.report._page_files import make_report, write_page
from headstart.report._page_parts import Command, Details, Glossary, Page, PageSection, Table
from headstart.report._palette import SeriesStyle, method_styles
from headstart.report._terminal_tables import comparison_table, summary_table

__all__ = [
    "Axis",
    "Bars",
    "Box",
    "Chart",
    "Command",
    "Details",
    "Glossary",
    "Guide",
    "HeatMap",
    "Line",
    "Page",
    "PageSection",
    "Panel",
    "Points",
    "RowSpans",
    "SeriesStyle",
    "Table",
    "View",
    "comparison_table",
    "draw_figure",
    "make_report",
    "method_styles",
    "render_figure",
    "summary_table",
    "write_page",
]
