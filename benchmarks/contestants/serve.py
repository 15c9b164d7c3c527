"""A contestant's process: waits, asleep, for one line of JSON, does it, answers with one line."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Protocol

from benchmarks.cases import CASES, Case


class Contestant(Protocol):
    """What a file of this folder has to offer, under the name ``Contestant``."""

    def prepare(self, case: Case, method: str) -> dict[str, Any]:
        """Compile and warm up; count the ``gradients`` of a round and ``parameters``."""

    def run(self, rounds: int) -> dict[str, Any]:
        """Return the ``seconds`` that this many rounds took."""

    def direction(self, case: Case, method: str, to: str) -> dict[str, Any]:
        """Write the direction of a local step on the fixed batches, as ``.npz``."""


def main(name: str) -> None:
    """Serve until standard input closes. Whatever libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=replies, flush=True)

    try:
        module = importlib.import_module(f"benchmarks.contestants.{name}")
    except ModuleNotFoundError as error:
        return reply({"missing": error.name})
    contestant: Contestant = module.Contestant()
    reply({"ready": True})
    for line in sys.stdin:
        message = json.loads(line)
        if "case" in message:
            message["case"] = CASES[message["case"]]
        reply(getattr(contestant, message.pop("do"))(**message))
    return None


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
