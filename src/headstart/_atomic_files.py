"""Write files atomically: to a temporary file, synced, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headstart.errors import OutputError


@contextmanager
def clear_write_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into an OutputError of one line."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(
            f"cannot write {path}: {reason}; free space or choose another folder with --out"
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step; on failure the old file stays and no other is left."""
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name)
            raise


def write_text(path: Path, content: str) -> None:
    """Replace a text file in one step."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file in one step; NaN is an error, since it is not JSON."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def append_line(path: Path, line: str) -> None:
    """Append one line to a file."""
    with clear_write_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
