"""What tests of commands in processes of their own share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Start = Callable[..., "subprocess.Popen[str]"]
PATIENCE = 600
"""Seconds after which a test calls it a hang; the machine may be slow and busy."""
