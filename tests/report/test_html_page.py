"""The page in a real browser: plots are drawn, buttons work, nothing complains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser import browse, complaints

from headstart.records import read_comparison, read_run
from headstart.report._comparison_page import comparison_page
from headstart.report._html_page import render_html
from headstart.report._run_page import run_page

Maker = Callable[..., Path]
PROD = """<script>
addEventListener("load", () => {
  const press = (what) => document.querySelectorAll(what).forEach((button) => button.click());
  press(".views button");
  press(".legend button");
  setTimeout(() => {
    const lines = document.querySelectorAll(".plot .scatterlayer .trace").length;
    document.body.setAttribute("data-left", String(lines));
  }, 3000);
});
</script></body>"""


@pytest.mark.browser
@pytest.mark.slow
def test_the_plots_are_drawn_and_nothing_is_fetched(
    chromium: str, tmp_path: Path, make_comparison: Maker
) -> None:
    from matplotlib.image import imread

    page = tmp_path / "page.html"
    comparison = read_comparison(make_comparison(tmp_path / "cmp", label="<b>$x$</b>"))
    page.write_text(render_html(comparison_page(comparison)), encoding="utf-8")
    shot = tmp_path / "page.png"
    dom, log = browse(chromium, page, tmp_path / "profile", "--dump-dom", f"--screenshot={shot}")
    # Under `default-src 'none'` every attempt to fetch something is a complaint.
    assert complaints(log) == []
    panels = dom.count('class="panel js-plotly-plot"')
    assert panels == 8
    assert dom.count('class="main-svg"') >= panels
    assert "&lt;b&gt;$x$&lt;/b&gt;" in dom
    pixels = imread(shot)
    assert pixels.shape[:2] == (1600, 1200)
    assert pixels[:, :, :3].std() > 0.02


@pytest.mark.browser
@pytest.mark.slow
def test_buttons_change_views_and_hide_lines(
    chromium: str, tmp_path: Path, make_run: Maker
) -> None:
    many = [(i / 200, i / 100) for i in range(100)]
    page = tmp_path / "page.html"
    text = render_html(run_page(read_run(make_run(tmp_path / "run", known=many))))
    begin = text.index('<meta http-equiv="Content-Security-Policy"')
    text = text[:begin] + text[text.index(">", begin) + 1 :]
    page.write_text(text.replace("</body>", PROD), encoding="utf-8")
    dom, log = browse(chromium, page, tmp_path / "profile", "--dump-dom")
    assert complaints(log) == []
    assert 'aria-pressed="true">each client' in dom
    assert 'aria-pressed="false">distribution' in dom
    # All lines are hidden: the dots of the two groups of clients and the training loss are left.
    assert 'data-left="3"' in dom
