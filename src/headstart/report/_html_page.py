"""A page as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headstart.report._charts import Chart
from headstart.report._page_parts import Page
from headstart.report._plotly_backend import plotly_panel

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(page: Page, figures: str = "figures") -> str:
    """Return the page's HTML; ``figures`` is the folder beside it."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = _environment()
    library = get_plotlyjs().replace("\r\n", "\n")
    code = _source(environment, "report.js")
    return environment.get_template("report.html").render(
        page=page,
        figures=figures,
        style=Markup(_source(environment, "report.css")),
        data=Markup(chart_data(page.charts)),
        library=Markup(library),
        code=Markup(code),
        policy=security_policy(library, code),
    )


def chart_data(charts: Sequence[Chart]) -> str:
    """Return all panels as JSON by chart and view, safe inside a script element."""
    data = {
        chart.key: [[plotly_panel(panel) for panel in view.panels] for view in chart.views]
        for chart in charts
    }
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def security_policy(*scripts: str) -> str:
    """Return a content security policy: only these scripts run, and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def keep_together(text: str) -> str:
    r"""Return text in which no line break separates numbers from their units and intervals.

    >>> keep_together("97.1 % ± 0.8 on average").split(" ")
    ['97.1\xa0%\xa0±\xa00.8', 'on', 'average']
    """
    return text.replace(" %", "\xa0%").replace(" ± ", "\xa0±\xa0")


def _environment() -> Environment:
    """Return the templates; every value is escaped unless it is marked as safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("headstart.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["keep_together"] = keep_together
    return environment


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
