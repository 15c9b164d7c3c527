"""Mutation check: change the core in small ways and see whether its tests notice.

    python -m tools.mutants                  a fixed sample of the core's mutants
    python -m tools.mutants --all            every mutant
    python -m tools.mutants --only meta      those in files whose path contains "meta"

A mutant is *killed* when a test fails or hangs. Sources are mutated in a copy, never in the
checkout. Results are stored in ``.cache/mutants.jsonl``: an interrupted check resumes, and a later
one repeats only survivors and mutants of changed files. Mutants that cannot be noticed are listed
with a reason in ``tools/equivalent_mutants.toml`` and do not count.

Why not mutmut or cosmic-ray: mutmut skips decorated functions and selects mutants at run time,
which JAX's compiled programs do not see; cosmic-ray edits the checkout and starts an interpreter
for each mutant. Here JAX is imported once, each mutant runs in a fork, and programs that a mutant
does not change come from JAX's compilation cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import tomllib
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headstart"
RESULTS = ROOT / ".cache" / "mutants.jsonl"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
SAMPLE = 160
PASS_MARK = 0.9

TESTS = {
    "meta.py": ["tests/test_meta.py", "tests/test_first_layer.py"],
    "trees.py": ["tests/test_trees.py", "tests/parts", "tests/aggregation"],
    "aggregation": ["tests/algorithms/test_defaults.py", "tests/aggregation"],
    "algorithms": ["tests/algorithms", "tests/simulation/test_rounds.py"],
    "_simulation": ["tests/simulation", "tests/aggregation"],
}
"""The tests that watch each part of the core."""


def core_mutants(only: str = "") -> list[Mutant]:
    """List the core's mutants in a random order that is always the same."""
    files = [
        path
        for part in TESTS
        for path in sorted((SOURCE / part).rglob("*.py") if "." not in part else [SOURCE / part])
    ]
    names = [(path, path.relative_to(SOURCE).as_posix()) for path in files]
    mutants = [one for path, name in names if only in name for one in mutants_of(path, name)]
    return sorted(mutants, key=lambda one: one.rank)


def tests_for(file: str) -> list[str]:
    """Return the test files that watch a source file, the one with its name first."""
    places = [ROOT / name for name in TESTS[part_of(file)]]
    files = [one for place in places for one in sorted(place.rglob("test_*.py")) or [place]]
    mirror = f"test_{Path(file).name.removeprefix('_')}"
    return [str(one) for one in sorted(files, key=lambda one: one.name != mirror)]


def part_of(file: str) -> str:
    """Return the part of the core that a source file belongs to."""
    return file if file in TESTS else file.partition("/")[0]


def run_tests(mutant: Mutant | None, tests: list[str], timeout: float) -> tuple[str, float]:
    """Run tests on a mutant in a forked process: "killed", "survived" or "timeout", and seconds."""
    started = time.monotonic()
    with TemporaryDirectory() as folder:
        shutil.copytree(SOURCE, Path(folder) / "headstart", ignore=shutil.ignore_patterns("*.pyc"))
        if mutant is not None:
            (Path(folder) / "headstart" / mutant.file).write_text(mutant.source)
        child = os.fork()
        if child == 0:
            _test_in_this_process(folder, tests)
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() - started > timeout:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "timeout", time.monotonic() - started
            time.sleep(0.05)
    outcome = "survived" if os.waitstatus_to_exitcode(status[1]) == 0 else "killed"
    return outcome, time.monotonic() - started


def _test_in_this_process(folder: str, tests: list[str]) -> None:
    """Run pytest on the copied sources and end the process with its exit code."""
    code = 1
    try:
        os.setsid()
        log = ROOT / ".cache" / f"mutants.{os.getppid()}.log"
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        import pytest

        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        # Plugins were imported before the fork.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += ["-m", "(not slow or variants) and not data and not network"]
        code = int(pytest.main([*options, *tests]))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def check(mutants: list[Mutant], jobs: int = 1) -> dict[str, str]:
    """Test the mutants that have no stored result; return every mutant's outcome by name."""
    # Survivors are tested again, since tests may have been added.
    stored = {name: one for name, one in _stored_results().items() if one != "survived"}
    equivalent = {one["mutant"] for one in _equivalents()}
    left = [m for m in mutants if m.name not in equivalent and m.version not in stored]
    limits = {part: _time_limit(part) for part in sorted({part_of(one.file) for one in left})}
    workers = [_in_a_fork(left[first::jobs], limits) for first in range(jobs)]
    if failed := [one for one in workers if os.waitpid(one, 0)[1] != 0]:
        sys.exit(f"{len(failed)} of {jobs} workers failed; run the check again to resume")
    stored = _stored_results()
    return {m.name: "equivalent" if m.name in equivalent else stored[m.version] for m in mutants}


def _in_a_fork(mutants: list[Mutant], limits: dict[str, float]) -> int:
    """Test mutants in another process and store their outcomes; return the process's id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number, mutant in enumerate(mutants, 1):
            limit = limits[part_of(mutant.file)]
            outcome, seconds = run_tests(mutant, tests_for(mutant.file), limit)
            _store(mutant, outcome)
            line = f"{number:4}/{len(mutants)} {outcome:9} {seconds:5.0f} s  {mutant.name}"
            print(line, flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _time_limit(part: str) -> float:
    """Allow ten times what the unchanged source takes; it must pass."""
    outcome, seconds = run_tests(None, tests_for(part), 1800.0)
    print(f"unchanged: the tests of {part} take {seconds:.0f} s", flush=True)
    if outcome != "survived":
        sys.exit(f"the tests fail without a mutation; see {RESULTS.parent}/mutants.*.log")
    return 60 + 10 * seconds


def _stored_results() -> dict[str, str]:
    """Return the last stored outcome of every mutated source."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["version"]: row["outcome"] for row in rows}


def _store(mutant: Mutant, outcome: str) -> None:
    row = {"version": mutant.version, "mutant": mutant.name, "outcome": outcome}
    with RESULTS.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _equivalents() -> list[dict[str, str]]:
    table = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return [dict(one) for one in table]


def summarize(outcomes: dict[str, str]) -> bool:
    """Print a table by file and the survivors; return whether enough mutants were killed."""
    files: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        files.setdefault(name.partition(": ")[0], []).append(outcome)
    print(f"\n{'file':36} {'mutants':>8} {'killed':>8} {'survived':>9} {'equivalent':>11}")
    for file, results in [*sorted(files.items()), ("total", list(outcomes.values()))]:
        survived, equivalent = results.count("survived"), results.count("equivalent")
        killed = len(results) - survived - equivalent
        print(f"{file:36} {len(results):8} {killed:8} {survived:9} {equivalent:11}")
    for name, outcome in outcomes.items():
        if outcome == "survived":
            print(f"survived: {name}")
    score = killed / max(1, killed + survived)
    print(f"{killed} of {killed + survived} mutants killed: {score:.1%}; {PASS_MARK:.0%} needed")
    return score >= PASS_MARK


def main() -> int:
    """Run the check; the exit code is 1 when too many mutants survive."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="every mutant, not a sample")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants")
    parser.add_argument("--only", default="", help="part of the source file's path")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="list the mutants and stop")
    options = parser.parse_args()
    mutants = core_mutants(options.only)
    total = len(mutants)
    chosen = mutants if options.all else mutants[: options.sample]
    print(f"{len(chosen)} of {total} mutants", flush=True)
    if options.list:
        print(*(one.name for one in chosen), sep="\n")
        return 0
    RESULTS.parent.mkdir(exist_ok=True)
    os.chdir(ROOT)
    _import_heavy_libraries()
    return 0 if summarize(check(chosen, options.jobs)) else 1


def _import_heavy_libraries() -> None:
    """Import what every mutant needs, and nothing of Headstart; forks share it."""
    import equinox
    import hypothesis
    import matplotlib.pyplot
    import optax
    import pydantic
    import pytest
    import scipy.stats
    import sklearn.datasets

    del equinox, hypothesis, matplotlib, optax, pydantic, pytest, scipy, sklearn


if __name__ == "__main__":
    sys.exit(main())
