"""Which columns of a table are learned from: never a row index, never silently an identifier."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.data import read_examples, read_folder, read_table
from headstart.data._dataset_options import build_dataset, resolve_data_options
from headstart.data._dataset_summary import describe
from headstart.data._schema import Schema
from headstart.data._schema_matching import match_inputs, match_labels
from headstart.errors import DataError, DataWarning

RNG = np.random.default_rng(0)
ROWS = 60


def table(**columns: Any) -> dict[str, Any]:
    """Noise for three clients whose rows are sorted by class."""
    clients = np.repeat(["a", "b", "c"], ROWS // 3)
    labels = np.tile(np.repeat([0, 1], ROWS // 6), 3)
    noise = {"u": RNG.normal(size=ROWS), "v": RNG.normal(size=ROWS)}
    return {"client": clients, **noise, "label": labels, **columns}


def as_csv(path: Path, columns: dict[str, Any]) -> Path:
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def as_parquet(path: Path, columns: dict[str, Any], index: list[str] | None = None) -> Path:
    import json

    import pyarrow as pa
    from pyarrow import parquet

    made = pa.table(columns)
    if index is not None:
        made = made.replace_schema_metadata({"pandas": json.dumps({"index_columns": index})})
    parquet.write_table(made, path)
    return path


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_a_row_index_is_left_out_and_said(name: str, write: Any, tmp_path: Path) -> None:
    path = tmp_path / f"t.{'csv' if write is as_csv else 'parquet'}"
    write(path, {name: np.arange(ROWS), **table()})
    with pytest.warns(DataWarning, match="is a row index, not a feature, and is left out"):
        pool = read_table(path)
    assert pool.schema.feature_names == ("u", "v")


def test_an_index_with_a_name_is_found_by_what_pandas_notes(tmp_path: Path) -> None:
    columns = {**table(), "visit": RNG.permutation(ROWS)}
    path = as_parquet(tmp_path / "t.parquet", columns, index=["visit"])
    with pytest.warns(DataWarning, match="'visit' is a row index"):
        assert read_table(path).schema.feature_names == ("u", "v")
    columns = table()
    path = as_parquet(tmp_path / "by_client.parquet", columns, index=["client"])
    assert read_table(path).owner is not None  # an index that is asked for is used


def test_one_line_for_a_whole_folder(tmp_path: Path) -> None:
    for name in ("north", "south"):
        columns = {k: v[:20] for k, v in table().items() if k != "client"}
        as_csv(tmp_path / f"{name}.csv", {"": range(20), **columns})
    with pytest.warns(DataWarning, match="north.csv and 1 more: column without a name") as caught:
        read_folder(tmp_path)
    assert len(caught) == 1


def test_a_timestamp_is_refused(tmp_path: Path) -> None:
    when = np.datetime64("2024-01-01", "ns") + np.arange(ROWS)
    path = as_parquet(tmp_path / "t.parquet", {**table(), "when": when})
    with pytest.raises(DataError, match=r"'when' holds timestamp\[ns\], not numbers.*data.drop"):
        read_table(path)
    assert read_table(path, drop=["when"]).schema.feature_names == ("u", "v")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (np.arange(ROWS), "sorted within most clients"),
        (-np.repeat(np.arange(ROWS // 2), 2), "sorted within most clients"),
        (RNG.permutation(ROWS), "a different whole number in every row"),
        (10**9 + RNG.permutation(ROWS), "a different whole number in every row"),
    ],
)
def test_a_likely_identifier_is_named(column: Any, reason: str, tmp_path: Path) -> None:
    path = as_csv(tmp_path / "t.csv", {**table(), "id": column})
    with pytest.warns(DataWarning, match=rf"column 'id' \({reason}\).*data.drop"):
        read_table(path)


def test_measurements_and_answers_are_no_identifiers(tmp_path: Path) -> None:
    ages = RNG.integers(20, 90, ROWS)
    answers = np.tile(np.repeat([0, 1], ROWS // 6), 3)
    read_table(as_csv(tmp_path / "t.csv", {**table(), "age": ages, "answer": answers}))


def test_columns_are_chosen_and_dropped(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "t.csv", table())
    assert read_table(path, features=["v"]).schema.feature_names == ("v",)
    assert read_table(path, drop=["v"]).schema.feature_names == ("u",)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"features": ["w"]}, "no column 'w', which data.features names"),
        ({"drop": ["w"]}, "no column 'w', which data.drop names"),
        ({"features": ["label"]}, "names 'label', which is the label"),
        ({"features": ["u"], "drop": ["u"]}, "names 'u'"),
        ({"drop": ["u", "v"]}, "no feature beside"),
    ]
    for wrong, message in cases:
        with pytest.raises(DataError, match=message):
            read_table(path, **wrong)
    np.savez(tmp_path / "t.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1], client=list("aabb"))
    with pytest.raises(DataError, match=r"no named columns; leave out data.drop"):
        read_table(tmp_path / "t.npz", drop=["u"])


def test_an_experiment_keeps_the_choice(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "t.csv", table())
    options = {"path": str(path), "drop": ["u"]}
    assert resolve_data_options(options)["drop"] == ["u"] and resolve_data_options(
        resolve_data_options(options)
    ) == resolve_data_options(options)
    data = build_dataset(options, seed=0)
    assert [column["name"] for column in describe(data)["columns"]] == ["v"]


def test_a_quantity_is_not_taken_for_classes(tmp_path: Path) -> None:
    rows = 442
    target = RNG.integers(25, 347, rows)
    columns = {"client": RNG.integers(0, 4, rows), "u": RNG.normal(size=rows), "label": target}
    path = as_csv(tmp_path / "t.csv", columns)
    message = r"different whole numbers as labels in 442 rows .*looks like a quantity"
    with pytest.raises(DataError, match=message):
        read_table(path)
    assert read_table(path, classes=347).schema.classes == 347
    letters = {**columns, "label": RNG.permutation(np.arange(rows) % 26)}
    assert read_table(as_csv(tmp_path / "l.csv", letters)).schema.classes == 26


SCHEMA = Schema(shape=(2,), classes=2, feature_names=("age", "pulse"), class_names=("no", "yes"))


def test_a_table_in_memory_is_matched_by_name() -> None:
    import pyarrow as pa

    expected = np.array([[30, 60], [31, 61]], np.float32)
    columns = {"pulse": [60, 61], "age": [30, 31]}
    for given in (columns, pa.table(columns), expected, expected.tolist()):
        np.testing.assert_array_equal(match_inputs(given, SCHEMA), expected)
    wrong: list[tuple[Any, str]] = [
        ({"age": [1]}, "no column 'pulse'"),
        ({**columns, "label": [0, 1]}, "a column 'label', which this run's data do not have"),
        ({"age": [1], "pulse": ["x"]}, "'pulse' holds values that are not numbers"),
        ({"age": [1], "pulse": [float("nan")]}, "example 0 has a value that is not a finite"),
        (np.array([[1.0, np.inf]]), "not a finite number"),
        (np.zeros((3, 5)), "shape"),
        ([["a", "b"]], "not numbers"),
    ]
    for given, message in wrong:
        with pytest.raises(DataError, match=message):
            match_inputs(given, SCHEMA)


def test_labels_may_be_names() -> None:
    assert match_labels(["yes", "no"], SCHEMA).tolist() == [1, 0]
    assert match_labels([1, 0], SCHEMA).tolist() == [1, 0]
    with pytest.raises(DataError, match="label 'maybe' is not one of this run's: no, yes"):
        match_labels(["maybe"], SCHEMA)


def test_a_personal_file_may_hold_what_training_left_out(tmp_path: Path) -> None:
    columns = {"": [0, 1], "visit": [7, 3], "pulse": [60, 61], "age": [30, 31], "label": list("01")}
    path = as_csv(tmp_path / "me.csv", columns)
    with pytest.warns(DataWarning, match="row index"):
        x, _ = read_examples(path, SCHEMA, ignore=["visit", "client"])
    assert x.tolist() == [[30, 60], [31, 61]]
    del columns[""]
    with pytest.raises(DataError, match="'visit'"):
        read_examples(as_csv(path, columns), SCHEMA)
