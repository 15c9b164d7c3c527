"""Where the time of a round goes: ``python -m benchmarks.where_time_goes --help``.

XLA's trace says how long each operation of the compiled program took, the program's text what it
computes. All on one device and one core: nothing runs side by side, and the parts add up.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before JAX and NumPy start
    os.environ["JAX_NUM_CPU_DEVICES"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import numpy as np

from benchmarks import cases, report
from benchmarks.cases import CASES, Case
from benchmarks.contestants import headstart_engine as engine
from benchmarks.speed import machine
from headstart._simulation.rounds import run_rounds
from headstart._simulation.simulation import Simulation

RUNS = (
    ("mlp-784", "first-order"),
    ("mlp-784", "hessian-free"),
    ("mlp-784", "exact"),
    ("mlp-3072", "first-order"),
    ("mlp-3072", "hessian-free"),
    ("mlp-3072", "exact"),
    ("cnn-28x28x1", "hessian-free"),
)
KINDS = (
    "large products",
    "small products",
    "parameter updates",
    "batches: gather, decode",
    "windows of images",
    "activations, softmax, biases",
    "random numbers, sampling",
    "collectives, waiting",
    "other",
    "no operation (dispatch)",
)
LARGE = 0.1
"""Share of the largest product from which on a product is large."""
CONTROL = {"while", "call", "conditional"}
"""What only calls others: its own time is dispatch."""
COLLECTIVES = {"all-reduce", "all-gather", "collective-permute", "all-to-all", "reduce-scatter"}
RANDOM = re.compile("threefry|randint|random|iota_2x32|choose_clients")


# The compiled program.


@dataclass
class Operation:
    """An instruction of the compiled program."""

    name: str
    opcode: str
    types: str
    """The result's number type and shape, or those of a tuple."""
    operands: list[str]
    attributes: str
    inner: list[Operation] = field(default_factory=list)
    """A fusion's instructions."""
    arguments: list[Operation] = field(default_factory=list)

    @property
    def parts(self) -> list[Operation]:
        """It and what is fused into it."""
        return [self, *self.inner]

    @functools.cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Types of the results."""
        return shapes_in(self.types)

    @property
    def scope(self) -> str:
        """Where in the Python program it comes from."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found.group(1) if found else ""

    @functools.cached_property
    def multiplications(self) -> int:
        """Of the matrix products in it."""
        return sum(_product(part) for part in self.parts)


def shapes_in(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return all types in a text, as ("f32", (80, 784))."""
    found = re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text)
    return [(kind, tuple(int(n) for n in dims.split(",") if n)) for kind, dims in found]


def operations(text: str) -> dict[str, Operation]:
    """Return all instructions of a program by name; those of fusions are inside the fusion."""
    line_form = re.compile(r"^\s+(?:ROOT )?%([^ ]+) = (\(.*?\)|[^ ]+) ([a-z][\w\-]*)\((.*)$")
    computations: dict[str, list[Operation]] = {}
    current: list[Operation] = []
    for line in text.splitlines():
        begun = re.match(r"^(?:ENTRY )?%([^ ]+) \(.*\{$", line)
        if begun:
            current = computations.setdefault(begun.group(1), [])
            continue
        found = line_form.match(re.sub(r"/\*.*?\*/", "", line))
        if found:
            name, types, opcode, rest = found.groups()
            operands, _, attributes = rest.partition(")")
            names = re.findall(r"%([^\s,)]+)", operands)
            current.append(Operation(name, opcode, types, names, attributes))
    every = {op.name: op for ops in computations.values() for op in ops}
    for op in every.values():
        op.arguments = [every[name] for name in op.operands if name in every]
        called = re.search(r"calls=%([^\s,]+)", op.attributes)
        if called and op.opcode == "fusion":
            op.inner = computations[called.group(1)]
    return every


def _product(op: Operation) -> int:
    if op.opcode != "dot":
        return 0
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", op.attributes)
    assert contracted is not None
    left = op.arguments[0].shapes[0][1]
    depth = math.prod(left[int(axis)] for axis in contracted.group(1).split(",") if axis)
    return math.prod(op.shapes[0][1]) * depth


def classifier(every: dict[str, Operation], case: Case) -> Callable[[Operation], str]:
    """Return a function that says what kind of work an operation is."""
    largest = max(op.multiplications for op in every.values())
    stored = cases.CLIENTS * cases.EXAMPLES
    weights = {shape for layer in case.layers for shape in _forms(layer.shape)}
    biases = {layer.shape[-1:] for layer in case.layers}
    rows = {cases.BATCH * p for p in (1, *(layer.positions for layer in case.layers))}

    def kind(op: Operation) -> str:
        opcodes = {part.opcode for part in op.parts}
        scopes = " ".join(part.scope for part in op.parts)
        results = [(t, _squeezed(shape)) for t, shape in op.shapes]
        seen = [s for part in (*op.parts, *op.arguments) for s in part.shapes]
        if opcodes & COLLECTIVES:
            return "collectives, waiting"
        if op.multiplications:
            large = op.multiplications >= LARGE * largest
            return "large products" if large else "small products"
        # A loop's tuple is not an argument, so a stored array seen here is read here.
        if any(shape[:1] == (stored,) for _, shape in seen) and "gather" in opcodes:
            return "batches: gather, decode"
        if RANDOM.search(scopes) or all(t[0] == "u" for t, _ in results):
            return "random numbers, sampling"
        if any(shape in weights for t, shape in results):
            return "parameter updates"
        floats = [shape for t, shape in seen if t == "f32"]
        if opcodes & {"exponential", "exponential-minus-one"}:
            return "activations, softmax, biases"
        images = any(len(shape) >= 3 and set(shape) & rows for shape in floats)
        if (
            case.network == "cnn"
            and images
            and opcodes & {"concatenate", "pad", "slice", "transpose"}
        ):
            return "windows of images"
        if any(set(shape) & rows for shape in floats) or "jvp" in scopes:
            return "activations, softmax, biases"
        if any(shape in biases and t in ("f32", "pred") for t, shape in results):
            return "parameter updates"
        return "other"

    return kind


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _forms(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the shapes of a weight in memory: outputs first or last, as stored or as a matrix."""
    *inputs, outputs = shape
    for first in (tuple(inputs), (math.prod(inputs),)):
        yield _squeezed((*first, outputs))
        yield _squeezed((outputs, *first))


# The trace.


def own_times(folder: str, names: set[str]) -> tuple[dict[str, float], dict[str, int]]:
    """Return the seconds of each operation without its callees, and how often it ran."""
    (file,) = Path(folder).rglob("*.xplane.pb")
    seconds: dict[str, float] = collections.defaultdict(float)
    count: dict[str, int] = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            events = [
                (event.start_ns, -event.duration_ns, event.name)
                for event in line.events
                if event.name in names
            ]
            around: list[tuple[float, str]] = []
            for start, negative, name in sorted(events):
                while around and around[-1][0] <= start:
                    around.pop()
                if around:
                    seconds[around[-1][1]] += 1e-9 * negative
                seconds[name] -= 1e-9 * negative
                count[name] += 1
                around.append((start - negative, name))
    return seconds, count


def program_of(run: Simulation) -> str:
    """Return the text of the compiled program of rounds."""
    first = run.start()
    lowered = run_rounds.lower(
        run.algorithm, first.state, first.memory, run.federation, run.keys,
        np.int32(0), np.int32(1), active=run.active, layout=run.layout,
    )  # fmt: skip
    text: str = lowered.compile().as_text()
    return text


def profiled(case: Case, method: str, seconds: float) -> dict[str, Any]:
    """Measure a round's time by kind of work."""
    run = engine.simulation(
        engine.dataset(case), engine.model_for(case), engine.algorithm_for(method)
    )
    every = operations(program_of(run))
    at = run.advance(run.start(), 1)

    def timed(rounds: int) -> float:
        start = time.perf_counter()
        run.advance(at, rounds)
        return (time.perf_counter() - start) / rounds

    rounds = max(1, round(seconds / 5 / timed(1)))
    plain = min(timed(rounds) for _ in range(5))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    best: tuple[float, dict[str, float], dict[str, int]] | None = None
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder, profiler_options=options):
                traced = timed(rounds)
            if best is None or traced < best[0]:
                best = (traced, *own_times(folder, set(every)))
    assert best is not None
    traced, own, count = best
    kind = classifier(every, case)
    spent = dict.fromkeys(KINDS, 0.0)
    longest = []
    multiplications = 0
    for name, time_of_it in own.items():
        op = every[name]
        if op.opcode in CONTROL:
            continue  # dispatch
        spent[kind(op)] += time_of_it / rounds
        longest.append((time_of_it / rounds, kind(op), name, op.types))
        if kind(op) == "large products":
            multiplications += op.multiplications * count[name]
    spent[KINDS[-1]] = max(0.0, traced - sum(spent.values()))
    return {
        "case": case.name,
        "method": method,
        "plain_ms": 1e3 * plain,
        "traced_ms": 1e3 * traced,
        "percent": {name: 100 * value / traced for name, value in spent.items()},
        "gflops": 2e-9 * multiplications / rounds / spent["large products"],
        "longest": sorted(longest, reverse=True),
    }


def peak(size: int = 2048) -> float:
    """Return the GFLOP/s of one large product on one core, the better of NumPy and XLA."""
    a = np.ones((size, size), np.float32)
    on_device = jax.device_put(a)
    multiply = jax.jit(jax.numpy.matmul)
    best = 0.0
    for work in (lambda: a @ a, lambda: multiply(on_device, on_device).block_until_ready()):
        work()
        for _ in range(3):
            start = time.perf_counter()
            work()
            best = max(best, 2e-9 * size**3 / (time.perf_counter() - start))
    return best


# As text.


def table(results: list[dict[str, Any]], top: float) -> str:
    """Return percentages of the traced time, one column per run."""
    head = ["percent of a round", *(f"{r['case']} {r['method']}" for r in results)]
    shares = [[kind, *(f"{r['percent'][kind]:.1f}" for r in results)] for kind in KINDS]
    more = [
        ["ms of a round, untraced", *(f"{r['plain_ms']:.1f}" for r in results)],
        ["ms of a round, traced", *(f"{r['traced_ms']:.1f}" for r in results)],
        ["traced / untraced", *(f"{r['traced_ms'] / r['plain_ms']:.2f}" for r in results)],
        ["GFLOP/s in large products, traced", *(f"{r['gflops']:.0f}" for r in results)],
        ["% of this core's peak there", *(f"{100 * r['gflops'] / top:.0f}" for r in results)],
    ]
    lines = [head, *shares, *more]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        [row[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=True))]
        for row in lines
    ]
    texts.insert(1, ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in texts)


def main() -> None:
    """Trace, print, store."""
    parser = argparse.ArgumentParser(prog="benchmarks.where_time_goes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of untraced rounds a run (2)")
    parser.add_argument("--only", metavar="CASE", choices=list(CASES), help="not stored")
    parser.add_argument("--longest", type=int, default=0, help="also show the N longest operations")
    options = parser.parse_args()
    results = []
    for name, method in RUNS:
        if options.only in (None, name):
            results.append(profiled(CASES[name], method, options.seconds))
            print(f"{name} {method}: {results[-1]['plain_ms']:.1f} ms", flush=True)
            for seconds, kind, op, types in results[-1]["longest"][: options.longest]:
                print(f"  {1e3 * seconds:8.3f} ms  {kind}: {op} {types[:60]}")
    top = peak()
    text = table(results, top)
    print(text)
    print(f"peak of this core: {top:.0f} GFLOP/s")
    if options.only:
        print("not stored: that takes all cases")
        return
    m = machine()
    versions = ", ".join(f"{n} {m['versions'][n]}" for n in ("headstart", "jax", "jaxlib"))
    facts = (
        f"{m['processor']}, one core (its peak: {top:.0f} GFLOP/s); Python {m['python']}, "
        f"{versions}; {datetime.date.today().isoformat()}."
    )
    report.write_section("profile", f"{facts}\n\n{text}")
    print("stored in benchmarks/profile.md")


if __name__ == "__main__":
    main()
