"""Every record is what it was after a file: round trips, old formats, damage in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart._metric import Metric
from headstart.errors import InputError
from headstart.records import (
    AdaptationCurves,
    BeforeAfter,
    BoundByRounds,
    ByteCounts,
    Change,
    ClientCounts,
    ClientResult,
    ComparisonRecord,
    ComparisonRow,
    Differences,
    Evaluation,
    GradientsPerClient,
    GroupCurve,
    GroupScores,
    PersonalResult,
    Record,
    RunDirectory,
    RunSummary,
    ScoreSummary,
    TheoryBound,
    describe,
    over_seeds,
    paired_difference,
    read_run,
    write_comparison,
)
from headstart.records._base import VersionedRecord
from headstart.records._client_result import clients_from_csv, clients_to_csv
from headstart.records._federation_events import Evaluated, Notice, RoundEnded, parse_event

OLD = Path(__file__).parents[1] / "experiments" / "version-0.1"
RMSE, R2 = Metric("rmse", "lower"), Metric("r2")
PAIR = BeforeAfter(before=describe([0.25, 0.75]), after=describe([0.5, 1.0]))
GROUP = GroupScores(loss=PAIR, metrics={"rmse": PAIR, "r2": PAIR})
CURVE = GroupCurve(means={"rmse": (0.5, None), "r2": (0.1, None)}, ci95=(0.1, None))
EVALUATION = Evaluation(
    round=3,
    gradient_evaluations=12,
    train_loss=0.5,
    reported={"clients.loss": 0.5},
    adapt_steps=2,
    adapt_on="train",
    scores=ScoreSummary(metrics=(RMSE, R2), known=GROUP, new=GROUP),
    gradient_norm_squared=0.25,
)
SUMMARY = RunSummary(
    algorithm="fedavg",
    label="FedAvg",
    clients=ClientCounts(known=2, new=1),
    rounds=3,
    seed=1,
    seconds=1.5,
    gradient_evaluations=12,
    gradient_evaluations_per_client=GradientsPerClient(round=2.5, adaptation=2),
    bytes=ByteCounts(down=10, up=20),
    adapt_steps=2,
    adapt_on="test",
    failures=("the model is at chance",),
    scores=EVALUATION.scores,
    adaptation=AdaptationCurves(steps=(0, 1), known=CURVE),
)
CLIENT = ClientResult(
    client=0, name="a,b", kind="new", train_examples=5, test_examples=2, classes=3,
    loss=Change(before=1.0, after=0.1 + 0.2), metrics={"rmse": Change(before=None, after=0.5)},
)  # fmt: skip
OVER = BeforeAfter(before=over_seeds([0.5, 0.7]), after=over_seeds([0.6, 0.9]))
ROW = ComparisonRow(
    label="x",
    algorithm={"name": "fedavg", "local_lr": 0.1},
    seeds=(0, 1),
    runs=("x/seed-0", "x/seed-1"),
    diverged={"2": "too large"},
    known=GroupScores(metrics={"rmse": OVER, "r2": OVER}),
    differences=Differences(known=paired_difference([0.6, 0.9], [0.1, 0.2], "lower")),
)
COMPARISON = ComparisonRecord(
    seeds=(0, 1, 2), adapt_steps=2, adapt_on="train", baseline="y", metric=RMSE, rows=(ROW,)
)
PERSONAL = PersonalResult(
    run="r", data="mine.csv", steps=2, train_examples=4, test_examples=1, metric=RMSE,
    scores={"rmse": Change(before=2.0, after=None)}, model="m.safetensors",
)  # fmt: skip
BOUND = TheoryBound(bound=BoundByRounds(rounds=(1, 2), total=(0.5, None)), reason=None)


@pytest.mark.parametrize(
    "record", [EVALUATION, SUMMARY, CLIENT, COMPARISON, PERSONAL, BOUND], ids=lambda r: type(r)
)
def test_a_record_survives_json(record: Record) -> None:
    again = type(record).from_json(record.to_json())
    assert again == record and again.to_json() == record.to_json()
    if isinstance(record, VersionedRecord):
        assert json.loads(record.to_json())["format"] == record.FORMAT


def test_clients_survive_csv() -> None:
    assert clients_from_csv(clients_to_csv([CLIENT, CLIENT])) == (CLIENT, CLIENT)


def test_events_survive_a_line() -> None:
    ended = RoundEnded(
        round=1, done=False, loss=None, seconds=0.5, trained=("a",), scored=(), not_connected=(),
        silent=("b",), rejected={"c": "bad"}, bytes_down=1, bytes_up=2, time=3.0,
    )  # fmt: skip
    evaluated = Evaluated.from_evaluation(EVALUATION, time=2.0)
    for event in (ended, Notice(text="x"), evaluated):
        assert parse_event(event.to_json()) == event


def test_scores_are_where_they_always_were() -> None:
    """Known clients at the top level, new ones under their key: scripts read these files."""
    table = SUMMARY.to_table()
    assert table["rmse"]["after"]["mean"] == table["new_clients"]["rmse"]["after"]["mean"] == 0.75
    assert table["metric"]["name"] == "rmse" and [m["name"] for m in table["metrics"]][1] == "r2"
    assert table["adaptation"]["known_clients"]["rmse"] == [0.5, None]
    row = COMPARISON.to_table()["rows"][0]
    assert row["known_clients"]["after"]["values"] == [0.6, 0.9] and row["new_clients"] is None
    assert PERSONAL.to_table()["rmse_before"] == 2.0 and "client" not in PERSONAL.to_table()


def test_verdicts_follow_from_the_intervals() -> None:
    """Whatever a file says: 0.6 ± 1.27 shows no difference, and a failed run none at all."""
    table = COMPARISON.to_table()
    table["rows"][0]["difference"]["known_clients"]["verdict"] = "better"
    again = ComparisonRecord.from_table(table)
    assert again.rows[0].differences.groups["known"].verdict == "no difference shown"
    table["rows"][0]["failed"] = {"0": "at chance"}
    again = ComparisonRecord.from_table(table)
    assert again.rows[0].differences.groups["known"].verdict == "failed"


def test_a_folder_of_version_one_is_read() -> None:
    run = read_run(OLD)
    assert run.metric.name == "accuracy" and run.summary.algorithm == "apfl"
    assert run.summary.format == VersionedRecord.FORMAT and len(run.evaluations) == 3
    assert {client.group for client in run.clients} == {"known", "new"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-20], "is damaged"),
        (lambda text: "[]", "a table is expected, not list"),
        (lambda text: text.replace('"rounds"', '"rouns"'), "it has no 'rounds'"),
        (lambda text: text.replace('"accuracy"', '"acuracy"'), "it has no 'accuracy'"),
        (lambda text: text.replace("{", '{"format": 99, ', 1), "formats up to 2; update"),
        (lambda text: '{"format": 99}', "formats up to 2; update"),
        (lambda text: text.replace('"adapt_on": "train"', '"adapt_on": 3'), "adapt_on"),
    ],
)
def test_damage_is_one_clear_line(
    damage: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    folder = RunDirectory(tmp_path)
    folder.summary_file.write_text(damage((OLD / "summary.json").read_text()))
    with pytest.raises(InputError) as caught:
        folder.summary()
    text = str(caught.value)
    assert "summary.json" in text and message in text and "\n" not in text


def test_a_comparison_goes_to_two_files(tmp_path: Path) -> None:
    write_comparison(tmp_path, COMPARISON)
    assert ComparisonRecord.from_json((tmp_path / "comparison.json").read_text()) == COMPARISON
    head, row = (tmp_path / "comparison.csv").read_text().splitlines()
    assert head.startswith("label,algorithm,seeds,diverged") and row.startswith("x,fedavg,2,1")
