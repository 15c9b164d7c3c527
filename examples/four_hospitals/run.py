"""Four hospitals: three train together, the fourth joins later. Was it worth it?

    python examples/four_hospitals/run.py            (six to seven minutes on two busy cores)

First a federation between processes, over loopback with TLS and node keys, with the commands a user
would type; then the same by simulation on many splits, against FedAvg and training alone. Tables go
to standard output and, with every number, to the folder of --out.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from headstart._atomic_files import write_json, write_text
from headstart._experiments.configuration import load_experiment
from headstart.data._example_pool import Pool
from headstart.errors import ConfigError, HeadstartError, OutputError
from headstart.machine import use_compilation_cache
from headstart.records import next_free

PARTS = ("federation", "comparison")


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 on success, 2 for bad input, 130 when interrupted, else 1."""
    options = build_parser().parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_stop)
    use_compilation_cache()
    try:
        example(
            options.out or next_free(Path("runs"), "four-hospitals"), options.part, options.splits
        )
    except HeadstartError as error:
        print(f"four hospitals: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("four hospitals: interrupted; all processes have ended", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="new folder; default: runs/four-hospitals-…")
    parser.add_argument("--part", choices=PARTS, help="only this part; default: both")
    parser.add_argument("--splits", type=int, default=20, help="splits to compare on; default 20")
    return parser


def example(out: Path, part: str | None, splits: int) -> None:
    """Run both parts, or one; print every table as soon as it is ready."""
    refuse_unready(out, splits)
    import hospitals
    import result_tables

    pool = hospitals.load()
    tables = [result_tables.hospitals_table(pool)]
    say(tables[0])
    if part in (None, "federation"):
        tables.append(federation(pool, out))
        say(tables[-1])
    if part in (None, "comparison"):
        tables += comparison(pool, out, splits)
        say("\n\n".join(tables[-3:-1]))
    write_text(out / "results.md", "\n\n".join(tables) + "\n")
    say(f"all tables: {out / 'results.md'}; all numbers: {out}")


def refuse_unready(out: Path, splits: int) -> None:
    """Reject what can be known to be wrong before anything runs."""
    if splits < 2:
        raise ConfigError(f"--splits={splits} gives no interval; use at least 2")
    if find_spec("flwr") is None:
        raise ConfigError(
            'Flower is not installed; install it with: pip install "headstart[flower]"'
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists already and is not empty; choose another with --out")


def federation(pool: Pool, out: Path) -> str:
    """Train between processes and return the table of the results."""
    import federated
    import result_tables

    results = federated.run(pool, out)
    simulated = federated.simulate(pool, out / "federation")
    write_json(out / "federation.json", {"federated": results, "simulated": simulated})
    return result_tables.federation_table(results, simulated)


def comparison(pool: Pool, out: Path, splits: int) -> list[str]:
    """Simulate; return tables of accuracies, of differences, and of differences by hospital."""
    import hospitals
    import result_tables
    import trials

    plan = load_experiment(hospitals.EXPERIMENT, [])
    results = trials.measure(pool, plan, range(splits), progress(f"of {splits} splits compared"))
    write_json(out / "comparison.json", trials.as_table(results))
    steps = plan.evaluation.adapt_steps
    each = [
        f"Only at {name}:\n\n{result_tables.differences_table(results, steps, name)}"
        for name in pool.owner_names
    ]
    return [
        result_tables.methods_table(results, steps),
        "\n\n".join(
            [
                result_tables.LEGEND,
                result_tables.differences_table(results, steps),
                result_tables.gains_table(results, steps),
            ]
        ),
        "\n\n".join(each),
    ]


def progress(what: str) -> Callable[[int], None]:
    """Return a function that prints progress and time on standard error."""
    begin = time.monotonic()

    def show(done: int) -> None:
        print(f"{done} {what}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    return show


def on_stop(number: int, frame: FrameType | None) -> None:
    """Stop on Ctrl-C, even if the shell set it to be ignored, as for background jobs."""
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Print a result, with an empty line before it."""
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
