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
    """One file of a source: its name, where to look for it, where to download it, its digests."""

    folder: str
    name: str
    """Name of the unpacked file; a packed file has .gz or .xz appended."""
    url: str = ""
    url_hash: str = ""
    """Digest of the downloaded file, as ``sha256:…`` or ``md5:…``."""
    digest: str = ""
    """Digest of the unpacked content, in the same form."""
    archive: str = ""
    """Name of an archive that may hold the file."""
    places: tuple[str, ...] = ()
    """Folders where packages of the operating system install it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which the file is accepted."""
        packed = (self.name, f"{self.name}.gz", f"{self.name}.xz")
        return (*packed, self.archive) if self.archive else packed


def cache() -> Path:
    """Return the user's folder for downloaded data."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("headstart")) / "data"


def home(folder: str) -> Path:
    """Return where the user should put the files of this folder."""
    data_folder = os.environ.get(VARIABLE)
    return (Path(data_folder).expanduser() if data_folder else cache()) / folder


def find(file: DataFile) -> Path | None:
    """Return the path of the file on this machine, or None."""
    places = [home(file.folder), *map(Path, file.places), cache() / file.folder]
    paths = (place / name for place in places for name in file.names)
    return next((path for path in paths if path.is_file()), None)


def get(files: Sequence[DataFile]) -> list[Path]:
    """Return the paths of the files, downloading those that are missing."""
    missing = [file for file in files if find(file) is None]
    return [find(file) or _download(file, missing) for file in files]


def read(files: Sequence[DataFile]) -> list[bytes]:
    """Read each file, unpack it and check its digest."""
    paths = get(files)
    archives = {path: _read_archive(path) for path in set(paths) if path.name.endswith(_ARCHIVES)}
    with ThreadPoolExecutor() as pool:  # unpacking releases the interpreter lock
        return list(pool.map(lambda f, p: _read_content(f, p, archives.get(p)), files, paths))


def _read_content(file: DataFile, path: Path, members: dict[str, bytes] | None) -> bytes:
    if members is None:
        content = _read_unpacked_copy(file, path) or unpack(path)
    elif file.name in members:
        content = members[file.name]
    else:
        raise DataError(f"{path} does not hold {file.name}; download it again{_from_where(file)}")
    if not _matches(file, content):
        raise DataError(
            f"{path} is not the official {file.name}, or damaged: its digest differs; "
            f"download it again{_from_where(file)}"
        )
    if path.suffix == ".xz" and file.digest:
        _keep_unpacked_copy(file, content)
    return content


def _matches(file: DataFile, content: bytes) -> bool:
    kind, _, digest = file.digest.partition(":")
    return not digest or hashlib.new(kind, content, usedforsecurity=False).hexdigest() == digest


def _read_unpacked_copy(file: DataFile, path: Path) -> bytes | None:
    """Return the cached unpacked copy if it is intact; unpacking .xz takes many times longer."""
    copy = cache() / file.folder / file.name
    if path.suffix != ".xz" or not file.digest or not copy.is_file():
        return None
    content = unpack(copy)
    return content if _matches(file, content) else None


def _keep_unpacked_copy(file: DataFile, content: bytes) -> None:
    """Put the unpacked file into the cache, whole or not at all; a full disk is not an error."""
    copy = cache() / file.folder / file.name
    if copy.is_file() and copy.stat().st_size == len(content):
        return
    partial = copy.with_name(f"{copy.name}.{os.getpid()}.part")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(copy)
    except OSError:
        partial.unlink(missing_ok=True)


def unpack(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz or .xz."""
    try:
        packed = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(packed)
        return lzma.decompress(packed) if path.suffix == ".xz" else packed
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}; download it again") from None


def _read_archive(path: Path) -> dict[str, bytes]:
    """Read all plain files of an archive, by name, in one pass; nothing is written to disk."""
    try:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
            opened = ((m.name, archive.extractfile(m)) for m in archive if m.isfile())
            return {Path(name).name: file.read() for name, file in opened if file is not None}
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}; download it again") from None


def _download(file: DataFile, missing: Sequence[DataFile]) -> Path:
    """Download the file into the cache, where it appears whole or not at all."""
    names = ", ".join(dict.fromkeys(f.url.rsplit("/", 1)[-1] or f.name for f in missing))
    places = " and ".join(dict.fromkeys(str(home(f.folder)) for f in missing))
    if not os.environ.get(VARIABLE):
        places += f" or set {VARIABLE} to the folder that holds such folders"
    if not file.url:
        raise DataError(f"{names} not found and cannot be downloaded; put it into {places}")
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
            f"{names} not found, and {file.url} cannot be downloaded ({_reason(error)}); "
            f"put the missing files into {places}"
        ) from None
    if not file.url_hash:
        _remove_if_damaged(file, Path(stored))
    return Path(stored)


def _remove_if_damaged(file: DataFile, path: Path) -> None:
    """Remove a download that is not the expected file, for instance an error page."""
    try:
        _read_content(file, path, _read_archive(path) if path.name.endswith(_ARCHIVES) else None)
    except DataError:
        path.unlink(missing_ok=True)
        raise


def _from_where(file: DataFile) -> str:
    return f" from {file.url}" if file.url else ""


def _reason(error: Exception) -> str:
    """Return the first line of an error, shortened to fit into a one-line message."""
    if "ConnectionPool" in str(error):
        return "no connection"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 120 else f"{lines[0][:117]}…"
