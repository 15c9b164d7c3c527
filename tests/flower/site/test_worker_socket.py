"""The connection between the process of a message and the resident worker."""

from __future__ import annotations

import stat
import subprocess
import sys
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from headstart.flower._federation_errors import WorkerError
from headstart.flower.protocol._error_codes import code_of
from headstart.flower.site._worker_socket import ADDRESS_FILE, ask_worker, listen


def test_the_process_of_a_message_does_without_jax() -> None:
    code = (
        "import sys, headstart.flower.site.client_app as c; "
        "sys.exit(any(m in sys.modules for m in ('jax', 'scipy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_worker_answers_over_its_socket(tmp_path: Path) -> None:
    order = bytes(range(256)) * 10_000
    assert ask_worker(tmp_path, order) is None
    with listen(tmp_path, lambda content: content[::-1]):
        address = tmp_path / ADDRESS_FILE
        assert stat.S_IMODE(address.stat().st_mode) == 0o600
        socket = Path(address.read_text().splitlines()[0])
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        for _ in range(2):
            assert ask_worker(tmp_path, order) == order[::-1]
    assert ask_worker(tmp_path, order) is None
    assert not socket.parent.exists()


def test_a_workers_failure_keeps_its_class(tmp_path: Path) -> None:
    def fail(content: bytes) -> bytes:
        raise WorkerError("DataError")

    with listen(tmp_path, fail), pytest.raises(WorkerError) as caught:
        ask_worker(tmp_path, b"")
    assert code_of(caught.value.kind) == 102


def test_a_stranger_is_not_answered_and_does_not_end_the_worker(tmp_path: Path) -> None:
    with listen(tmp_path, lambda content: b"secret"):
        path, key = (tmp_path / ADDRESS_FILE).read_text().split("\n")
        with pytest.raises(Exception, match="digest"):
            Client(path, family="AF_UNIX", authkey=b"guess")
        Client(path, family="AF_UNIX", authkey=bytes.fromhex(key)).close()
        assert ask_worker(tmp_path, b"") == b"secret"
