"""The local line between the process Flower starts for a message and the site's worker.

A Unix socket in a folder only its owner may enter; the work folder says where. Light: no JAX.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from headstart.atomic_files import write_text
from headstart.errors import DataError
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.protocol.error_codes import SiteError

WHERE = "worker.socket"
"""File in the work folder with the path of the socket (whose length the system limits)."""
CONNECT_SECONDS = 5.0


def ask_worker(work: Path, order: Parcel) -> Parcel | None:
    """The worker's answer; None if there is no worker; SiteError if it failed."""
    try:
        path = (work / WHERE).read_text(encoding="utf-8")
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(CONNECT_SECONDS)
        line.connect(path)
    except OSError:
        return None
    with line:
        line.settimeout(None)
        line.sendall(wire.to_stream(order))
        answer = wire.from_stream(_reader(line))
    if "failed" in answer.text:
        raise SiteError(str(answer.text["failed"]))
    return answer


@contextlib.contextmanager
def listening(work: Path, answer: Callable[[Parcel], Parcel]) -> Iterator[None]:
    """Answer orders in the background, one at a time, until the block is left."""
    folder = Path(tempfile.mkdtemp(prefix="headstart-"))
    path = folder / "line"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        os.chmod(path, 0o600)
        server.listen()
        write_text(work / WHERE, str(path))
        threading.Thread(target=_serve, args=(server, answer), daemon=True).start()
        try:
            yield
        finally:
            (work / WHERE).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            folder.rmdir()


def _serve(server: socket.socket, answer: Callable[[Parcel], Parcel]) -> None:
    while True:
        try:
            line, _ = server.accept()
        except OSError:  # closed
            return
        with line, contextlib.suppress(OSError, DataError):
            order = wire.from_stream(_reader(line))
            line.sendall(wire.to_stream(answer(order)))


def _reader(line: socket.socket) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        parts, left = [], count
        while left:
            part = line.recv(min(left, 1 << 20))
            if not part:
                raise DataError("the line was cut")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    return read
