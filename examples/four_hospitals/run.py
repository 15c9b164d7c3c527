"""Four hospitals: three train together, the fourth joins later, and was it worth it?

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

from headstart.atomic_files import write_json, write_text
from headstart.data.example_pool import Pool
from headstart.errors import ConfigError, HeadstartError, OutputError
from headstart.experiments.configuration import load_experiment
from headstart.machine import use_compilation_cache
from headstart.records import next_free

PARTS = ("federation", "comparison")


def main(words: Sequence[str] | None = None) -> int:
    """0 when all went well, 2 for what the user can mend, 130 when interrupted, else 1."""
    asked = arguments().parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_stop)
    use_compilation_cache()
    try:
        example(asked.out or next_free(Path("runs"), "four-hospitals"), asked.part, asked.splits)
    except HeadstartError as error:
        print(f"four hospitals: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("four hospitals: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    return 0


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="new folder; default: runs/four-hospitals-…")
    parser.add_argument("--part", choices=PARTS, help="only this part; default: both")
    parser.add_argument("--splits", type=int, default=20, help="splits to compare on; default 20")
    return parser


def example(out: Path, part: str | None, splits: int) -> None:
    """Both parts, or one; every table is said as soon as it is there."""
    refuse_unready(out, splits)
    import hospitals
    import result_tables

    pool = hospitals.load()
    told = [result_tables.hospitals_table(pool)]
    say(told[0])
    if part in (None, "federation"):
        told.append(federation(pool, out))
        say(told[-1])
    if part in (None, "comparison"):
        told += comparison(pool, out, splits)
        say("\n\n".join(told[-3:-1]))
    write_text(out / "results.md", "\n\n".join(told) + "\n")
    say(f"all tables: {out / 'results.md'}; all numbers: {out}")


def refuse_unready(out: Path, splits: int) -> None:
    """What can be known to be wrong before anything is done."""
    if splits < 2:
        raise ConfigError(f"--splits={splits} gives no interval; use at least 2")
    if find_spec("flwr") is None:
        raise ConfigError(
            'Flower is not installed; install it with: pip install "headstart[flower]"'
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists already and is not empty; choose another with --out")


def federation(pool: Pool, out: Path) -> str:
    """Between processes; the table of what came of it."""
    import federated
    import result_tables

    made = federated.run(pool, out)
    simulated = federated.simulate(pool, out / "federation")
    write_json(out / "federation.json", {"federated": made, "simulated": simulated})
    return result_tables.federation_table(made, simulated)


def comparison(pool: Pool, out: Path, splits: int) -> list[str]:
    """By simulation: accuracies, differences over all hospitals, and at each of them."""
    import hospitals
    import result_tables
    import trials

    plan = load_experiment(hospitals.EXPERIMENT, [])
    found = trials.measure(pool, plan, range(splits), progress(f"of {splits} splits compared"))
    write_json(out / "comparison.json", trials.as_table(found))
    steps = plan.evaluation.adapt_steps
    each = [
        f"Only at {name}:\n\n{result_tables.differences_table(found, steps, name)}"
        for name in pool.owner_names
    ]
    return [
        result_tables.methods_table(found, steps),
        "\n\n".join(
            [
                result_tables.LEGEND,
                result_tables.differences_table(found, steps),
                result_tables.gains_table(found, steps),
            ]
        ),
        "\n\n".join(each),
    ]


def progress(what: str) -> Callable[[int], None]:
    """Says how far it is, and how long it has taken, on standard error."""
    begin = time.monotonic()

    def advanced(done: int) -> None:
        print(f"{done} {what}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    return advanced


def on_stop(number: int, frame: FrameType | None) -> None:
    """Also where a shell had us ignore Ctrl-C, as in the background: whoever we start must not."""
    raise KeyboardInterrupt


def say(text: str) -> None:
    """A result, set apart from the progress around it."""
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
