"""The connection between the process Flower starts for a message and the site's worker.

A Unix socket in a folder that only its owner may enter; both sides also prove that they know a
key. A file in the work folder, readable by its owner only, says where the socket is and what the
key is. Messages are bytes (``send_bytes``, ``recv_bytes``): nothing is pickled. Light: no JAX.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from headstart.flower._federation_errors import WorkerError

ADDRESS_FILE = "worker.socket"
"""In the work folder: the path of the socket (whose length the system limits) and the key."""
KEY_BYTES = 32
BACKLOG = 16
LONGEST_MESSAGE = 1 << 41
LONGEST_KIND = 200

AnswerBytes = Callable[[bytes], bytes]


def ask_worker(work: Path, order: bytes) -> bytes | None:
    """Return the worker's answer; None without a worker; raise WorkerError if it failed."""
    try:
        path, key = (work / ADDRESS_FILE).read_text(encoding="utf-8").split("\n")
        connection = Client(path, family="AF_UNIX", authkey=bytes.fromhex(key))
    except (OSError, ValueError, EOFError, AuthenticationError):
        return None
    with connection:
        try:
            connection.send_bytes(order)
            failure = connection.recv_bytes(LONGEST_KIND).decode()
            answer = connection.recv_bytes(LONGEST_MESSAGE)
        except (OSError, EOFError):
            raise WorkerError("ConnectionError") from None
    if failure:
        raise WorkerError(failure)
    return answer


@contextlib.contextmanager
def listen(work: Path, answer: AnswerBytes) -> Iterator[None]:
    """Answer orders in the background, one at a time, while the block runs.

    ``answer`` may raise WorkerError: its ``kind`` is sent in place of an answer.
    """
    folder = Path(tempfile.mkdtemp(prefix="headstart-"))
    key = os.urandom(KEY_BYTES)
    listener = Listener(str(folder / "worker"), family="AF_UNIX", backlog=BACKLOG, authkey=key)
    closed = threading.Event()
    try:
        _write_secret(work / ADDRESS_FILE, f"{listener.address}\n{key.hex()}")
        threading.Thread(target=_serve, args=(listener, answer, closed), daemon=True).start()
        yield
    finally:
        closed.set()
        (work / ADDRESS_FILE).unlink(missing_ok=True)
        listener.close()
        folder.rmdir()


def _serve(listener: Listener, answer: AnswerBytes, closed: threading.Event) -> None:
    while not closed.is_set():
        try:
            connection = listener.accept()
        except (OSError, EOFError, AuthenticationError):  # closed; or a stranger, or one that left
            continue
        with connection, contextlib.suppress(OSError, EOFError):
            _answer_one(connection, answer)


def _answer_one(connection: Connection, answer: AnswerBytes) -> None:
    order = connection.recv_bytes(LONGEST_MESSAGE)
    try:
        failure, content = "", answer(order)
    except WorkerError as error:
        failure, content = error.kind, b""
    connection.send_bytes(failure.encode())
    connection.send_bytes(content)


def _write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from the first moment on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
