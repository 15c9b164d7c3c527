"""How cost and memory grow with the clients: ``python -m benchmarks.scale --help``.

One data set of a million clients lies on the disk; fewer clients are its first ones. Time is
measured in one process per series, whose points take turns. Memory is measured in one process per
point. What counts there is anonymous memory, which leaves out the mapped files of the data set.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import report
from benchmarks.speed import ROOT, machine

if TYPE_CHECKING:
    from headstart._simulation.simulation import Simulation
    from headstart.data._federated import FederatedDataset

EXAMPLES, FEATURES, CLASSES = 20, 32, 10
HIDDEN, BATCH, LOCAL_STEPS = (80, 60), 16, 5
INNER_LR, LOCAL_LR = 0.01, 0.001
FULL = {
    "clients": 1_000_000,
    "actives": [10, 30, 100, 300, 1000, 3000, 10_000],
    "of": 20_000,
    "active": 50,
    "known": [50, 500, 5000, 50_000, 500_000, 1_000_000],
    "rounds": 100,
    "round": 1000,
}
QUICK = {
    "clients": 5000,
    "actives": [10, 30, 100],
    "of": 1000,
    "active": 50,
    "known": [50, 500, 5000],
    "rounds": 5,
    "round": 50,
}
TOLERANCE = 20
"""Percent by which a cost may leave the line or the mean."""
SPREAD = 100
"""MB that may lie between the smallest and the largest memory of a series."""
MOST = 3000
"""MB a run on a million clients may take beyond its data."""
POLL = 0.01
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
PLOT = ROOT / "benchmarks" / "scale.png"
Content = dict[str, Any]


# In the children.


def simulation(data: FederatedDataset, known: int, active: int) -> Simulation:
    """Return a training of the first ``known`` clients, ``active`` in a round."""
    from headstart._simulation.simulation import Simulation
    from headstart.algorithms import PerFedAvg
    from headstart.data._federated import FederatedDataset
    from headstart.models._mlp import mlp

    offsets = data.offsets[: known + 1]
    first = FederatedDataset(
        x=data.x[: offsets[-1]],
        y=data.y[: offsets[-1]],
        offsets=offsets,
        train_counts=data.train_counts[:known],
        schema=data.schema,
        validated=True,  # the files are unchanged, and reading them all would take a while
    )
    algorithm = PerFedAvg(
        inner_lr=INNER_LR, local_lr=LOCAL_LR, local_steps=LOCAL_STEPS, batch_size=BATCH,
        max_gradient_norm=float("inf"),
    )  # fmt: skip
    made = Simulation(first, mlp(HIDDEN), algorithm, participation=active / known)
    assert made.active == active
    return made


def costs(store: str, points: list[list[int]], repetitions: int, turn: float) -> Content:
    """Return the milliseconds of a round at each point; points take turns, with new clients."""
    from headstart.data._store import open_store

    data = open_store(store)
    runs = [simulation(data, known, active) for known, active in points]
    states = [run.advance(run.start(), 1) for run in runs]
    rounds = []

    def timed(i: int, count: int) -> float:
        start = time.perf_counter()
        states[i] = runs[i].advance(states[i], count)
        return (time.perf_counter() - start) / count

    into_cache(store)
    for i in range(len(runs)):
        rounds.append(max(1, round(turn / min(timed(i, 2) for _ in range(2)))))
    seconds: list[list[float]] = [[] for _ in runs]
    reads: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(repetitions):
        for i in order:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
            seconds[i].append(timed(i, rounds[i]))
            after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
            reads[i].append((after - before) / rounds[i])
        order.append(order.pop(0))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {
        "layout": f"{runs[0].layout.style}, groups of up to {runs[0].layout.group}",
        "devices": runs[0].layout.devices,
        "turns_ms": [[1e3 * t for t in times] for times in seconds],
        "disk_reads": reads,
    }


def into_cache(store: str) -> None:
    """Read all files, so that the system has them in memory."""
    for file in Path(store).glob("*.npy"):
        with file.open("rb") as content:
            while content.read(1 << 24):
                pass


def memory(store: str, known: int, active: int, rounds: int) -> Content:
    """Return the largest memory of a process that trains, compilation included, in MB."""
    from headstart.data._store import open_store

    with watched("self") as peak:
        time.sleep(2 * POLL)
        before = dict(peak)
        run = simulation(open_store(store), known, active)
        run.advance(run.start(), rounds)
    return {"libraries": before["RssAnon"], **peak}


def child(job: str) -> None:
    """Do one job in this process; the answer is the last line it prints."""
    from headstart.machine import use_all_cores

    use_all_cores()
    given = json.loads(job)
    work: Callable[..., Content] = {"costs": costs, "memory": memory}[given.pop("do")]
    print(json.dumps(work(**given)), flush=True)


# In the parent.


def resident(process: int | str) -> dict[str, float]:
    """Return the MB that a process has in memory: anonymous, and with mapped files."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return {
            name: int(fields[name].split()[0]) * 1024 / 1e6
            for name in ("RssAnon", "VmRSS")
            if name in fields  # they are gone once the process has ended
        }
    return {}


@contextlib.contextmanager
def watched(process: int | str) -> Iterator[dict[str, float]]:
    """Yield the largest values of :func:`resident` inside the block."""
    peak: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        for name, value in resident(process).items():
            peak[name] = max(value, peak.get(name, 0.0))

    def poll() -> None:
        while not over.wait(POLL):
            look()

    look()
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        look()


def ask(do: str, **details: Any) -> Content:
    """Run one job in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--child"]
    done = subprocess.run(
        [*command, json.dumps({"do": do, **details})], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit("benchmarks.scale: a measurement has failed; its error is above")
    answer: Content = json.loads(done.stdout.splitlines()[-1])
    return answer


@contextlib.contextmanager
def stored(folder: Path | None, clients: int) -> Iterator[Path]:
    """Yield the folder with the data set; generate and remove it if none is given."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            parent = stack.enter_context(tempfile.TemporaryDirectory())
            folder = Path(parent) / "clients"
            print(f"making {clients:,} clients …", flush=True)
            settings = {"clients": clients, "examples": EXAMPLES, "features": FEATURES}
            options = [f"--{name}={value}" for name, value in settings.items()]
            if headstart("data", "synthetic", *options, "--out", str(folder)).wait():
                sys.exit("benchmarks.scale: the clients could not be made; the error is above")
        card = json.loads((folder / "store.json").read_text())
        shape = [card["clients"], card["examples"], *card["schema"]["shape"]]
        if shape != [max(clients, card["clients"]), EXAMPLES * card["clients"], FEATURES]:
            sys.exit(
                f"benchmarks.scale: --store must hold at least {clients:,} clients with "
                f"{EXAMPLES} examples of {FEATURES} features each"
            )
        yield folder


def headstart(*arguments: str) -> subprocess.Popen[bytes]:
    """Run Headstart's command line and show its progress."""
    start = "from headstart._cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", start, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL
    )


def command_line(store: Path, clients: int, rounds: int, active: int) -> Content:
    """Run ``headstart run`` on all clients, and measure it from outside."""
    settings = {
        "data.path": store,
        "participation": active / clients,
        "rounds": rounds,
        "model.hidden": list(HIDDEN),
        "algorithm.inner_steps": 1,
        "algorithm.inner_lr": INNER_LR,
        "algorithm.local_lr": LOCAL_LR,
        "algorithm.local_steps": LOCAL_STEPS,
        "algorithm.batch_size": BATCH,
        "evaluation.every": rounds,
        "evaluation.adapt_steps": 1,
    }
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent) / "run"
        start = time.perf_counter()
        process = headstart("run", *sets, "--no-report", "--out", str(out))
        with watched(process.pid) as peak:
            code = process.wait()
        seconds = time.perf_counter() - start
        if code:
            sys.exit(f"benchmarks.scale: headstart run ended with {code}")
        summary = json.loads((out / "summary.json").read_text())
    assert (summary["clients"]["known"], summary["active_clients"]) == (clients, active)
    names = ("seconds", "evaluation_seconds", "gradient_evaluations")
    return {
        "clients": clients,
        "active": active,
        "rounds": rounds,
        "evaluated_clients": summary["evaluated_clients"]["known"],
        "wall_seconds": seconds,
        **{name: summary[name] for name in names},
        "peak_anonymous_mb": peak["RssAnon"],
        "peak_resident_mb": peak["VmRSS"],
    }


def cost_series(store: Path, points: list[list[int]], options: Any) -> Content:
    """Return the best times of a series."""
    answer = ask(
        "costs", store=str(store), points=points, repetitions=options.repetitions, turn=options.turn
    )
    turns, reads = answer.pop("turns_ms"), answer.pop("disk_reads")
    best = [
        {
            "clients": n,
            "active": m,
            "best_ms": min(t),
            "turns_ms": t,
            "disk_reads_per_round": sum(r) / len(r),
        }
        for (n, m), t, r in zip(points, turns, reads, strict=True)
    ]
    return {**answer, "points": best}


def judge_line(series: Content) -> None:
    """Compare with c · active; c is the mean cost of a client over the points.

    That is the line of least squares if each point counts by its relative error.
    """
    points = series["points"]
    slope = sum(p["best_ms"] / p["active"] for p in points) / len(points)
    for p in points:
        p["deviation_percent"] = 100 * (p["best_ms"] / (slope * p["active"]) - 1)
    # The same with a cost that every round has, for those who want to know where it bends.
    times = np.array([p["best_ms"] for p in points])
    actives = np.array([p["active"] for p in points])
    terms = np.stack([1 / times, actives / times], axis=1)
    fixed, per_client = np.linalg.lstsq(terms, np.ones(len(points)))[0]
    off = times / (fixed + per_client * actives) - 1
    series["with_fixed_cost"] = {
        "fixed_ms": float(fixed),
        "slope_ms": float(per_client),
        "worst_percent": float(100 * off[np.argmax(abs(off))]),
    }
    _conclude(series, slope_ms=slope)


def judge_mean(series: Content) -> None:
    """Compare with the mean."""
    points = series["points"]
    mean = sum(p["best_ms"] for p in points) / len(points)
    for p in points:
        p["deviation_percent"] = 100 * (p["best_ms"] / mean - 1)
    _conclude(series, mean_ms=mean)


def _conclude(series: Content, **facts: float) -> None:
    worst = max((p["deviation_percent"] for p in series["points"]), key=abs)
    met = abs(worst) <= TOLERANCE
    series |= {**facts, "worst_percent": worst, "asked_percent": TOLERANCE, "met": met}


def memory_series(store: Path, points: list[list[int]]) -> Content:
    """Return the peak memory at each point."""
    found = []
    for n, m in points:
        answer = ask("memory", store=str(store), known=n, active=m, rounds=3)
        found.append(
            {
                "clients": n,
                "active": m,
                "libraries_mb": answer["libraries"],
                "peak_anonymous_mb": answer["RssAnon"],
                "peak_resident_mb": answer["VmRSS"],
            }
        )
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    peaks = [p["peak_anonymous_mb"] for p in found]
    spread = max(peaks) - min(peaks)
    return {"points": found, "spread_mb": spread, "asked_mb": SPREAD, "met": spread <= SPREAD}


def measure(store: Path, sizes: dict[str, Any], options: Any) -> Content:
    """Measure all series, and print each when it is done."""
    content: Content = {"machine": machine(), "date": datetime.date.today().isoformat()}
    few, many = sizes["active"], sizes["clients"]
    by_active = [[sizes["of"], m] for m in sizes["actives"]]
    by_clients = [[n, few] for n in sizes["known"]]
    for name, points, judge in (
        ("cost_by_active", by_active, judge_line),
        ("cost_by_clients", by_clients, judge_mean),
    ):
        content[name] = cost_series(store, points, options)
        judge(content[name])
        print(f"\n{cost_table(content[name])}\n", flush=True)
    for name, points in (
        ("memory_by_clients", by_clients),
        ("memory_by_active", [[many, m] for m in sizes["actives"]]),
    ):
        content[name] = memory_series(store, points)
        print(f"\n{memory_table(content[name])}\n", flush=True)
    content["run"] = command_line(store, many, sizes["rounds"], sizes["round"])
    content["run"] |= {"asked_mb": MOST, "met": content["run"]["peak_anonymous_mb"] < MOST}
    print(f"\n{run_text(content['run'])}\n")
    return content


# As text and as a picture.


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return numbers, aligned, as Markdown."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [[text.rjust(w) for text, w in zip(row, widths, strict=True)] for row in (head, *rows)]
    lines.insert(1, ["-" * (w - 1) + ":" for w in widths])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def cost_table(series: Content) -> str:
    """Return the times of a series with their deviations."""
    line = "slope_ms" in series
    of = f"the line {1e3 * series['slope_ms']:.1f} µs" if line else f"{series['mean_ms']:.2f} ms"
    rows = [
        (
            f"{p['clients']:,}",
            f"{p['active']:,}",
            f"{p['best_ms']:.2f}",
            f"{1e3 * p['best_ms'] / p['active']:.1f}",
            f"{p['deviation_percent']:+.0f} %",
        )
        for p in series["points"]
    ]
    what = "the straight line" if line else "the mean"
    head = ("clients", "active", "best ms", "µs per active client", f"off {what}")
    verdict = (
        f"At most {abs(series['worst_percent']):.0f} % off "
        f"{of + ' per active client' if line else 'the mean, ' + of}; "
        f"asked: {series['asked_percent']} % ({'met' if series['met'] else 'not met'})."
    )
    if line:
        other = series["with_fixed_cost"]
        verdict += (
            f" With {other['fixed_ms']:.2f} ms for every round and "
            f"{1e3 * other['slope_ms']:.1f} µs per active client, the times are at most "
            f"{abs(other['worst_percent']):.0f} % off."
        )
    return f"{table(head, rows)}\n\n{verdict}"


def memory_table(series: Content) -> str:
    """Return the peaks of a series."""
    rows = [
        (
            f"{p['clients']:,}",
            f"{p['active']:,}",
            f"{p['libraries_mb']:.0f}",
            f"{p['peak_anonymous_mb']:.0f}",
        )
        for p in series["points"]
    ]
    head = ("clients", "active", "MB of the libraries alone", "peak MB")
    verdict = (
        f"{series['spread_mb']:.0f} MB between the smallest and the largest peak; "
        f"asked: {series['asked_mb']} MB ({'met' if series['met'] else 'not met'})."
    )
    return f"{table(head, rows)}\n\n{verdict}"


def run_text(run: Content) -> str:
    """Describe the run through the command line in a sentence."""
    return (
        f"`headstart run` with {run['clients']:,} clients, {run['rounds']} rounds of "
        f"{run['active']:,} and two evaluations of {run['evaluated_clients']:,} clients: "
        f"{run['wall_seconds']:.0f} s from start to end, {run['seconds']:.0f} s of it in rounds; "
        f"at most {run['peak_anonymous_mb']:.0f} MB beyond the mapped data "
        f"({run['peak_resident_mb']:.0f} MB with what was mapped of data and libraries); "
        f"asked: less than {run['asked_mb']} MB ({'met' if run['met'] else 'not met'})."
    )


def plot(content: Content) -> None:
    """Draw three panels."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    series = content["cost_by_active"]
    actives = [p["active"] for p in series["points"]]
    line = [series["slope_ms"] * m for m in actives]
    left.plot(actives, line, "--", color="0.5", label="straight line through 0")
    left.fill_between(
        actives, *([(1 + s * TOLERANCE / 100) * y for y in line] for s in (-1, 1)),
        color="0.9", label=f"± {TOLERANCE} %",
    )  # fmt: skip
    left.plot(actives, [p["best_ms"] for p in series["points"]], "o-", label="measured")
    left.set(title=f"{series['points'][0]['clients']:,} clients", xlabel="active clients")
    left.set(ylabel="ms per round", yscale="log")

    series = content["cost_by_clients"]
    known = [p["clients"] for p in series["points"]]
    mean = series["mean_ms"]
    middle.axhline(mean, linestyle="--", color="0.5", label="mean")
    middle.axhspan(
        *((1 + s * TOLERANCE / 100) * mean for s in (-1, 1)), color="0.9", label=f"± {TOLERANCE} %"
    )
    middle.plot(known, [p["best_ms"] for p in series["points"]], "o-", label="measured")
    middle.set(title=f"{series['points'][0]['active']} active clients", xlabel="clients")
    middle.set(ylabel="ms per round", yscale="log", ylim=(mean / 4, mean * 4))
    ticks = [mean / 2, mean, mean * 2]
    middle.set_yticks(ticks, [f"{t:.1f}" for t in ticks])
    middle.minorticks_off()

    for name, key, label in (
        ("memory_by_clients", "clients", "against clients, {active} active"),
        ("memory_by_active", "active", "against active clients of {clients:,}"),
    ):
        points = content[name]["points"]
        x, y = [p[key] for p in points], [p["peak_anonymous_mb"] for p in points]
        right.plot(x, y, "o-", label=label.format(**points[0]))
    right.axhline(MOST, linestyle=":", color="0.5", label=f"{MOST:,} MB")
    right.set(title="memory beyond the mapped data", xlabel="clients, active clients")
    right.set(ylabel="peak MB", yscale="log", ylim=(100, 2 * MOST))
    ticks = [100, 200, 500, 1000, 2000]
    right.set_yticks(ticks, [f"{t:,}" for t in ticks])
    for axes in (left, middle, right):
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)


def section(content: Content) -> str:
    """Return the generated part of the README."""
    m, by_active, by_clients = (
        content[k] for k in ("machine", "cost_by_active", "cost_by_clients")
    )
    versions = ", ".join(
        f"{name} {m['versions'][name]}" for name in ("headstart", "jax", "jaxlib", "numpy")
    )
    repetitions = len(by_active["points"][0]["turns_ms"])
    parts = [
        f"{m['processor']}, {m['cores']} cores; Python {m['python']}, {versions}; "
        f"{content['date']}. {by_active['devices']} devices, {by_active['layout']}; "
        f"best of {repetitions} turns.",
        "![Cost of a round and memory against the number of clients](scale.png)",
        "Cost of a round against the clients active in it:",
        cost_table(by_active),
        "Cost of a round against the clients there are:",
        cost_table(by_clients),
        "Memory against the clients there are:",
        memory_table(content["memory_by_clients"]),
        "Memory against the clients active in a round:",
        memory_table(content["memory_by_active"]),
        run_text(content["run"]),
    ]
    return "\n\n".join(parts)


def keep(content: Content) -> None:
    """Write results, plot and README."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    plot(content)
    report.write_section("scale", section(content))
    names = ", ".join(str(path.relative_to(ROOT)) for path in (RESULTS, PLOT, report.README))
    print(f"stored in {names}")


def main() -> None:
    """Measure, print, store."""
    options = arguments()
    if options.child:
        return child(options.child)
    if options.redraw:
        return keep(json.loads(RESULTS.read_text()))
    sizes = QUICK if options.quick else FULL
    with stored(options.store, sizes["clients"]) as store:
        if options.store:  # it may hold more
            clients = json.loads((store / "store.json").read_text())["clients"]
            sizes = {**sizes, "clients": clients}
        content = measure(store.resolve(), sizes, options)
    if options.quick or sizes != FULL:
        print("not stored: that takes a million clients, and not --quick")
    else:
        keep(content)
    return None


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=__doc__)
    parser.add_argument("--store", type=Path, help="folder with the clients; made if not given")
    parser.add_argument("--repetitions", type=int, default=12, help="turns of every point (12)")
    parser.add_argument("--turn", type=float, default=0.25, help="seconds of a turn, about (0.25)")
    parser.add_argument("--redraw", action="store_true", help="write text and plot again")
    parser.add_argument("--quick", action="store_true", help="few clients, short turns; not stored")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repetitions < 1 or options.turn <= 0:
        parser.error("--repetitions must be at least 1 and --turn above 0")
    if options.quick:
        options.repetitions, options.turn = 2, 0.1
    return options


if __name__ == "__main__":
    main()
