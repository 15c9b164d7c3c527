"""Commands in processes of their own, always ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from cli.commands import Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Start ``headstart`` commands; end those that still run when the test is over."""
    started: list[subprocess.Popen[str]] = []

    def start_command(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "headstart", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_command
    for process in started:
        process.kill()
        process.communicate()
