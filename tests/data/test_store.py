"""Data sets in folders: read in place, the same to the bit, and never half of one."""

import dataclasses
import itertools
import json
import re
import resource
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data import FederatedDataset, Schema, StoreWriter, open_store, write_store
from headstart.data import _digest as digest
from headstart.data._dataset_options import build_dataset, resolve_data_options
from headstart.data._digest import ArrayCard, combine_digests
from headstart.data._federated import find_bad_values, from_clients
from headstart.data._store import ARRAYS, StoreCard, is_store, verify
from headstart.errors import ConfigError, DataError, OutputError

counts = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=12)
DTYPES = (np.float32, np.float64, np.uint8, np.int32)


def made(
    sizes: list[tuple[int, int]], dtype: type = np.float32, seed: int = 0, **options: Any
) -> FederatedDataset:
    """Clients of so many training and held-out examples of shape (2, 3), five classes."""
    rng = np.random.default_rng(seed)
    total = sum(train + held for train, held in sizes)
    schema = Schema(shape=(2, 3), classes=5, scale=1 / 3, class_names=tuple("abcde"))
    return FederatedDataset(
        x=(rng.random((total, 2, 3)) * 100).astype(dtype),
        y=rng.integers(0, 5, total).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum([sum(size) for size in sizes])]),
        train_counts=np.array([train for train, _ in sizes]),
        **{"schema": schema, "description": "made up", **options},
    )


@pytest.fixture
def small() -> FederatedDataset:
    """Four clients, the last of them new."""
    return made([(4, 2), (1, 1), (3, 2), (2, 2)], new_clients=1, names=["a", "b", "c", "d"])


@pytest.fixture
def store(tmp_path: Path, small: FederatedDataset) -> Path:
    """The four clients in a folder."""
    write_store(tmp_path / "store", small)
    return tmp_path / "store"


@settings(max_examples=20)
@given(sizes=counts, dtype=st.sampled_from(DTYPES), named=st.booleans(), data=st.data())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int]],
    dtype: type,
    named: bool,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("stores") / "new" / "store"
    names = [f"client {c} – ü" for c in range(len(sizes))] if named else None
    new = data.draw(st.integers(0, len(sizes) - 1))
    original = made(sizes, dtype, new_clients=new, names=names)
    card = write_store(folder, original)
    found = open_store(folder)
    for name, array in original.arrays().items():
        stored = found.arrays()[name]
        assert stored.dtype == array.dtype and np.array_equal(stored, array)
    assert found.schema == original.schema and found.description == "made up"
    assert found.new_clients == new and found.name(0) == original.name(0)
    assert found.digest() == card.digest == original.digest() == found.stored_digest
    assert (card.clients, card.examples) == (len(sizes), len(original.y))
    assert verify(folder) == card
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["store.json", *(f"{name}.npy" for name in ARRAYS)]
    )


@settings(max_examples=15)
@given(sizes=counts, cuts=st.sets(st.integers(1, 11)))
def test_the_portions_in_which_it_is_written_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], cuts: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("stores") / "store"
    whole = made(sizes)
    ends = [0, *sorted(c for c in cuts if c < len(sizes)), len(sizes)]
    with StoreWriter(folder, whole.schema, description="made up") as writer:
        for first, last in itertools.pairwise(ends):
            writer.add(whole.part(first, last))
    assert writer.card.digest == whole.digest()
    for name, array in whole.arrays().items():
        assert np.array_equal(np.load(folder / f"{name}.npy", allow_pickle=False), array)


def test_text_has_labels_of_the_shape_of_its_inputs(tmp_path: Path) -> None:
    tokens = np.arange(24, dtype=np.uint8).reshape(6, 4) % 7
    schema = Schema(shape=(4,), classes=7, vocabulary=7)
    text = FederatedDataset(tokens, tokens.astype(np.int32), np.array([0, 3, 6]), np.array([2, 1]),
                            schema)  # fmt: skip
    write_store(tmp_path / "s", text)
    assert np.array_equal(open_store(tmp_path / "s").y, tokens)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: replace(d, x=d.x + np.float32(1)),
        lambda d: replace(d, x=d.x.astype(np.float64)),
        lambda d: replace(d, y=(d.y + 1) % 5),
        lambda d: replace(d, offsets=d.offsets + np.array([0, 0, 1, 0, 0])),
        lambda d: replace(d, train_counts=d.train_counts - np.array([1, 0, 0, 0])),
        lambda d: replace(d, new_clients=0),
        lambda d: replace(d, schema=replace(d.schema, scale=1 / 4)),
    ],
)
def test_the_digest_notices_every_change(small: FederatedDataset, change: Any) -> None:
    assert change(small).digest() != small.digest()


def test_the_digest_is_of_numbers_not_of_their_place(small: FederatedDataset) -> None:
    same = replace(
        small,
        x=np.asfortranarray(small.x),
        offsets=small.offsets.astype(np.int32),
        train_counts=small.train_counts.astype(np.uint16),
        schema=replace(small.schema, scale=np.float64(1 / 3), shift=0),
        description="elsewhere",
    )
    assert same.digest() == small.digest()


GIANT = 1 << 34
"""Numbers in one example of the giant below."""


@pytest.fixture
def giant(tmp_path: Path) -> Path:
    """A quarter of a terabyte in two clients: a file with a hole, which costs no disk."""
    folder = tmp_path / "giant"
    tiny = FederatedDataset(
        np.zeros((4, 1), np.float32), np.array([0, 1, 1, 0], np.int32), np.array([0, 2, 4]),
        np.array([1, 1]), Schema(shape=(1,), classes=2),
    )  # fmt: skip
    card = asdict(write_store(folder, tiny))
    x = {**card["arrays"]["x"], "shape": (4, GIANT)}
    with (folder / "x.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": x["shape"]}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 16 * GIANT)
    schema = Schema(shape=(GIANT,), classes=2)
    arrays = {**{k: ArrayCard(**v) for k, v in card["arrays"].items()}, "x": ArrayCard(**x)}
    card |= {"schema": schema.to_table(), "arrays": {k: asdict(v) for k, v in arrays.items()}}
    card["digest"] = combine_digests(arrays, schema.to_table(), 0)
    (folder / "store.json").write_text(json.dumps({k: v for k, v in card.items() if v is not None}))
    return folder


def test_more_than_memory_is_opened_and_used_without_being_read(
    giant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = digest.iterate_pieces

    def few(array: np.ndarray) -> Any:
        assert array.nbytes < 1e6, "read whole"
        return pieces(array)

    monkeypatch.setattr(digest, "iterate_pieces", few)
    data = open_store(giant)
    assert isinstance(data.x, np.memmap) and isinstance(data.y, np.memmap)
    assert not data.x.flags.writeable and data.x.nbytes == 16 * GIANT
    assert data.digest() == json.loads((giant / "store.json").read_text())["digest"]
    assert data.client(1).x_test[0, -3:].tolist() == [0, 0, 0]
    assert isinstance(data.client(1).x_train, np.memmap)
    own = data.with_own_labels(3)
    assert own.x is data.x and own.stored_digest is None and own.description.endswith("own labels")
    assert not isinstance(own.y, np.memmap)
    with pytest.raises(AssertionError, match="read whole"):
        verify(giant)


def test_what_is_made_from_a_store_has_a_digest_of_its_own(
    store: Path, small: FederatedDataset
) -> None:
    found = open_store(store)
    for change in (
        lambda d: d.with_own_labels(1),
        lambda d: replace(d, description="other", new_clients=0),
        lambda d: d.part(0, 3),
    ):
        assert change(found).stored_digest is None
        assert change(found).digest() == change(small).digest() != found.digest()
    many = made([(4, 1), (3, 2)])
    write_store(store.parent / "many", many)
    tuned = open_store(store.parent / "many").for_tuning()
    assert tuned.stored_digest is None and tuned.digest() == many.for_tuning().digest()


def test_being_checked_is_not_inherited(store: Path) -> None:
    found = open_store(store)
    with pytest.raises(DataError, match="client a has label 9"):
        replace(found, y=np.full(len(found.y), 9))
    with pytest.raises(DataError, match="client a has label 4"):
        replace(found.with_own_labels(), schema=replace(found.schema, classes=1), y=found.y * 0 + 4)


def test_values_are_checked_in_pieces() -> None:
    rows = 50_000_000
    one = Schema(shape=(1,), classes=2)
    offsets, train = np.array([0, rows - 2, rows]), np.array([1, 1])
    x = np.broadcast_to(np.float32(1), (rows, 1))
    y = np.broadcast_to(np.int8(0), (rows,))
    data = FederatedDataset(x, y, offsets, train, one, validated=True)
    tracemalloc.start()
    assert find_bad_values(data) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 75e6  # in one go the flags of three conditions would take 150 MB
    late = np.ones((6_000_000, 1), np.float32)
    late[-1] = np.nan
    with pytest.raises(DataError, match=r"client 1 .* \(its example 1\)"):
        FederatedDataset(late, y[: len(late)], np.array([0, len(late) - 2, len(late)]), train, one)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def as_npz(path: Path) -> None:
    """An archive under the name of an array: NumPy's load would take it."""
    array = np.load(path)
    with path.open("wb") as file:
        np.savez(file, array)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.unlink(), "does not exist"),
        (cut, "cannot be used|bytes, not"),
        (lambda p: p.write_bytes(p.read_bytes() + b"\0"), r"has \d+ bytes, not \d+"),
        (lambda p: p.write_bytes(b""), "cannot be used"),
        (lambda p: p.write_bytes(p.read_bytes()[:40]), "cannot be used"),
        (as_npz, "cannot be used"),
        (lambda p: np.save(p, np.array([{}], object)), "cannot be used"),
        (lambda p: np.save(p, np.load(p).astype(np.float16)), "holds float16 of shape"),
        (lambda p: np.save(p, np.load(p)[:-1]), "holds .* store.json says"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_was_written(
    store: Path, name: str, damage: Any, message: str
) -> None:
    damage(store / f"{name}.npy")
    with pytest.raises(DataError, match=message) as error:
        open_store(store)
    assert f"{name}.npy" in str(error.value) and "\n" not in str(error.value)


def test_a_flipped_bit_is_found_at_once_in_small_arrays_and_by_a_check_in_large_ones(
    store: Path,
) -> None:
    for name in ("x", "y"):
        flip(store / f"{name}.npy")
        open_store(store)
        with pytest.raises(DataError, match=rf"{name}.npy is not what was written"):
            verify(store)
        flip(store / f"{name}.npy")
    verify(store)
    for name in ("offsets", "train_counts"):
        flip(store / f"{name}.npy")
        with pytest.raises(DataError, match=rf"{name}.npy is not what was written"):
            open_store(store)
        flip(store / f"{name}.npy")


def test_a_check_finds_values_nobody_could_use(tmp_path: Path) -> None:
    bad = made([(2, 1), (1, 1)])
    bad.x[4, 0, 0] = np.inf  # after it was checked
    write_store(tmp_path / "s", bad)
    open_store(tmp_path / "s")
    with pytest.raises(DataError, match=r"s: client 1 .* not a finite number \(its example 1\)"):
        verify(tmp_path / "s")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"new_clients": 0}, "contradicts itself"),
        ({"schema": {"shape": [2, 3], "classes": 50}}, "contradicts itself"),
        ({"clients": 3}, "contradicts itself"),
        ({"examples": 3}, "contradicts itself"),
        ({"names": ["a"]}, "contradicts itself"),
        ({"version": 2}, "this Headstart reads version 1"),
        ({"version": None}, "this Headstart reads version 1"),
        ({"schema": {"shape": "no"}}, "schema.shape: "),
        ({"arrays": {}}, "arrays.x: "),
        ({"digest": None}, "digest: "),
    ],
)
def test_cards_that_were_edited(store: Path, change: dict[str, Any], message: str) -> None:
    card = json.loads((store / "store.json").read_text()) | change
    card = {key: value for key, value in card.items() if value is not None}
    (store / "store.json").write_text(json.dumps(card))
    with pytest.raises(DataError, match=message) as error:
        open_store(store)
    assert "store.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": 1}', b"null"])
def test_cards_that_are_none(store: Path, content: bytes) -> None:
    (store / "store.json").write_bytes(content)
    with pytest.raises(DataError, match=r"store\.json cannot be used") as error:
        open_store(store)
    assert "\n" not in str(error.value)


def test_what_was_written_halfway_is_no_data_set(tmp_path: Path, small: FederatedDataset) -> None:
    folder = tmp_path / "killed"
    with StoreWriter(tmp_path / "s", small.schema) as writer:
        writer.add(small)
        shutil.copytree(tmp_path / "s", folder)  # what a kill at this moment would leave
    assert is_store(folder)
    for use in (open_store, verify, lambda f: build_dataset({"path": str(f)}, seed=0)):
        with pytest.raises(DataError, match=r"whose writing was interrupted .* write it again"):
            use(folder)
    with pytest.raises(OutputError, match="writing was interrupted; remove it, or choose"):
        write_store(folder, small)


def test_what_fails_leaves_nothing_behind(tmp_path: Path, small: FederatedDataset) -> None:
    other = replace(small, x=small.x.astype(np.float64))
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (tmp_path / "s", empty):
        with (
            pytest.raises(DataError, match=r"x.npy: a part has numbers of type float64"),
            StoreWriter(folder, small.schema) as writer,
        ):
            writer.add(small)
            writer.add(other)
    assert list(tmp_path.iterdir()) == [empty] and not list(empty.iterdir())
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path / "s", small.schema) as writer:
        writer.add(small)
        raise KeyboardInterrupt
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"new_clients": 4}, "new_clients=4 of 4 clients leaves none"),
        ({"new_clients": -1}, "new_clients=-1"),
        ({"names": ["a"]}, "1 names for 4 clients"),
        ({"schema": Schema(shape=(9,), classes=5)}, "another schema"),
    ],
)
def test_writers_that_contradict_themselves(
    tmp_path: Path, small: FederatedDataset, options: dict[str, Any], message: str
) -> None:
    with (
        pytest.raises(DataError, match=message),
        StoreWriter(tmp_path / "s", **{"schema": small.schema, **options}) as writer,
    ):
        writer.add(small)
    assert not (tmp_path / "s").exists()


def test_no_client_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError), StoreWriter(tmp_path / "s", Schema((1,), 2)):
        pass
    assert not (tmp_path / "s").exists()


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """As a disk that is full: writing more than so many bytes to a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("names", [None, ["n" * 30_000] * 40])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, names: list[str] | None
) -> None:
    many = made([(9, 1)] * (40 if names else 400), np.float64, names=names)
    with no_file_over(80_000), pytest.raises(OutputError, match="free space or choose") as error:
        write_store(tmp_path / "s", many)
    assert "\n" not in str(error.value) and not (tmp_path / "s").exists()


def test_nothing_is_written_over(tmp_path: Path, store: Path, small: FederatedDataset) -> None:
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    with pytest.raises(OutputError, match="already holds a data set; choose another folder"):
        write_store(store, small)
    assert before == {p.name: p.read_bytes() for p in store.iterdir()}
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="already holds other files"):
        write_store(tmp_path, small)
    with pytest.raises(OutputError, match=r"notes\.txt is a file; choose a folder"):
        write_store(tmp_path / "notes.txt", small)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_folders_that_are_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist or is not a folder"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no store\.json; create a data set with"):
        open_store(tmp_path)
    assert not is_store(tmp_path) and not is_store(Path("a\0b")) and not is_store(Path("x" * 5000))


def test_an_experiment_opens_it_and_finds_its_configuration_again(store: Path) -> None:
    table = resolve_data_options({"path": str(store)})
    assert table == {"path": str(store), "stored": True}
    assert resolve_data_options(table) == table
    assert isinstance(build_dataset(table, seed=5).x, np.memmap)
    store.rename(store.parent / "gone")
    assert resolve_data_options(table) == table  # a finished run is read without its data
    with pytest.raises(DataError, match="does not exist"):
        build_dataset(table, seed=5)


OTHERS = {
    "partition": "natural", "new_clients": 1, "test_fraction": 0.3, "min_examples": 2,
    "label": "y", "client": "c", "classes": 5, "standardize": False, "own_labels": False,
    "clients": 4, "a": 4, "alpha": 1.0, "beta": 1.0, "shards_per_client": 2,
}  # fmt: skip


@pytest.mark.parametrize("option", OTHERS)
def test_options_that_would_split_it_anew_are_refused(store: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.{option} cannot be set for .* leave it out"):
        resolve_data_options({"path": str(store), option: OTHERS[option]})


def test_other_mistakes_with_a_store(store: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.stord is not an option; did you mean stored"):
        resolve_data_options({"path": str(store), "stord": True})
    with pytest.raises(ConfigError, match="exclude each other"):
        resolve_data_options({"path": str(store), "source": "digits"})
    with pytest.raises(ConfigError, match=r"data\.stored is for your own files"):
        resolve_data_options({"source": "digits", "stored": True})
    with pytest.raises(DataError, match=r"has no \.csv"):
        build_dataset({"path": str(store), "stored": False}, seed=0)


def test_every_field_of_the_card_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs/data.md").read_text()
    for name in [f.name for f in dataclasses.fields(StoreCard)] + [f"{n}.npy" for n in ARRAYS]:
        assert f"`{name}`" in text, name


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs/data.md").read_text()
    (example,) = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Writer" in b]
    exec(example, {})
    assert capsys.readouterr().out == "(16, 32)\n"


def test_a_card_from_before_targets_had_kinds_is_read(tmp_path: Path) -> None:
    """Without the later keys of the schema, a store has the digest it always had."""
    tiny = from_clients([([[0.0], [1.0]], [0, 1], [[0.5]], [1])], Schema(shape=(1,), classes=2))
    write_store(tmp_path / "old", tiny)
    card = json.loads((tmp_path / "old" / "store.json").read_text())
    for key in ("target", "targets", "target_shift", "target_scale"):
        del card["schema"][key]
    (tmp_path / "old" / "store.json").write_text(json.dumps(card))
    again = open_store(tmp_path / "old")
    assert again.schema == tiny.schema and again.digest() == tiny.digest()
