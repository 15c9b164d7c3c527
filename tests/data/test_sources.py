"""Sources read what their files say, and name a file that says something else."""

import hashlib
import io
import json
import lzma
import re
import tarfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from data import makers

from headstart.data import SOURCES, load
from headstart.data.sources import (
    _cifar10 as cifar10,
)
from headstart.data.sources import (
    _digits as digits,
)
from headstart.data.sources import (
    _fashion_mnist as fashion_mnist,
)
from headstart.data.sources import (
    _heart_disease as heart_disease,
)
from headstart.data.sources import (
    _idx as idx,
)
from headstart.data.sources import (
    _mnist as mnist,
)
from headstart.data.sources import (
    _qmnist_writers as qmnist_writers,
)
from headstart.data.sources import (
    _shakespeare as shakespeare,
)
from headstart.data.sources import (
    _wisdm as wisdm,
)
from headstart.errors import ConfigError, DataError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder HEADSTART_DATA names; small files may stand for the real ones."""
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    makers.without_digests(monkeypatch)
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_says_what_a_user_must_know(name: str) -> None:
    source = SOURCES[name]
    assert source.name == name
    for text in (source.summary, source.clients, source.licence, source.citation):
        assert text and "\n" not in text
    assert source.home.startswith("http")
    for file in source.files:
        assert file.digest or file.archive or not file.url
        assert re.fullmatch(r"(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", file.digest)
        assert re.fullmatch(r"(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})?", file.url_hash)


def test_unknown_source_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean mnist"):
        load("mnsit")


def test_digits_are_those_of_scikit_learn() -> None:
    """Digests of ``sklearn.datasets.load_digits()`` as bytes and 32-bit integers, version 1.9.1."""
    pool = load("digits")
    assert (pool.x.dtype, pool.y.dtype) == (np.uint8, np.int32)
    digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in (pool.x, pool.y)]
    assert digests == [
        "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
        "3a0e68456f9a3c609b399717dd9ca55bb9153be1bccf72e38e3319cb740c75cd",
    ]
    assert not pool.x.flags.writeable and not pool.y.flags.writeable
    assert pool.split().digest() == "16c28561ea14648f"


def test_damaged_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SHA256", "0" * 64)
    digits.load.cache_clear()
    with pytest.raises(DataError, match="damaged; install Headstart again"):
        digits.load()


def test_digits_need_nothing() -> None:
    pool = load("digits")
    assert pool.x.shape == (1797, 8, 8, 1) and pool.x.dtype == np.uint8
    assert pool.x.max() == 16 and pool.schema.scale == 1 / 16
    assert np.bincount(pool.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.parametrize("module", [mnist, fashion_mnist])
def test_mnist_format(root: Path, module: object) -> None:
    makers.put_mnist(root, module.FILES)  # type: ignore[attr-defined]
    pool = module.load()  # type: ignore[attr-defined]
    assert pool.x.shape == (60, 28, 28, 1) and pool.x.dtype == np.uint8
    assert (pool.x[:, 3, 4, 0] == np.arange(60)).all()
    assert (pool.y == np.arange(60) % 10).all()
    assert pool.test_x is not None and pool.test_x.shape == (30, 28, 28, 1)
    assert pool.schema.scale == 1 / 255


def test_real_digests_refuse_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    makers.put_mnist(tmp_path)
    with pytest.raises(DataError, match="is not the official train-images-idx3-ubyte, or damaged"):
        load("mnist")


IMAGES = makers.idx(np.zeros((3, 28, 28), np.uint8))
LABELS = makers.idx(np.array([1, 2, 3], np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00\x08", "not an IDX file"),
        (b"PK\x03\x04" + bytes(50), "not an IDX file"),
        (b"\x00\x00\x0d" + IMAGES[3:], "not an IDX file"),
        (LABELS + bytes(20), "has 1 axes, not 3"),
        (IMAGES[:-1], "cut short or damaged: 2351 bytes, not 2352"),
        (IMAGES + b"x", "cut short or damaged"),
        (makers.idx(np.zeros((3, 27, 28), np.uint8)), "28 × 28"),
        (makers.idx(np.zeros((3, 28, 28), np.int32)), "28 × 28"),
    ],
)
def test_damaged_images(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^images-file .*{message}"):
        idx.images(content, "images-file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LABELS, "3 labels for 4 images"),
        (makers.idx(np.array([1, 2, 3, 10], np.uint8)), "outside 0 … 9"),
        (makers.idx(np.array([1, 2, 3, -1], np.int32)), "outside 0 … 9"),
    ],
)
def test_damaged_labels(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^labels-file .*{message}"):
        idx.labels(content, "labels-file", rows=4)


def test_writers_own_their_digits_and_test_writers_are_new(root: Path) -> None:
    makers.put_mnist(root)
    makers.put_qmnist(root)
    data = qmnist_writers.load().split()
    assert data.clients == 7 and data.new_clients == 3
    assert data.names == [f"writer-{w}" for w in (100, 101, 102, 103, 200, 201, 202)]
    rows = data.client(1).x_train[:, 0, 0, 0]
    assert (rows % 4 == 1).all() and (data.client(1).y_train == rows % 10).all()


def test_labels_of_other_images_are_refused(root: Path) -> None:
    makers.put_mnist(root)
    makers.put_qmnist(root)
    table = np.zeros((70, 8), np.int32)
    makers.put(root, qmnist_writers.FILES[0], makers.idx(table), ".gz")
    with pytest.raises(DataError, match="does not belong to these MNIST images"):
        qmnist_writers.load()
    makers.put(root, qmnist_writers.FILES[0], makers.idx(table[:, :2].copy()), ".gz")
    with pytest.raises(DataError, match="too small for 60 images"):
        qmnist_writers.load()


@pytest.mark.parametrize("form", ["bin", "xz", "archive"])
def test_cifar_in_every_form(root: Path, form: str) -> None:
    folder = root / "cifar10"
    folder.mkdir()
    batches = {f.name: makers.cifar_batch(12, start=i) for i, f in enumerate(cifar10.FILES)}
    if form == "archive":
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
            for name, content in batches.items():
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    for name, content in batches.items():
        if form == "bin":
            (folder / name).write_bytes(content)
        if form == "xz":
            (folder / f"{name}.xz").write_bytes(lzma.compress(content, preset=0))
    pool = cifar10.load()
    assert pool.x.shape == (60, 32, 32, 3) and (pool.x == [1, 2, 3]).all()
    assert pool.y[:24].tolist() == [*range(10), 0, 1, *range(1, 10), 0, 1, 2]
    assert pool.test_y is not None and pool.test_y[0] == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are not a multiple"),
        (makers.cifar_batch(2)[:-1], "cut short or damaged"),
        (b"\x0a" + makers.cifar_batch(1)[1:], "outside 0 … 9"),
    ],
)
def test_damaged_cifar(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^batch.bin .*{message}"):
        cifar10.parse(content, "batch.bin")


def roles(**texts: list[str]) -> bytes:
    table = {"users": list(texts), "user_data": {k: {"raw": v} for k, v in texts.items()}}
    return json.dumps(table).encode()


def test_shakespeare_windows_predict_the_next_character(root: Path) -> None:
    speech = "To be, or not to be: that is the question" * 10
    makers.put(root, shakespeare.FILES[0], roles(H=[speech] * 6, small=["Ay."]), ".gz")
    pool = shakespeare.load()
    text = "".join(f"{s}\n" for s in [speech] * 6)
    characters = [*shakespeare.CHARACTERS, "?"]
    assert "".join(characters[t] for t in pool.x.ravel()) == text[: pool.x.size]
    assert "".join(characters[t] for t in pool.y.ravel()) == text[1 : pool.x.size + 1]
    assert pool.x.dtype == np.uint8 and len(pool.x) == (len(text) - 1) // 80
    assert list(pool.owner_names) == ["H"] and pool.schema.vocabulary == pool.schema.classes == 81


def test_strange_characters_are_one_token() -> None:
    x, _ = shakespeare.windows("é$漢😀" * 50)
    assert (x == 80).all()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"users": ["a"], "user_data": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"users": ["a"], "user_data": {"a": {"raw": 3}}}',
    ],
)
def test_damaged_shakespeare(content: bytes) -> None:
    with pytest.raises(DataError, match="is not JSON of the form"):
        shakespeare.parse(content)


def test_only_short_roles(root: Path) -> None:
    makers.put(root, shakespeare.FILES[0], roles(a=["x"]))
    with pytest.raises(DataError, match="no role of 2000 characters"):
        shakespeare.load()


HEART = (
    b"63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n32,1,4,0,0,?,?,?,?,?,?,?,?,3\n"
)


def test_heart_disease_columns() -> None:
    x, y = heart_disease.parse(HEART, "f")
    first = dict(zip(heart_disease.FEATURES, x[0].tolist(), strict=True))
    second = dict(zip(heart_disease.FEATURES, x[1].tolist(), strict=True))
    assert y.tolist() == [0, 1] and x.shape == (2, 29)
    assert first["age"] == 63 and first["oldpeak"] == pytest.approx(2.3)
    assert [k for k, v in first.items() if "=" in k and v] == [
        "cp=1",
        "restecg=2",
        "slope=3",
        "thal=6",
    ]
    assert not any(first[f"{c}_missing"] for c in heart_disease.INDICATED)
    assert all(second[f"{c}_missing"] for c in heart_disease.INDICATED)
    assert [k for k, v in second.items() if "=" in k and v] == ["cp=4"]


def test_missing_values_are_zero_for_the_model(root: Path) -> None:
    for file in heart_disease.FILES:
        makers.put(root, file, HEART)
    pool = heart_disease.load()
    decoded = np.asarray(pool.schema.decode(jnp.asarray(pool.x)))[1]
    known = dict(zip(heart_disease.FEATURES, decoded.tolist(), strict=True))
    assert known["chol"] == known["trestbps"] == known["thalach"] == known["ca"] == 0
    assert known["age"] == pytest.approx((32 - 54) / 9)
    assert list(pool.owner_names) == ["cleveland", "hungarian", "switzerland", "va"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f is empty"),
        (b"1,2,3\n", "f line 1 does not have 13 values"),
        (HEART + HEART[:40], "f line 3 does not have 13 values"),
        (HEART.replace(b"63.0", b"abc"), "f line 1 has a cell that is neither"),
        (HEART.replace(b"63.0", b"?"), "f line 1 has no age"),
        (HEART.replace(b"63.0", b"nan"), "not finite"),
        (HEART.replace(b",6.0,0", b",5.0,0"), "thal=5.0, which is not one of"),
        (b"\xff\x00\x01", "f line 1"),
    ],
)
def test_damaged_heart_disease(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        heart_disease.parse(content, "f")


def arff(*rows: str) -> bytes:
    return ("@relation r\n@attribute x numeric\n\n@data\n" + "\n".join(rows) + "\n").encode()


def wisdm_row(person: int, activity: str, peak: str = "1500") -> str:
    cells = ["0.1"] * 30 + ["0", "9", "1", peak, "300", "900"] + ["2"] * 6 + ["10"]
    return ",".join(["1", str(person), *cells, activity])


def test_wisdm_columns(root: Path) -> None:
    rows = [wisdm_row(p, a) for p in (3, 17) for a in wisdm.ACTIVITIES]
    makers.put(root, wisdm.FILES[0], arff(*rows, "% a comment", wisdm_row(3, "Walking", "?")))
    pool = wisdm.load()
    assert list(pool.owner_names) == ["person-3", "person-17"]
    assert pool.y.tolist() == [0, 1, 2, 3, 4, 5] * 2 + [0]
    decoded = np.asarray(pool.schema.decode(jnp.asarray(pool.x)))
    seen = dict(zip(wisdm.FEATURES, decoded[-1].tolist(), strict=True))
    assert seen["XPEAK"] == 0 and seen["XPEAK_missing"] == 1 and seen["YPEAK_missing"] == 0
    assert seen["X0"] == pytest.approx(0, abs=1e-5) and seen["YAVG"] == pytest.approx(9 / 5)
    assert np.abs(decoded).max() < 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no @data"),
        (arff(), "no line after @data"),
        (arff("1,2,3"), "f line 5 does not have 46 values"),
        (arff(wisdm_row(1, "Flying")), "the last one an activity"),
        (arff(wisdm_row(1, "Walking"), wisdm_row(1, "Walking", "x")), "f line 6 has a cell"),
        (arff(wisdm_row(1, "Walking").replace("0.1", "?", 1)), "not a number"),
        (arff(wisdm_row(1, "Walking", "inf")), "not finite"),
    ],
)
def test_damaged_wisdm(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        wisdm.parse(content, "f")
