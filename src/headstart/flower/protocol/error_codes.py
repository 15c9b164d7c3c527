"""What a site says of a failure: the class of the exception and a code, never its text."""

from __future__ import annotations

from headstart.errors import HeadstartError

CODES = {
    "ConfigError": 101,
    "DataError": 102,
    "OutputError": 103,
    "CheckpointError": 104,
    "DivergedError": 105,
    "MemoryError": 106,
    "SiteError": 110,
}
OTHER = 199
NO_ANSWER_IN_TIME = (3, 4)
NOT_THERE = (5,)
"""Flower's own codes for messages that nobody answered."""
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
    """The code of an exception's class."""
    return CODES.get(kind, OTHER)


def meaning(code: int, kind: str) -> str:
    """For the server's log."""
    return f"{MEANINGS.get(code, MEANINGS[OTHER])} ({kind}, code {code})"


class SiteError(HeadstartError):
    """The site's worker could not answer; ``kind`` is the class of what happened there."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the worker failed with {kind}; see errors.log")
        self.kind = kind


class SupersededError(HeadstartError):
    """Another process has taken up the run: this one must not touch it any more."""


class FederationError(HeadstartError):
    """A federation cannot go on: too few sites, or too few usable answers."""
