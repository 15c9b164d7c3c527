"""Files are found in order, checked, and fetched whole or not at all."""

import gzip
import hashlib
import io
import lzma
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.errors import DataError

CONTENT = b"some numbers\n" * 100
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder HEADSTART_DATA names, and an empty cache."""
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(downloads, "cache", lambda: tmp_path / "cache")
    (tmp_path / "data" / "here").mkdir(parents=True)
    return tmp_path


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not write to the screen."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """An address on this machine that serves the folder ``served``."""
    (tmp_path / "served").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def archive(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"folder/{name}")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def forms(content: bytes) -> dict[str, bytes]:
    """The file under every name it may have."""
    return {
        "f.txt": content,
        "f.txt.gz": gzip.compress(content),
        "f.txt.xz": lzma.compress(content),
        "f.tar.gz": archive("f.txt", content),
    }


FORMS = forms(CONTENT)


@pytest.mark.parametrize("name", FORMS)
def test_a_file_may_be_packed_in_any_way(root: Path, name: str) -> None:
    (root / "data/here" / name).write_bytes(FORMS[name])
    file = DataFile("here", "f.txt", digest=DIGEST, archive="f.tar.gz")
    assert downloads.read([file, file]) == [CONTENT, CONTENT]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "other"])
def test_a_damaged_file_is_named(root: Path, name: str, damage: str) -> None:
    content = FORMS[name]
    broken = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "noise": b"\x07" * 50,
        "other": forms(CONTENT + b"x")[name],
    }[damage]
    (root / "data/here" / name).write_bytes(broken)
    file = DataFile("here", "f.txt", digest=DIGEST, archive="f.tar.gz")
    with pytest.raises(DataError) as error:
        downloads.read([file])
    assert str(root / "data/here" / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_archive_without_the_file(root: Path) -> None:
    (root / "data/here/f.tar.gz").write_bytes(archive("other.txt", CONTENT))
    with pytest.raises(DataError, match=r"f\.tar\.gz does not hold f\.txt"):
        downloads.read([DataFile("here", "f.txt", archive="f.tar.gz")])


def test_named_folder_comes_before_packages_before_cache(root: Path) -> None:
    file = DataFile("here", "f.txt", places=(str(root / "package"),))
    for place in ("cache/here", "package", "data/here"):
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / "f.txt").write_text(place)
        assert downloads.find(file) == root / place / "f.txt"


def test_unpacked_xz_is_remembered_and_checked(root: Path) -> None:
    packed, kept = root / "data/here/f.txt.xz", root / "cache/here/f.txt"
    packed.write_bytes(lzma.compress(CONTENT))
    file = DataFile("here", "f.txt", digest=DIGEST)
    assert downloads.read([file]) == [CONTENT] and kept.read_bytes() == CONTENT
    kept.write_bytes(b"damaged")
    assert downloads.read([file]) == [CONTENT] and kept.read_bytes() == CONTENT
    assert [p.name for p in kept.parent.iterdir()] == ["f.txt"]


def test_a_missing_file_without_download_says_where_to_put_it(root: Path) -> None:
    with pytest.raises(DataError, match=r"f\.txt not found .*put it into .*data/here$"):
        downloads.read([DataFile("here", "f.txt")])


def test_download_goes_to_the_cache_and_stays(root: Path, server: str) -> None:
    (root / "served/f.txt.gz").write_bytes(FORMS["f.txt.gz"])
    of_gz = "sha256:" + hashlib.sha256(FORMS["f.txt.gz"]).hexdigest()
    file = DataFile("here", "f.txt", f"{server}/f.txt.gz", of_gz, DIGEST)
    assert downloads.read([file]) == [CONTENT]
    (root / "served/f.txt.gz").unlink()
    assert downloads.read([file]) == [CONTENT]
    assert [p.name for p in (root / "cache/here").iterdir()] == ["f.txt.gz"]


@pytest.mark.parametrize("known", [True, False])
def test_a_wrong_download_leaves_nothing_behind(root: Path, server: str, known: bool) -> None:
    (root / "served/f.tar.gz").write_text("<html>sorry</html>")
    of_url = "sha256:" + "0" * 64 if known else ""
    file = DataFile("here", "f.txt", f"{server}/f.tar.gz", of_url, archive="f.tar.gz")
    with pytest.raises(DataError) as error:
        downloads.read([file])
    assert "\n" not in str(error.value) and "f.tar.gz" in str(error.value)
    assert list((root / "cache/here").iterdir()) == []


def test_no_connection_is_one_line_with_all_that_is_missing(root: Path) -> None:
    gone = "http://127.0.0.1:9/"
    missing = [DataFile("here", n, f"{gone}{n}.gz", "md5:0") for n in ("f.txt", "g.txt")]
    with pytest.raises(DataError) as error:
        downloads.read(missing)
    text = str(error.value)
    assert text.startswith("f.txt.gz, g.txt.gz not found") and "no connection" in text
    assert text.endswith(f"put the missing files into {root / 'data/here'}")


def test_a_cache_that_cannot_be_written_is_one_line(
    root: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "served/f.txt").write_bytes(CONTENT)
    (root / "blocked").write_text("a file, not a folder")
    monkeypatch.setattr(downloads, "cache", lambda: root / "blocked")
    with pytest.raises(DataError, match=r"f\.txt not found"):
        downloads.read([DataFile("here", "f.txt", f"{server}/f.txt", DIGEST, DIGEST)])


def test_the_variable_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADSTART_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert downloads.home("mnist").parts[-2:] == ("data", "mnist")
    with pytest.raises(DataError, match="or set HEADSTART_DATA"):
        downloads.read([DataFile("here", "f.txt")])
