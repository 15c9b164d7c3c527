"""Separate runs set side by side: numbers, but no verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.errors import InputError
from headstart.records import StoredComparison, StoredRun
from headstart.report._side_by_side import read_folders

Maker = Callable[..., Path]


def test_without_a_folder_there_is_nothing_to_report() -> None:
    with pytest.raises(InputError, match="nothing to report"):
        read_folders([])


def test_runs_of_one_label_are_one_method(tmp_path: Path, make_run: Maker) -> None:
    paths = [make_run(tmp_path / f"a{seed}", label="A", seed=seed) for seed in (0, 1)]
    paths.append(make_run(tmp_path / "b", known=((0.1, 0.2),), label="B"))
    together = read_folders(paths)
    assert isinstance(together, StoredComparison)
    assert together.over == "seeds"
    assert [(m.row.label, len(m.runs)) for m in together.methods] == [("A", 2), ("B", 1)]
    same, single = (together.record.primary(m.row, "known").after for m in together.methods)
    assert same.ci95 == pytest.approx(0)
    assert single.ci95 is None
    assert together.record.baseline is None


def test_single_runs_keep_their_interval_over_clients(tmp_path: Path, make_run: Maker) -> None:
    paths = [make_run(tmp_path / name, label=name) for name in ("A", "B")]
    together = read_folders(paths)
    assert isinstance(together, StoredComparison)
    assert together.over == "clients"
    first = together.record.primary(together.methods[0].row, "known")
    assert first.after.ci95 == pytest.approx(0.1)


def test_equal_labels_and_seeds_are_told_apart_by_folder(tmp_path: Path, make_run: Maker) -> None:
    paths = [make_run(tmp_path / name, label="A") for name in ("slow", "fast")]
    together = read_folders(paths)
    assert isinstance(together, StoredComparison)
    assert [m.row.label for m in together.methods] == ["A · slow", "A · fast"]


def test_a_comparison_among_runs_is_refused(
    tmp_path: Path, make_run: Maker, make_comparison: Maker
) -> None:
    paths = [make_run(tmp_path / "run"), make_comparison(tmp_path / "cmp")]
    with pytest.raises(InputError, match="is a comparison; report it alone"):
        read_folders(paths)
    assert isinstance(read_folders(paths[:1]), StoredRun)
