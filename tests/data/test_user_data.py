"""The user's own files: read as they are, or refused in one line that names the place."""

import builtins
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.data import Schema, read_examples, read_folder, read_table, write_examples
from headstart.errors import DataError, HeadstartError, OutputError

NAMED = Schema(shape=(2,), classes=2, feature_names=("age", "pulse"), class_names=("no", "yes"))
IMAGE = Schema(shape=(2, 3, 1), classes=10, scale=1 / 16, class_names=tuple(map(str, range(10))))
CLOTHES = Schema(shape=(2,), classes=3, class_names=("shirt", "shoe", "bag"))
TEXT = Schema(shape=(4,), classes=5, vocabulary=5)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def parquet(path: Path, **columns: Any) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


def test_a_folder_has_one_file_per_client(tmp_path: Path) -> None:
    write(
        tmp_path,
        ann="age,pulse,label\n30,60,yes\n31,61,no\n",
        bob="label,pulse,age\nno,70.5,40\n",
    )
    np.savez(tmp_path / ".hidden.npz", x=np.zeros((1, 1)), y=np.zeros(1))
    (tmp_path / "notes.txt").write_text("not data")
    pool = read_folder(tmp_path)
    assert pool.x.tolist() == [[30, 60], [31, 61], [40, 70.5]] and pool.x.dtype == np.float32
    assert pool.y.tolist() == [1, 0, 0] and pool.schema.class_names == ("no", "yes")
    assert pool.schema.feature_names == ("age", "pulse")
    assert pool.owner is not None and pool.owner.tolist() == [0, 0, 1]
    assert list(pool.owner_names) == ["ann", "bob"] and pool.name == tmp_path.name


def test_a_table_has_a_client_column(tmp_path: Path) -> None:
    write(tmp_path, all="who,a,kind\n10,1,x\n9,2,y\n10,3,x\n")
    pool = read_table(tmp_path / "all.csv", client="who", label="kind")
    assert pool.owner is not None and pool.owner.tolist() == [1, 0, 1]
    assert list(pool.owner_names) == ["9", "10"]
    assert pool.schema.feature_names == ("a",)


def test_whole_numbers_are_ordered_as_such(tmp_path: Path) -> None:
    write(tmp_path, a="f,label\n1,10\n2,9\n3,2.0\n4,2\n")
    pool = read_folder(tmp_path)
    assert pool.schema.class_names == ("2", "9", "10") and pool.y.tolist() == [2, 1, 0, 0]


def test_classes_takes_labels_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, a="f,label\n1,4\n2,2\n")
    pool = read_folder(tmp_path, classes=6)
    assert pool.y.tolist() == [4, 2] and pool.schema.classes == 6
    assert pool.schema.class_names == ()
    with pytest.raises(DataError, match=r"a\.csv line 2 has label '4'; .* 0 … 3"):
        read_folder(tmp_path, classes=4)
    write(tmp_path, b="f,label\n1,x\n")
    with pytest.raises(DataError, match=r"b\.csv line 2 has label 'x'"):
        read_folder(tmp_path, classes=6)


def test_npz_images_stay_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.full((4, 5, 6), 255, np.uint8), y=[0, 1, 0, 1])
    pool = read_folder(tmp_path)
    assert pool.x.dtype == np.uint8 and pool.schema.shape == (5, 6, 1)
    assert pool.schema.scale == 1 / 255


def test_npz_table_with_clients(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.eye(4), y=np.array(list("abab")), client=[1, 1, 2, 2])
    pool = read_table(tmp_path / "t.npz")
    assert list(pool.owner_names) == ["1", "2"] and pool.schema.class_names == ("a", "b")


def test_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", a=[1, 2], b=[0.5, 1.5], client=["p", "q"], label=[3, 4])
    pool = read_table(path)
    assert pool.x.tolist() == [[1, 0.5], [2, 1.5]] and pool.schema.class_names == ("3", "4")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    real: Callable[..., Any] = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DataError, match=r'pip install "headstart\[parquet\]"'):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, None], "label": [0, 1]}, "column 'a' has 1 empty cells"),
        ({"a": ["x", "y"], "label": [0, 1]}, "column 'a' holds string, not numbers"),
        ({"a": [1.0, float("nan")], "label": [0, 1]}, "example 1 column 'a' is not a finite"),
        ({"a": [1, 2], "label": [0, None]}, "example 1 has an empty label"),
        ({"a": [1, 2]}, "no column 'label'"),
        ({"a": [[1], [2]], "label": [0, 1]}, "not numbers"),
    ],
)
def test_bad_parquet(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    parquet(tmp_path / "a.parquet", **columns)
    with pytest.raises(DataError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; its first line must name the columns"),
        ("a,label\n", "has no example"),
        ("a,b\n1,2\n", "no column 'label'; set data.label to .* labels .*'a', 'b'"),
        ("a,a,label\n1,2,x\n", "two columns 'a'"),
        ("a,label\n1,x\n2\n", "line 3 has 1 cells, the header 2"),
        ("a,label\n1,x,3\n", "line 2 has 3 cells"),
        ("a,label\n\n1,x\n\nhello,y\n", "line 5 column 'a' is 'hello', not a number"),
        ("a,label\n1,x\n,y\n", "line 3 column 'a' is '', not a number"),
        ("a,label\n1,x\nnan,y\n", "line 3 column 'a' is not a finite number"),
        ("a,label\n1e60,x\n1,y\n", "line 2 column 'a' is not a finite number"),
        ("a,label\n1,x\n2, \n", "line 3 has an empty label"),
        ("label\nx\ny\n", "no feature besides 'label'"),
        ("a,label\n1,x\n2,x\n", "every label is 'x'"),
        ("a,label\n1,0.5\n2,0.7\n", "labels such as 0.5, .*set objective.name='regression'"),
        ("a,label\n1,x\x00\n2,\x00\n", "a.csv"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, a=text)
    with pytest.raises(DataError, match=message) as error:
        read_folder(tmp_path).split(min_examples=2)
    assert "a.csv" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("a,label\n1,x\n", "b.csv has no column 'c', which .*a.csv has"),
        ("a,c,d,label\n1,2,3,x\n", "b.csv has a column 'd', which .*a.csv does not have"),
    ],
)
def test_columns_must_agree(tmp_path: Path, second: str, message: str) -> None:
    write(tmp_path, a="a,c,label\n1,2,y\n", b=second)
    with pytest.raises(DataError, match=message):
        read_folder(tmp_path)


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \.csv"):
        read_folder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")
    write(tmp_path, a="a,label\n1,x\n2,y\n")
    (tmp_path / "a.tsv").write_text("a\tlabel\n1\tx\n")
    with pytest.raises(DataError, match="second file of client 'a'"):
        read_folder(tmp_path)
    (tmp_path / "a.tsv").rename(tmp_path / "b.tsv")
    assert read_folder(tmp_path).x.tolist() == [[1], [2], [1]]
    np.savez(tmp_path / "c.npz", x=np.zeros((2, 1)), y=["x", "y"])
    with pytest.raises(DataError, match=r"c\.npz has no column 'a'"):
        read_folder(tmp_path)


def test_bad_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_table(tmp_path / "a.csv")
    write(tmp_path, a="a,label\n1,x\n2,y\n", b="a,client,label\n1,,x\n2,q,y\n")
    with pytest.raises(DataError, match=r"no column 'client'; set data.client to the column"):
        read_table(tmp_path / "a.csv")
    with pytest.raises(DataError, match="line 2 has an empty client"):
        read_table(tmp_path / "b.csv")
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(DataError, match=r"not one of \.csv, \.tsv, \.parquet, \.npz"):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 2))}, "no array 'y'"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "x of shape"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(3)}, "one row per example"),
        ({"x": np.zeros((2, 2)), "y": np.zeros((2, 2))}, "y of type float64"),
        ({"x": np.zeros((2, 2)), "y": np.zeros((2, 2), int)}, "more than one label"),
        ({"x": np.array([["a"], ["b"]]), "y": [0, 1]}, "x of type <U1"),
        ({"x": np.full((2, 2), np.inf), "y": [0, 1]}, "example 0 is not a finite"),
        ({"x": np.zeros((2, 2)), "y": np.array([0, 1j])}, "y of type complex"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "no example"),
    ],
)
def test_bad_npz(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_folder(tmp_path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 1)), y=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=r"a\.npz is not an NPZ file that can be read"):
        read_folder(tmp_path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").replace(tmp_path / "a.npz")
    with pytest.raises(DataError, match="holds one array"):
        read_folder(tmp_path)


def survives(path: Path) -> None:
    """Success, or one clear line that names the file; nothing else may come out."""
    for read in (
        lambda: read_table(path).split(min_examples=2),
        lambda: read_folder(path.parent).split(min_examples=2),
        lambda: read_examples(path, NAMED),
        lambda: read_examples(path, IMAGE),
        lambda: read_examples(path, TEXT),
    ):
        try:
            read()
        except HeadstartError as error:
            assert str(error) and "\n" not in str(error)


cells = st.one_of(
    st.sampled_from(["", "1", "0", "2.5", "nan", "inf", "1e999", "x", "yes", "no", '"', "label"]),
    st.text(max_size=4),
)
rows = st.lists(st.lists(cells, max_size=4), max_size=6)
headers = st.lists(st.sampled_from(["age", "pulse", "label", "client", "", "x"]), max_size=5)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=headers, body=rows, joiner=st.sampled_from([",", ",", ";", "\t"]))
def test_any_table_of_cells_is_read_or_refused(
    tmp_path: Path, header: list[str], body: list[list[str]], joiner: str
) -> None:
    text = "\n".join(joiner.join(row) for row in [header, *body])
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    survives(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), suffix=st.sampled_from(["csv", "tsv", "npz", "parquet"]))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    survives(path)


def archive_of(x: Any, y: Any) -> bytes:
    made = io.BytesIO()
    np.savez(made, x=x, y=y, client=np.zeros(len(y)))
    return made.getvalue()


GOOD_NPZ = [
    archive_of(np.ones((4, 2)), np.array(["no", "yes"] * 2)),
    archive_of(np.ones((4, 2, 3), np.uint8), np.arange(4)),
    archive_of(np.ones((4, 4), np.int64), np.ones((4, 4), np.int64)),
]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    good=st.sampled_from(GOOD_NPZ),
    places=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=6),
    keep=st.floats(0.1, 1.0),
)
def test_a_damaged_npz_is_read_or_refused(
    tmp_path: Path, good: bytes, places: list[tuple[float, int]], keep: float
) -> None:
    damaged = bytearray(good)
    for where, byte in places:
        damaged[int(where * len(damaged))] = byte
    path = tmp_path / "a.npz"
    path.write_bytes(bytes(damaged[: max(1, round(keep * len(damaged)))]))
    survives(path)


dtypes = st.sampled_from(["f4", "f8", "i4", "u1", "?", "U3", "S3", "c8", "M8[s]", "f2"])
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=dtypes, y=dtypes, x_shape=shapes, y_shape=shapes)
def test_npz_of_any_type_and_shape_is_read_or_refused(
    tmp_path: Path, x: str, y: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...]
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(x_shape, x), y=np.ones(y_shape, y))
    survives(tmp_path / "a.npz")


def test_examples_are_matched_by_name(tmp_path: Path) -> None:
    write(tmp_path, a="pulse,label,age\n60,yes,30\n61,no,31\n")
    x, y = read_examples(tmp_path / "a.csv", NAMED)
    assert x.tolist() == [[30, 60], [31, 61]] and y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,label\n1,yes\n", "no column 'pulse', which the model's data has"),
        (
            "age,pulse,extra,label\n1,2,3,yes\n",
            "column 'extra', which the model's data does not have",
        ),
        ("age,pulse,label\n1,2,maybe\n", "line 2 has label 'maybe', which .* it knows no, yes"),
        ("age,pulse,label\n1,2,2\n", "line 2 has label '2'"),
    ],
)
def test_examples_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, a=text)
    with pytest.raises(DataError, match=message):
        read_examples(tmp_path / "a.csv", NAMED)


def test_images_come_as_table_or_array(tmp_path: Path) -> None:
    write(tmp_path, a="p,q,r,s,t,u,label\n1,2,3,4,5,6,7\n")
    np.savez(tmp_path / "b.npz", x=np.arange(1, 7, dtype=np.uint8).reshape(1, 2, 3), y=[7])
    np.savez(tmp_path / "c.npz", x=np.arange(1.0, 7).reshape(1, 6), y=["7"])
    for name in ("a.csv", "b.npz", "c.npz"):
        x, y = read_examples(tmp_path / name, IMAGE)
        assert x.shape == (1, 2, 3, 1) and x.ravel().tolist() == [1, 2, 3, 4, 5, 6]
        assert y.tolist() == [7]
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 3, 2)), y=[7])
    with pytest.raises(DataError, match=r"shape \(3, 2\); the model needs 6 numbers"):
        read_examples(tmp_path / "d.npz", IMAGE)


def test_class_numbers_stand_for_names_that_are_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=[2, 0, 1])
    assert read_examples(tmp_path / "a.npz", CLOTHES)[1].tolist() == [2, 0, 1]
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 2)), y=[3])
    with pytest.raises(DataError, match="it knows shirt, shoe, bag"):
        read_examples(tmp_path / "a.npz", CLOTHES)


def test_text_is_checked(tmp_path: Path) -> None:
    good = np.array([[0, 1, 2, 4]])
    np.savez(tmp_path / "a.npz", x=good, y=good)
    x, y = read_examples(tmp_path / "a.npz", TEXT)
    assert x.tolist() == y.tolist() == good.tolist()
    for bad_x, bad_y, message in (
        (good + 1, good, "token that is not a whole number in 0 … 4"),
        (good, good + 1, "label that is not a whole number"),
        (good, np.array([1]), "one label per position"),
    ):
        np.savez(tmp_path / "a.npz", x=bad_x, y=bad_y)
        with pytest.raises(DataError, match=message):
            read_examples(tmp_path / "a.npz", TEXT)
    write(tmp_path, b="p,q,r,s,label\n1,2,3,4,1\n")
    with pytest.raises(DataError, match="text needs an NPZ file"):
        read_examples(tmp_path / "b.csv", TEXT)


@pytest.mark.parametrize("name", ["out.csv", "out.npz"])
@pytest.mark.parametrize("schema", [NAMED, IMAGE, CLOTHES])
def test_what_is_written_is_read_again(tmp_path: Path, name: str, schema: Schema) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 17, (9, *schema.shape)).astype(np.uint8)
    y = rng.integers(0, schema.classes, 9)
    write_examples(tmp_path / name, x, y, schema)
    back_x, back_y = read_examples(tmp_path / name, schema)
    assert (back_x == x).all() and (back_y == y).all()


def test_written_numbers_are_exact(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    write_examples(tmp_path / "out.csv", x, np.zeros(20, int), NAMED, label="diagnosis")
    assert (read_examples(tmp_path / "out.csv", NAMED, label="diagnosis")[0] == x).all()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    x, y = np.zeros((1, 2)), np.zeros(1, int)
    with pytest.raises(OutputError, match=r"must end in \.csv or \.npz"):
        write_examples(tmp_path / "out.txt", x, y, NAMED)
    with pytest.raises(OutputError, match=r"must end in \.npz"):
        write_examples(tmp_path / "out.csv", np.zeros((1, 4)), np.zeros((1, 4), int), TEXT)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write"):
        write_examples(tmp_path / "file/out.csv", x, y, NAMED)
