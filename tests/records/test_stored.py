"""Folders from disk: what is there is read, what is not gives one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.errors import InputError
from headstart.records import read_comparison, read_folder, read_run

Maker = Callable[..., Path]
HEAD = (
    "client,name,kind,train_examples,test_examples,classes,"
    "loss_before,loss_after,accuracy_before,accuracy_after"
)


def test_a_run_is_read_whole(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run", names=["Ann, of York", "Bo"]))
    assert run.summary.scores.primary("known").after.mean == pytest.approx(0.9)
    assert run.summary.scores.primary("new").before.min == 0.3
    assert [e.round for e in run.evaluations] == [0, 10, 20]
    assert run.evaluations[0].train_loss is None
    assert [c.name for c in run.clients_of("known")][:2] == ["Ann, of York", "Bo"]
    assert len(run.clients_of("new")) == 2
    assert run.summary.gradient_evaluations_per_client.adaptation == 3


def test_a_run_without_new_clients(tmp_path: Path, make_run: Maker) -> None:
    run = read_run(make_run(tmp_path / "run", new=()))
    assert run.summary.adaptation is not None
    assert list(run.summary.scores.groups) == list(run.summary.adaptation.groups) == ["known"]
    assert run.clients_of("new") == []


def test_numbers_that_are_not_finite_become_none(tmp_path: Path, make_run: Maker) -> None:
    folder = make_run(tmp_path / "run")
    text = (folder / "summary.json").read_text().replace('"min": 0.8', '"min": NaN')
    (folder / "summary.json").write_text(text)
    rows = (folder / "clients.csv").read_text().replace("0.4,1.0", "nan,")
    (folder / "clients.csv").write_text(rows)
    run = read_run(folder)
    assert run.summary.scores.primary("known").after.min is None
    change = run.clients[1]["accuracy"]
    assert (change.before, change.after) == (None, None)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("summary.json", None, "is not finished"),
        ("summary.json", "{", "summary.json is damaged"),
        ("summary.json", "[]", "a table is expected"),
        ("summary.json", '{"algorithm": "x"}', "it has no 'rounds'"),
        ("metrics.jsonl", None, "does not exist"),
        ("metrics.jsonl", "", "holds no evaluation"),
        ("metrics.jsonl", '{"round": 0', "line 1"),
        ("clients.csv", "client,name\n0,a\n", "it has no 'kind'"),
        ("clients.csv", "", "holds no client"),
        ("clients.csv", f"{HEAD}\n0,a,new,1,1,1,1,1,1,1\n", "it has no known client"),
        ("config.toml", None, "neither a run nor a comparison"),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    tmp_path: Path, make_run: Maker, name: str, content: str | None, says: str
) -> None:
    folder = make_run(tmp_path / "run")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(InputError) as caught:
        read_run(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_curve_of_another_length_is_damage(tmp_path: Path, make_run: Maker) -> None:
    folder = make_run(tmp_path / "run")
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"steps": [0, 1, 2]', '"steps": [0, 1]'))
    with pytest.raises(InputError, match="too few or too many points"):
        read_run(folder)


def test_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, says in ((tmp_path / "no", "does not exist"), (tmp_path / "file", "is a file")):
        with pytest.raises(InputError, match=says):
            read_folder(path)


def test_a_comparison_is_read_with_its_runs(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp", diverged={"0": "not finite at round 3"})
    comparison = read_comparison(folder)
    assert [len(method.runs) for method in comparison.methods] == [2, 2, 0]
    assert comparison.record.rows[2].diverged == {"0": "not finite at round 3"}
    assert comparison.record.rows[2].groups == {}


def test_a_comparison_without_its_runs_says_so(tmp_path: Path, make_comparison: Maker) -> None:
    folder = make_comparison(tmp_path / "cmp")
    (folder / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="seed-0 is missing"):
        read_comparison(folder)


def test_the_verdict_is_worked_out_from_the_interval(
    tmp_path: Path, make_comparison: Maker
) -> None:
    folder = make_comparison(tmp_path / "cmp", difference=(0.01, 0.02))
    table = json.loads((folder / "comparison.json").read_text())
    table["rows"][1]["difference"]["known_clients"]["verdict"] = "better"
    (folder / "comparison.json").write_text(json.dumps(table))
    difference = read_comparison(folder).record.rows[1].difference("known")
    assert difference is not None and difference.verdict == "no difference shown"
