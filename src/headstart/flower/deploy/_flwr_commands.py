"""``python -m headstart.flower.deploy._flwr_commands``: several of Flower's commands at once.

Reads a JSON list of commands, each a list of words, and writes a JSON list of answers. Starting
``flwr`` takes seconds, and every site is registered with a separate command.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


def run_command(words: list[str]) -> dict[str, Any]:
    """Run ``flwr WORDS`` and return its JSON, or its text."""
    import click
    from flwr.cli.app import app

    as_json = words[0] != "log"
    why = ""
    with tempfile.TemporaryFile("w+") as output:
        try:
            with _redirect_output(output):
                app([*words, *(["--format", "json"] if as_json else [])], standalone_mode=False)
        except (SystemExit, click.ClickException) as error:
            why = str(getattr(error, "message", ""))
        output.seek(0)
        text = output.read()
    if not as_json:
        return {"text": text}
    try:
        return json.JSONDecoder().raw_decode(text[max(text.find("{"), 0) :])[0]
    except ValueError:
        lines = [line for line in (text + why).splitlines() if line.strip()] or ["no answer"]
        return {"success": False, "error-message": lines[-1]}


@contextmanager
def _redirect_output(file: IO[str]) -> Iterator[None]:
    """Redirect standard output, also what Flower writes without Python's ``sys.stdout``."""
    sys.stdout.flush()
    original = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(original, 1)
        os.close(original)


if __name__ == "__main__":
    print(json.dumps([run_command(words) for words in json.load(sys.stdin)]))
