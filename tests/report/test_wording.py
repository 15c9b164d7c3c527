"""Headlines say what the numbers show, and never more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.records import read_comparison, read_run
from headstart.report._side_by_side import combine_runs
from headstart.report._wording import comparison_headline, comparison_notes, run_headline

Maker = Callable[..., Path]


def test_a_run_in_words(tmp_path: Path, make_run: Maker) -> None:
    summary = read_run(make_run(tmp_path / "run")).summary
    assert run_headline(summary) == [
        "Clients in training reach 90.0 % ± 10.0 after 3 adaptation steps on their own data "
        "(before: 50.0 %).",
        "Clients that joined later reach 80.0 % ± 14.1 (before: 40.0 %).",
    ]


def test_one_client_has_no_interval(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run", known=((0.5, 0.9),), new=(), adapt_steps=1))
    assert run_headline(run.summary) == [
        "Clients in training reach 90.0 % after 1 adaptation step on their own data "
        "(before: 50.0 %)."
    ]


def test_no_adaptation_is_called_so(tmp_path: Path, make_run: Maker) -> None:
    summary = read_run(make_run(tmp_path / "run", new=(), adapt_steps=0)).summary
    assert run_headline(summary) == ["Clients in training reach 90.0 % ± 10.0 without adaptation."]


@pytest.mark.parametrize(
    ("difference", "says", "never"),
    [
        ((0.05, 0.02), "Better is better than Base by 5.0 ± 2.0 points", "no difference"),
        ((-0.05, 0.02), "Better is worse than Base by 5.0 ± 2.0 points", "no difference"),
        ((0.05, 0.05), "no difference to Base is shown for Better (+5.0 ± 5.0)", "better than"),
        ((-0.05, 0.09), "no difference to Base is shown for Better (−5.0 ± 9.0)", "worse than"),
        ((0.05, None), "one seed cannot show a difference", "better than"),
    ],
)
def test_a_difference_is_claimed_only_if_its_interval_leaves_out_zero(
    tmp_path: Path,
    make_comparison: Maker,
    difference: tuple[float, float | None],
    says: str,
    never: str,
) -> None:
    lines = comparison_headline(read_comparison(make_comparison(tmp_path / "c", difference)).record)
    assert len(lines) == 2
    for line in lines:
        assert says in line
        assert never not in line


def test_every_run_diverged(tmp_path: Path, make_comparison: Maker) -> None:
    whole = read_comparison(make_comparison(tmp_path / "c", diverged={"0": "why"}))
    gone = whole.methods[2].row
    lines = comparison_headline(
        whole.record.model_copy(update={"rows": (gone,), "baseline": "Gone"})
    )
    assert lines == ["Every run diverged: there is nothing to compare."]


def test_runs_side_by_side_get_numbers_but_no_verdict(tmp_path: Path, make_run: Maker) -> None:
    paths = [make_run(tmp_path / name, label=name) for name in ("A", "B")]
    together = combine_runs([read_run(path) for path in paths])
    assert comparison_headline(together.record)[0] == (
        "Clients in training reach, after 3 adaptation steps: A 90.0 % ± 10.0, B 90.0 % ± 10.0."
    )
    assert any("no verdict" in note for note in comparison_notes(together))


def test_unequal_runs_are_not_to_be_compared(tmp_path: Path, make_run: Maker) -> None:
    paths = [make_run(tmp_path / "a", label="A"), make_run(tmp_path / "b", label="B", data="x")]
    together = combine_runs([read_run(path) for path in paths])
    assert "These runs differ in their data: do not compare them." in comparison_notes(together)
