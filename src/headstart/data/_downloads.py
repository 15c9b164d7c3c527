"""Find a source's files, or download them.

The search order is ``$HEADSTART_DATA/<folder>/``, the folders of the operating system's packages,
and the user's cache; then files are downloaded into the cache from the source's official home. The
unpacked content is checked against a known digest, so a file that was compressed again is fine, and
a damaged one is never used.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import DataError

VARIABLE = "HEADSTART_DATA"
_ARCHIVES = (".tar.gz", ".tgz")
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)


@dataclass(frozen=True)
class DataFile:
    """One file of a source: where it may lie, where it comes from, what is in it."""

    folder: str
    name: str
    """Name of the unpacked file; with .gz or .xz after it, it may be packed."""
    url: str = ""
    url_hash: str = ""
    """Digest of what the address gives, as ``sha256:…`` or ``md5:…``."""
    digest: str = ""
    """Digest of the unpacked content, in the same form."""
    archive: str = ""
    """Name of an archive that may hold the file."""
    places: tuple[str, ...] = ()
    """Folders in which the operating system's packages put it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which the file is accepted."""
        packed = (self.name, f"{self.name}.gz", f"{self.name}.xz")
        return (*packed, self.archive) if self.archive else packed


def cache() -> Path:
    """The user's folder for downloaded data."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("headstart")) / "data"


def home(folder: str) -> Path:
    """Where the user is asked to put files of this folder."""
    named = os.environ.get(VARIABLE)
    return (Path(named).expanduser() if named else cache()) / folder


def find(file: DataFile) -> Path | None:
    """The file on this machine, or None."""
    places = [home(file.folder), *map(Path, file.places), cache() / file.folder]
    paths = (place / name for place in places for name in file.names)
    return next((path for path in paths if path.is_file()), None)


def get(files: Sequence[DataFile]) -> list[Path]:
    """The files on this machine, downloaded if need be."""
    missing = [file for file in files if find(file) is None]
    return [find(file) or _download(file, missing) for file in files]


def read(files: Sequence[DataFile]) -> list[bytes]:
    """The unpacked, checked content of each file."""
    paths = get(files)
    archives = {path: _members(path) for path in set(paths) if path.name.endswith(_ARCHIVES)}
    with ThreadPoolExecutor() as pool:  # unpacking leaves the interpreter free
        return list(pool.map(lambda f, p: _content(f, p, archives.get(p)), files, paths))


def _content(file: DataFile, path: Path, members: dict[str, bytes] | None) -> bytes:
    if members is None:
        content = _unpacked_before(file, path) or unpack(path)
    elif file.name in members:
        content = members[file.name]
    else:
        raise DataError(f"{path} does not hold {file.name}; download it again{_from(file)}")
    if not _matches(file, content):
        raise DataError(
            f"{path} is not the official {file.name}, or damaged: its digest differs; "
            f"download it again{_from(file)}"
        )
    if path.suffix == ".xz" and file.digest:
        _remember(file, content)
    return content


def _matches(file: DataFile, content: bytes) -> bool:
    kind, _, digest = file.digest.partition(":")
    return not digest or hashlib.new(kind, content, usedforsecurity=False).hexdigest() == digest


def _unpacked_before(file: DataFile, path: Path) -> bytes | None:
    """What :func:`_remember` put aside, if it is whole: unpacking .xz takes many times longer."""
    kept = cache() / file.folder / file.name
    if path.suffix != ".xz" or not file.digest or not kept.is_file():
        return None
    content = unpack(kept)
    return content if _matches(file, content) else None


def _remember(file: DataFile, content: bytes) -> None:
    """Put the unpacked file into the cache, whole or not at all; a full disk is not an error."""
    kept = cache() / file.folder / file.name
    if kept.is_file() and kept.stat().st_size == len(content):
        return
    beside = kept.with_name(f"{kept.name}.{os.getpid()}.part")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(kept)
    except OSError:
        beside.unlink(missing_ok=True)


def unpack(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .xz."""
    try:
        packed = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(packed)
        return lzma.decompress(packed) if path.suffix == ".xz" else packed
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}; download it again") from None


def _members(path: Path) -> dict[str, bytes]:
    """All plain files of an archive by their name, in one pass; nothing is written to disk."""
    try:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
            opened = ((m.name, archive.extractfile(m)) for m in archive if m.isfile())
            return {Path(name).name: file.read() for name, file in opened if file is not None}
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}; download it again") from None


def _download(file: DataFile, missing: Sequence[DataFile]) -> Path:
    """Fetch into the cache; it appears there whole or not at all."""
    wanted = ", ".join(dict.fromkeys(f.url.rsplit("/", 1)[-1] or f.name for f in missing))
    places = " and ".join(dict.fromkeys(str(home(f.folder)) for f in missing))
    if not os.environ.get(VARIABLE):
        places += f" or set {VARIABLE} to the folder that holds such folders"
    if not file.url:
        raise DataError(f"{wanted} not found and has no download; put it into {places}")
    import pooch

    pooch.get_logger().setLevel("ERROR")
    try:
        stored = pooch.retrieve(
            file.url,
            known_hash=file.url_hash or None,
            fname=file.url.rsplit("/", 1)[-1],
            path=cache() / file.folder,
        )
    except Exception as error:  # any failure of network, proxy, disk or digest ends the same way
        raise DataError(
            f"{wanted} not found, and {file.url} gave nothing ({_reason(error)}); "
            f"put what is missing into {places}"
        ) from None
    if not file.url_hash:
        _keep_if_sound(file, Path(stored))
    return Path(stored)


def _keep_if_sound(file: DataFile, path: Path) -> None:
    """Without a known digest an error page may have come instead: it must not stay in the cache."""
    try:
        _content(file, path, _members(path) if path.name.endswith(_ARCHIVES) else None)
    except DataError:
        path.unlink(missing_ok=True)
        raise


def _from(file: DataFile) -> str:
    return f" from {file.url}" if file.url else ""


def _reason(error: Exception) -> str:
    """The first line of an error, short enough for one line of ours."""
    if "ConnectionPool" in str(error):
        return "no connection"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 120 else f"{lines[0][:117]}…"
