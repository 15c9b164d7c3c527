"""The page is what the stored results say, and says it plainly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study_records import record
from typer.testing import CliRunner

from headstart._cli.main import app
from headstart.errors import HeadstartError
from studies import STUDIES, Results
from studies.reproduction_page import IMAGES, contents
from studies.small_versions import ROUNDS

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_documentation_is_not_stale() -> None:
    """``make reproduction-page`` makes it again; nothing in it is written by hand."""
    text, figures = contents(ROOT / "studies" / "results")
    stale = "make reproduction-page, and look at what changed"
    assert (ROOT / "docs/reproduction.md").read_text() == text, stale
    folder = ROOT / "docs" / IMAGES
    assert sorted(path.name for path in folder.glob("*")) == sorted(figures), stale
    for name, content in figures.items():
        assert (folder / name).read_bytes() == content, f"{name}: {stale}"


def test_every_figure_of_the_page_is_there_and_every_study_has_a_section() -> None:
    text = (ROOT / "docs/reproduction.md").read_text()
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (ROOT / "docs" / target).exists(), target
    for name, study in STUDIES.items():
        if Results(ROOT / "studies" / "results", name).records:
            assert f"\n## {study.title}\n" in text


def test_stored_results_hold_their_configuration_seed_versions_and_machine() -> None:
    for path in (ROOT / "studies" / "results").glob("*.jsonl"):
        for stored in Results(path.parent, path.stem).records:
            assert stored["config"]["seed"] == stored["seed"]
            if "diverged" not in stored:
                assert stored["host"]["versions"]["jax"] and stored["host"]["cores"]
        text = path.read_text()
        assert "/home" not in text and "/tmp" not in text and "/work" not in text


@pytest.mark.parametrize("name", STUDIES)
def test_stored_results_were_made_with_the_settings_of_today(name: str) -> None:
    """Otherwise ``headstart reproduce`` would run them again while the page still shows them."""
    results = Results.of_study(ROOT / "studies" / "results", STUDIES[name])
    known = {
        (piece.cell, piece.seed)
        for piece in STUDIES[name].pieces(range(5), False, results.seen)
        if results.of(piece) is not None
    }
    assert {(stored["cell"], stored["seed"]) for stored in results.records} == known


def test_verdicts_follow_the_numbers(tmp_path: Path) -> None:
    """The same cells with a gain, without one, and with a loss."""
    study = STUDIES["per-fedavg-table1"]
    for gain, expected in ((0.1, "holds"), (0.0, "undecided"), (-0.1, "does not hold")):
        cells = [("fedavg", seed, 0.8) for seed in (-1, 0, 1)]
        cells += [("hessian-free", seed, 0.8 + gain + 0.01 * seed) for seed in (-1, 0, 1)]
        records = [
            record(f"mnist-10/{method}", seed, 0.1, accuracy, known_adapted_on_test=[0.1, 0.9])
            for method, seed, accuracy in cells
        ]
        claim = study.section(records).claims[0]
        assert claim.verdict == expected
        assert f"{100 * gain:+.1f} ± 2.5" in claim.evidence[0]


def test_small_versions_and_adaptation_on_test_data_are_marked(tmp_path: Path) -> None:
    results = Results(tmp_path, "per-fedavg-table1")
    config = {"data": {"source": "digits"}, "rounds": ROUNDS}
    more = {"known_adapted_on_test": [0.1, 0.9], "config": config}
    results.add(record("mnist-10/fedavg", 0, 0.1, 0.8, **more))
    text, _ = contents(tmp_path)
    assert "Made with `--quick`" in text and "⚠ The same models **adapted on" in text
    assert "80.0 (76.0)" in text and "90.0 (76.0)" in text
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/per-fedavg-table1.md").write_text("What was tried: much.\n")
    assert "What was tried: much." in contents(tmp_path)[0]


@pytest.mark.parametrize("name", STUDIES)
def test_all_pieces_of_a_study_have_names_of_their_own(name: str) -> None:
    pieces = STUDIES[name].pieces(range(5), False, [])
    assert len({(piece.cell, piece.seed) for piece in pieces}) == len(pieces) > 0
    assert all(piece.experiment.evaluation.adapt_on == "train" for piece in pieces)


def test_the_command_lists_studies_and_refuses_unknown_ones(tmp_path: Path) -> None:
    command = ["reproduce", "--results", str(tmp_path)]
    listed = CliRunner().invoke(app, command, env={"COLUMNS": "120"})
    assert listed.exit_code == 0 and "0 of 120" in listed.output
    for wrong, text in (
        (["nothing"], "experiment='nothing' is not known"),
        (["natural", "--only-page"], "no results of natural yet"),
    ):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert isinstance(refused.exception, HeadstartError) and text in str(refused.exception)
    assert not list(tmp_path.iterdir())


def test_the_command_makes_the_page_from_stored_results_alone(tmp_path: Path) -> None:
    more = {"known_adapted_on_test": [0.1, 0.9]}
    Results(tmp_path, "per-fedavg-table1").add(record("mnist-4/fedavg", 0, 0.1, 0.8, **more))
    command = ["reproduce", "per-fedavg-table1", "--only-page", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "undecided: every cell of Table 1" in done.output
    assert "MNIST, τ = 4" in (tmp_path / "reproduction.md").read_text()


def test_a_study_with_tries_only_has_a_section(tmp_path: Path) -> None:
    Results(tmp_path, "per-fedavg-aruba").add(record("fedavg/try-1", 1000, 0.1, 0.8))
    Results(tmp_path, "natural").add(record("writers/fedavg/try-1", 1000, 0.1, 0.8))
    text, figures = contents(tmp_path)
    assert "The trials are not finished yet." in text and not figures
