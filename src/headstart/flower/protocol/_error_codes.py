"""What leaves a site about a failure: the class of the exception and a code, never its text."""

from __future__ import annotations

CODES = {
    "ConfigError": 101,
    "DataError": 102,
    "OutputError": 103,
    "CheckpointError": 104,
    "DivergedError": 105,
    "MemoryError": 106,
    "WorkerError": 110,
}
OTHER = 199
NO_ANSWER_IN_TIME = (3, 4)
NOT_CONNECTED = (5,)
"""Flower's own codes for messages that were not answered."""
MEANINGS = {
    1: "cannot load the app; is headstart[flower] installed there, as new as the server's?",
    2: "failed outside Headstart's part of the app",
    7: "cannot use the app it was sent",
    101: "does not know the model or algorithm; is its Headstart as new as the server's?",
    102: "cannot use its data",
    103: "cannot write to its disk",
    104: "has a damaged memory or start",
    105: "diverged: its update is not finite; use a smaller step",
    106: "has not enough memory",
    199: "failed",
}


def code_of(kind: str) -> int:
    """Return the code of an exception's class."""
    return CODES.get(kind, OTHER)


def explain(code: int, kind: str) -> str:
    """Return a code in words, for the server's log."""
    return f"{MEANINGS.get(code, MEANINGS[OTHER])} ({kind}, code {code})"
