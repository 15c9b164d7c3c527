"""The page: complete, escaped, honest, and without a wish for the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headstart.errors import InputError, OutputError
from headstart.records import StoredComparison, StoredRun, read_comparison, read_run
from headstart.report import make_report
from headstart.report._html_page import render_html
from headstart.report._page_files import default_out, page_of
from headstart.report._side_by_side import read_folders

Maker = Callable[..., Path]
EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


class Outline(HTMLParser):
    """Tags, addresses and the visible text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.data = ""
        self._within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action")]
        self._within.append("data" if ("id", "data") in attrs else tag)

    def handle_endtag(self, tag: str) -> None:
        self._within = self._within[:-1] if tag in ("script", "style") else self._within

    def handle_data(self, data: str) -> None:
        last = self._within[-1] if self._within else ""
        if last == "data":
            self.data += data
        elif last not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).replace("\xa0", " ").split())


def render(stored: StoredRun | StoredComparison) -> str:
    return render_html(page_of(stored))


def page_of_run(folder: Path) -> Outline:
    return Outline(render(read_run(folder)))


def page_of_comparison(folder: Path) -> Outline:
    return Outline(render(read_comparison(folder)))


def test_a_run_has_its_page_and_figures(tmp_path: Path, make_run: Maker) -> None:
    folder = make_run(tmp_path / "run")
    assert make_report([folder]) == folder / "report.html"
    assert len(list((folder / "figures").iterdir())) == 6
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    page = Outline((folder / "report.html").read_text(encoding="utf-8"))
    assert "Clients that joined later reach 80.0 % ± 14.1 (before: 40.0 %)." in page.text
    for words in ("10th percentile", "1,200", "What to do next", 'label = "Per-FedAvg"', "jax"):
        assert words in page.text


def test_nothing_comes_from_elsewhere(tmp_path: Path, make_comparison: Maker) -> None:
    text = render(read_comparison(make_comparison(tmp_path / "cmp")))
    page = Outline(text)
    assert page.addresses == []
    assert "link" not in page.tags
    assert "@import" not in text[: text.index("</style>")]
    assert text.count("plotly.js v") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]


def test_what_users_call_things_is_text(tmp_path: Path, make_run: Maker) -> None:
    names = [EVIL, "</script>", "a,b"]
    folder = make_run(tmp_path / "run", names=names, label=EVIL, data=EVIL, host={"python": EVIL})
    page = page_of_run(folder)
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert EVIL in page.text
    assert "<" not in page.data
    panels = json.loads(page.data)["clients"][0]
    said = "".join(text for trace in panels[0]["data"] for text in trace.get("text", []))
    assert "&lt;script&gt;alert" in said


def test_labels_of_methods_are_text(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", label=EVIL, diverged={"0": EVIL})
    page = page_of_comparison(folder)
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert "<" not in page.data


def test_numbers_made_on_the_scored_data_are_marked_everywhere(
    tmp_path: Path, make_run: Maker, make_comparison: Maker
) -> None:
    run = page_of_run(make_run(tmp_path / "run", adapt_on="test"))
    whole = page_of_comparison(make_comparison(tmp_path / "cmp", adapt_on="test"))
    # A run: headline, accuracy table, 3 plots, 2 tables of clients; a comparison: headline,
    # 2 tables, 4 plots.
    assert run.text.count("Warning: adapted on the data that is scored") == 7
    assert whole.text.count("Warning: adapted on the data that is scored") == 7
    assert "Warning" not in page_of_run(make_run(tmp_path / "fair")).text


def test_diverged_runs_are_named_with_their_reason(tmp_path: Path, make_comparison: Maker) -> None:
    page = page_of_comparison(make_comparison(tmp_path / "cmp", diverged={"1": "step too large"}))
    assert "Gone, seed 1, diverged: step too large" in page.text
    assert "Gone (diverged)" in page.text


def test_no_difference_is_claimed_without_proof(tmp_path: Path, make_comparison: Maker) -> None:
    page = page_of_comparison(make_comparison(tmp_path / "cmp", (0.01, 0.02)))
    assert "+1.0 ± 2.0 points: no difference shown" in page.text
    assert "is better than" not in page.text


def test_one_seed_and_no_new_clients(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", (0.05, None), seeds=[0], new=False)
    page = page_of_comparison(folder)
    assert "one seed: undecided" in page.text
    assert "Clients that joined later: accuracy" not in page.text
    assert "nan" not in page.data.lower()


def test_missing_numbers_are_dashes(tmp_path: Path, make_run: Maker) -> None:
    folder = make_run(tmp_path / "run", known=((0.5, float("nan")), (0.5, 0.75)), seconds=None)
    page = page_of_run(folder)
    assert "reach – after 3 adaptation steps" in page.text
    json.loads(page.data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_thousand_clients_stay_readable(tmp_path: Path, make_run: Maker) -> None:
    many = [(i / 2000, i / 1000) for i in range(1000)]
    page = page_of_run(make_run(tmp_path / "run", known=many, names=["first of all"]))
    assert page.tags.count("tr") < 30
    assert [len(view) for view in json.loads(page.data)["clients"]] == [2, 2]
    assert len(page.data) < 1_000_000


def test_several_runs_go_where_they_are_told(
    tmp_path: Path, make_run: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [make_run(tmp_path / name, label=name) for name in ("A", "B")]
    out = make_report(paths, tmp_path / "deep" / "both.html")
    assert out == tmp_path / "deep" / "both.html"
    assert (tmp_path / "deep" / "both-figures" / "clients.svg").exists()
    monkeypatch.chdir(tmp_path)
    together = read_folders(paths)
    assert default_out(together) == Path("report.html")
    page = Outline(render(together))
    assert "headstart report A" in page.text
    assert str(tmp_path) not in page.text


def test_what_cannot_be_read_leaves_nothing_behind(tmp_path: Path, make_run: Maker) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="headstart run --resume"):
        make_report([folder])
    assert not (folder / "report.html").exists()


def test_what_cannot_be_written_is_one_line(tmp_path: Path, make_run: Maker) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(OutputError, match="cannot write") as caught:
        make_report([make_run(tmp_path / "run")], tmp_path / "taken" / "report.html")
    assert "\n" not in str(caught.value)


def test_the_same_numbers_give_the_same_page(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run"))
    assert render(run) == render(run)


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, headstart.report; "
        "print(sorted({'jax', 'matplotlib', 'plotly', 'jinja2', 'rich'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]"


def test_the_documented_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text.split("## Other pages")[1], re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    page = Outline((tmp_path / "mine.html").read_text(encoding="utf-8"))
    assert "The loss falls from 2.3 to 0.7." in page.text
    assert len(json.loads(page.data)["loss"][0]) == 1
    assert {path.name for path in (tmp_path / "mine-figures").iterdir()} == {"loss.png", "loss.svg"}
