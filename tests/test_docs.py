"""What the documents show, works."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import jax
import pytest

import headstart as hs
from benchmarks import report
from headstart._experiments import Experiment
from headstart.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent


def blocks(path: str) -> list[str]:
    """The Python blocks of a Markdown file."""
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), flags=re.DOTALL)


def test_the_readme_example_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("README.md")
    with jax.numpy_rank_promotion("raise"):
        exec(example, {})
    assert "new clients" in capsys.readouterr().out
    assert len(example.strip().splitlines()) <= 15


@pytest.mark.slow
def test_the_page_about_python_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in blocks("docs/python.md"):
        exec(block, space)
    assert "Per-FedAvg" in capsys.readouterr().out
    assert (tmp_path / "runs" / "both" / "report.html").exists()


def test_every_option_is_documented_with_its_default() -> None:
    text = (ROOT / "docs/experiments.md").read_text()
    for cls in (*ALGORITHMS.values(), hs.EvaluationOptions, Experiment):
        for field in dataclasses.fields(cls):
            shown = re.search(rf"^\| `{field.name}` \| (.*?) \|", text, flags=re.MULTILINE)
            section = f"`[{field.name}]`" in text
            assert shown or section or field.name == "label", f"{cls.__name__}.{field.name}"
            if shown and field.default not in (None, ""):
                value = list(field.default) if isinstance(field.default, tuple) else field.default
                default = str(value).lower().replace("'", "")
                assert shown[1].strip('`"') == default, f"{cls.__name__}.{field.name}"


@pytest.mark.parametrize("path", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_between_documents_lead_somewhere(path: str) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / path).read_text()):
        assert ((ROOT / path).parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "section"),
    [("README", name) for name in ("speed", "end-to-end", "scale", "federation")]
    + [("profile", "profile")],
)
def test_benchmarks_find_the_place_of_their_results(
    page: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README", "profile"):
        shutil.copy(ROOT / "benchmarks" / f"{name}.md", tmp_path)
        monkeypatch.setattr(report, name.upper(), tmp_path / f"{name}.md")
    before = (tmp_path / f"{page}.md").read_text()
    report.write_section(section, "the result")
    after = (tmp_path / f"{page}.md").read_text()
    assert f"<!-- {section}: begin -->\nthe result\n<!-- {section}: end -->" in after
    assert after.partition(f"<!-- {section}")[0] == before.partition(f"<!-- {section}")[0]
    assert after.endswith(before.rpartition("<!--")[2])
