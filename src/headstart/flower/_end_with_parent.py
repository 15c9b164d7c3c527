"""``python -m headstart.flower._end_with_parent PARENT COMMAND…``: end COMMAND when PARENT ends.

This also works if the parent is killed (on Linux; elsewhere the command just runs). It is a
separate program because a process with many threads must not run code between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by the command."""
    end_with_parent()
    if os.getppid() != parent:  # It ended before we could ask for the signal.
        sys.exit(0)
    os.execvp(command[0], command)


def end_with_parent() -> None:
    """Make this process end when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
