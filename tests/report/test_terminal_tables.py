"""Tables for the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headstart.records import ComparisonRecord, RunSummary
from headstart.report import comparison_table, summary_table

Maker = Callable[..., Path]


def shown(table: Any, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    return text


def run_summary(path: Path) -> RunSummary:
    return RunSummary.from_json(path.read_text())


def comparison_record(path: Path) -> ComparisonRecord:
    return ComparisonRecord.from_json(path.read_text())


def test_a_run(tmp_path: Path, make_run: Maker) -> None:
    text = shown(summary_table(run_summary(make_run(tmp_path / "run") / "summary.json")))
    assert "90.0 % ± 10.0" in text
    assert "1,200 gradient evaluations" in text
    assert "WARNING" not in text


def test_no_new_clients_no_row(tmp_path: Path, make_run: Maker) -> None:
    text = shown(summary_table(run_summary(make_run(tmp_path / "run", new=()) / "summary.json")))
    assert "known" in text
    assert "new" not in text


def test_numbers_made_on_the_scored_data_are_marked(
    tmp_path: Path, make_run: Maker, make_comparison: Maker
) -> None:
    run = make_run(tmp_path / "run", adapt_on="test")
    whole = make_comparison(tmp_path / "cmp", adapt_on="test")
    assert "WARNING: adapted on the data" in shown(summary_table(run_summary(run / "summary.json")))
    table = comparison_table(comparison_record(whole / "comparison.json"))
    assert "WARNING: adapted on the data" in shown(table)


@pytest.mark.parametrize(
    ("difference", "says"),
    [
        ((0.05, 0.02), "+5.0 ± 2.0  better"),
        ((-0.012, 0.02), "−1.2 ± 2.0  no difference shown"),
        ((0.05, None), "+5.0  one seed: undecided"),
    ],
)
def test_a_comparison(
    tmp_path: Path, make_comparison: Maker, difference: tuple[float, float | None], says: str
) -> None:
    folder = make_comparison(tmp_path / "cmp", difference)
    text = shown(comparison_table(comparison_record(folder / "comparison.json")))
    assert text.count(says) == 2
    assert "to Base" in text
    assert "over 2 seeds; after 3 adaptation steps" in text


def test_diverged_methods_are_named(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", diverged={"1": "the step is too large"})
    text = shown(comparison_table(comparison_record(folder / "comparison.json")))
    assert "Gone (diverged)" in text
    assert "Gone, seed 1, diverged: the step is too large" in text


def test_failed_methods_are_marked(tmp_path: Path, make_comparison: Maker) -> None:
    """Also the baseline, which has no verdict of its own."""
    folder = make_comparison(tmp_path / "cmp")
    table = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    table["rows"][0]["failed"] = {"0": "the model is at chance"}
    table["rows"][1]["failed"] = {"0": "dead", "1": "dead"}
    labels = [row["label"] for row in table["rows"]]
    text = shown(comparison_table(ComparisonRecord.model_validate(table)))
    assert all(f"{label} (failed)" in text for label in labels)
    assert f"{labels[0]}, seed 0, failed: the model is at chance" in text


def test_labels_are_no_markup_and_fit(tmp_path: Path, make_comparison: Maker) -> None:
    label = "[red]x[/red] " + "with a name much too long " * 3
    folder = make_comparison(tmp_path / "cmp", label=label)
    text = shown(comparison_table(comparison_record(folder / "comparison.json")))
    assert "[red]x[/red]" in text


def test_one_seed_has_no_intervals(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", (0.05, None), seeds=[0], new=False)
    text = shown(comparison_table(comparison_record(folder / "comparison.json")))
    assert "85.0 " in text
    assert "85.0 ±" not in text
