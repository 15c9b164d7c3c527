"""What the log of Flower's node says about its connection.

flwr 1.41.0 offers no other way to know: its node exits with code 1 for every error, has no
interface that says whether the server has accepted it, and only writes its number to the log. All
texts of Flower that Headstart looks for are in this module.
"""

from __future__ import annotations

from pathlib import Path

CONNECTED = "SuperNode ID"
"""Flower's node writes this once the server has accepted it."""
REFUSED = "Failed to activate"
"""Flower's server says this to a node with an unknown key or an old lease."""


class NodeLog:
    """The part of a log that a node writes from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begin = path.stat().st_size if path.exists() else 0

    @property
    def is_connected(self) -> bool:
        """Whether the server has accepted the node."""
        return CONNECTED in self._text()

    @property
    def is_refused(self) -> bool:
        """Whether the server has refused the node."""
        return REFUSED in self._text()

    def _text(self) -> str:
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self.begin)
            return file.read().decode(errors="replace")
