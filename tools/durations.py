"""Print the slowest tests of the last run, and the test files by their total time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

DURATIONS = Path(__file__).resolve().parent.parent / ".cache" / "durations.json"


def main() -> None:
    """Print two tables from what ``tests/conftest.py`` stored."""
    if not DURATIONS.exists():
        sys.exit("no test has been run yet; run: make test")
    tests: dict[str, float] = json.loads(DURATIONS.read_text())
    files: dict[str, float] = {}
    for name, seconds in tests.items():
        file = name.partition("::")[0]
        files[file] = files.get(file, 0.0) + seconds
    print(f"{len(tests)} tests, {sum(tests.values()):.0f} s in all workers together\n")
    _print_table("file", files, 20)
    _print_table("test", tests, 40)


def _print_table(title: str, seconds: dict[str, float], rows: int) -> None:
    print(f"{'seconds':>8}  {title}")
    for name, value in sorted(seconds.items(), key=lambda row: -row[1])[:rows]:
        print(f"{value:8.1f}  {name[:150]}")
    print()


if __name__ == "__main__":
    main()
