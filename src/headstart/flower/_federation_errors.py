"""The errors of a federation.

HeadstartError
├── FederationError    a run cannot continue: too few sites, or too few usable answers
├── SupersededError    another server process has resumed the run
└── WorkerError        a site's worker could not carry out an order
"""

from __future__ import annotations

from headstart.errors import HeadstartError


class FederationError(HeadstartError):
    """A run cannot continue: too few sites, or too few usable answers."""


class SupersededError(HeadstartError):
    """Another server process has resumed the run: this one must stop writing to it."""


class WorkerError(HeadstartError):
    """A site's worker could not carry out an order; ``kind`` is the class of its exception."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the worker failed with {kind}; see errors.log")
        self.kind = kind
