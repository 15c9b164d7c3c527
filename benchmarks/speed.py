"""How long a round takes, in Headstart and elsewhere: ``python -m benchmarks.speed --help``.

Every contestant is a separate process that sleeps until the driver tells it to work. They take
turns, many short ones instead of one long one each, so that whatever else the machine does, and
however its clock moves, meets all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # `python benchmarks/speed.py` puts only this folder there
    sys.path.insert(0, str(ROOT))

from benchmarks import cases, report  # noqa: E402
from benchmarks.cases import CASES, Case  # noqa: E402

MODULES = {
    "headstart": "headstart_engine",
    "pytorch": "pytorch_loop",
    "fedjax": "fedjax_loop",
    "peak": "matmul_peak",
}
LIBRARIES = ("headstart", "jax", "jaxlib", "numpy", "torch", "fedjax")
TOLERANCE = 1e-4
"""Largest relative difference between two contestants' directions, in float32."""
PAUSE = 0.1
"""Seconds between two turns: idle threads of the one before spin for a while."""
RESULTS = ROOT / "benchmarks" / "results" / "speed.json"


class Child:
    """A contestant's process."""

    def __init__(self, name: str) -> None:
        """Start it; ``missing`` names the library it lacks, if any."""
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contestants.serve", MODULES[name]],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.missing = self.hear().get("missing")

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        """Tell it to work and wait."""
        self.tell(do, **details)
        return self.hear()

    def tell(self, do: str, **details: Any) -> None:
        """Tell it to work."""
        assert self.process.stdin is not None
        print(json.dumps({"do": do, **details}), file=self.process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        """Wait until it has worked."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else stop(f"{self.name} has failed; its error is above")

    def close(self) -> None:
        """Close the connection, which ends the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def children(names: list[str]) -> Iterator[dict[str, Child]]:
    """Start the contestants that can run here."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name in names:
            child = Child(name)
            stack.callback(child.close)
            if child.missing:
                print(f"{name} is left out: {child.missing} is not installed")
            else:
                found[name] = child
        yield found


def check(contestants: dict[str, Child], case: Case, method: str) -> float:
    """Return the largest relative difference from Headstart's direction, on equal inputs."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.npz" for name in contestants}
        for name, child in contestants.items():
            child.tell("direction", case=case.name, method=method, to=str(files[name]))
        for child in contestants.values():
            child.hear()
        found = {name: flat(file) for name, file in files.items()}
    ours = found.pop("headstart")
    worst = 0.0
    for name, theirs in found.items():
        difference = float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))
        worst = max(worst, difference)
        if not difference <= TOLERANCE:
            stop(f"{name} does not compute what headstart does: {difference:.1e} apart")
    return worst


def flat(file: Path) -> np.ndarray:
    """Return all arrays of a file as one vector."""
    with np.load(file) as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files])


def prepare(contestants: dict[str, Child], case: Case, method: str) -> dict[str, str]:
    """Prepare all contestants, and return their settings. All must do the same work."""
    settings, expected = {}, cases.gradients_per_round(method)
    for name, child in contestants.items():
        facts = child.ask("prepare", case=case.name, method=method)
        counted = facts["gradients"]
        if name == "headstart" and counted > expected == facts["declared"]:
            # Clients that do not divide evenly among the cores are filled up: work to no use.
            print(f"({counted - expected} of headstart's gradients are padding) ", end="")
        elif {counted, facts.get("declared", counted)} != {expected}:
            stop(f"{name} computes {counted} gradients a round; {method} needs {expected}")
        if facts["parameters"] != case.parameters:
            stop(f"{name} has {facts['parameters']} parameters; {case.name} has {case.parameters}")
        settings[name] = facts["setting"]
    return settings


def measure(
    racers: dict[str, Child], peak: Child | None, case: Case, method: str, options: Any
) -> dict[str, Any]:
    """Measure repeated turns of all contestants at one case and method."""
    settings = prepare(racers, case, method)
    if peak:
        peak.ask("prepare", case=case.name, method=method)
    rounds = {
        name: max(1, round(options.turn / child.ask("run", rounds=1)["seconds"]))
        for name, child in racers.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in racers}
    gflops: dict[str, float] = {}
    order = [*racers, *(["peak"] if peak else [])]
    for _ in range(options.repetitions):
        for name in order:
            time.sleep(PAUSE)
            if name == "peak" and peak:
                for library, speed in peak.ask("run", rounds=1)["gflops"].items():
                    gflops[library] = max(speed, gflops.get(library, 0.0))
            else:
                taken = racers[name].ask("run", rounds=rounds[name])["seconds"]
                seconds[name].append(taken / rounds[name])
        order.append(order.pop(0))
        print(".", end="", flush=True)
    print()
    result = {
        "case": case.name,
        "method": method,
        "date": datetime.date.today().isoformat(),
        "gradients_per_round": cases.gradients_per_round(method),
        "flops_per_gradient": case.flops_per_gradient,
        "peak_gflops": gflops,
        "contestants": {
            name: {
                "setting": settings[name],
                "rounds_per_turn": rounds[name],
                "best_ms": 1e3 * min(times),
                "median_ms": 1e3 * statistics.median(times),
                "turns_ms": [1e3 * t for t in times],
            }
            for name, times in seconds.items()
        },
    }
    report.judge(result)
    return result


def machine() -> dict[str, Any]:
    """Return the facts about the machine that the numbers depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for library in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": cases.cores(),
        "python": platform.python_version(),
        "versions": versions,
    }


def store(results: list[dict[str, Any]]) -> None:
    """Keep the results, with those of other cases and methods if they are from the same machine."""
    kept: list[dict[str, Any]] = []
    if RESULTS.exists():
        before = json.loads(RESULTS.read_text())
        kept = before["results"] if before["machine"] == machine() else []
    merged = {(r["case"], r["method"]): r for r in [*kept, *results]}
    ordered = [merged[k] for k in ((c, m) for c in CASES for m in cases.METHODS) if k in merged]
    content = {"machine": machine(), "results": ordered}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    report.write_readme(content)
    print(f"stored in {RESULTS.relative_to(ROOT)} and benchmarks/README.md")


def stop(message: str) -> NoReturn:
    """Print one clear line, and end."""
    sys.exit(f"benchmarks.speed: {message}")


def main() -> None:
    """Check, measure, print, store."""
    options = arguments()
    with children(options.contestants) as contestants:
        peak = contestants.pop("peak", None)
        results = []
        for case in (CASES[name] for name in options.cases):
            for method in options.methods:
                print(f"{case.name} {method}: ", end="", flush=True)
                if "headstart" in contestants and len(contestants) > 1:
                    print(f"apart by {check(contestants, case, method):.0e} ", end="", flush=True)
                if options.check:
                    print()
                    continue
                results.append(measure(contestants, peak, case, method, options))
                print(report.summary(results[-1]))
    if options.check:
        return
    print(report.table(results))
    if options.quick or peak is None or set(contestants) != set(MODULES) - {"peak"}:
        print("not stored: that takes all contestants, and not --quick")
    else:
        store(results)


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    for what, choices in (
        ("cases", list(CASES)),
        ("methods", list(cases.METHODS)),
        ("contestants", list(MODULES)),
    ):
        parser.add_argument(f"--{what}", nargs="+", choices=choices, default=choices)
    parser.add_argument("--repetitions", type=int, default=7, help="turns of everyone (7)")
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of a turn, about (0.5)")
    parser.add_argument("--check", action="store_true", help="only compare what is computed")
    parser.add_argument("--quick", action="store_true", help="two very short turns; not stored")
    options = parser.parse_args()
    if options.repetitions < 1 or options.turn <= 0:
        parser.error("--repetitions must be at least 1 and --turn above 0")
    if options.check:
        if "headstart" not in options.contestants:
            parser.error("--check compares with headstart; name it among the --contestants")
        options.contestants = [name for name in options.contestants if name != "peak"]
    if options.quick:
        options.repetitions, options.turn = 2, 0.1
    return options


if __name__ == "__main__":
    main()
