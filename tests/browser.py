"""A page in headless Chromium."""

from __future__ import annotations

import subprocess
from pathlib import Path


def browse(chromium: str, page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """The page's elements after its scripts have run, and what the browser logged."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--no-first-run", f"--user-data-dir={profile}", "--virtual-time-budget=8000",
             "--window-size=1200,1600", "--hide-scrollbars", "--enable-logging=stderr"]  # fmt: skip
    command = [chromium, *flags, *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def complaints(log: str) -> list[str]:
    """What the page's own code or the security policy reported to the console."""
    return [line for line in log.splitlines() if "CONSOLE" in line]
