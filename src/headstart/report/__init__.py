"""From run directories to tables, figures and one page; never trains.

What is read is only what a run wrote to disk, so a report can be made anywhere, long after the run
and without the data.
"""

from headstart.report.page import make_report
from headstart.report.tables import comparison_table, summary_table

__all__ = ["comparison_table", "make_report", "summary_table"]
