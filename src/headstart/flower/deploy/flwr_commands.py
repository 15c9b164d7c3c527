"""``python -m headstart.flower.deploy.flwr_commands``: several of Flower's commands in one process.

Reads a JSON list of commands, each a list of words, and writes a JSON list of answers. Starting
``flwr`` takes seconds, and registering every site is a command of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


def answer(words: list[str]) -> dict[str, Any]:
    """What ``flwr WORDS`` says: its JSON, or its text."""
    import click
    from flwr.cli.app import app

    as_json = words[0] != "log"
    why = ""
    with tempfile.TemporaryFile("w+") as heard:
        try:
            with _everything_to(heard):
                app([*words, *(["--format", "json"] if as_json else [])], standalone_mode=False)
        except (SystemExit, click.ClickException) as error:
            why = str(getattr(error, "message", ""))
        heard.seek(0)
        text = heard.read()
    if not as_json:
        return {"text": text}
    try:
        return json.JSONDecoder().raw_decode(text[max(text.find("{"), 0) :])[0]
    except ValueError:
        lines = [line for line in (text + why).splitlines() if line.strip()] or ["no answer"]
        return {"success": False, "error-message": lines[-1]}


@contextmanager
def _everything_to(file: IO[str]) -> Iterator[None]:
    """Also what is written past Python's own standard output, as Flower does."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    print(json.dumps([answer(words) for words in json.load(sys.stdin)]))
