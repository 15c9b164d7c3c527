"""What ``headstart run`` adds to the bare engine: pieces, evaluations, checkpoints, progress.

1000 rounds of 784-80-60-10, hessian-free, evaluated every 100 rounds, by the command; the same
rounds by ``Simulation.advance`` in pieces of 100, half of them before the command and half after
it, so that both see the same machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import cases
from benchmarks.contestants.headstart_engine import algorithm_for, dataset, model_for, simulation
from benchmarks.report import write_section
from benchmarks.speed import machine
from headstart._simulation.simulation import Progress, Simulation
from headstart.data import write_store
from headstart.machine import use_all_cores

ROUNDS, PIECE = 1000, 100
RESULT = Path(__file__).parent / "results" / "end_to_end.json"
PLAN = """
rounds = {rounds}
participation = 0.2
[data]
path = "{store}"
[model]
name = "mlp"
hidden = [80, 60]
[algorithm]
name = "per-fedavg"
method = "hessian-free"
inner_lr = {inner_lr}
local_lr = {local_lr}
delta = {delta}
local_steps = {local_steps}
batch_size = {batch}
max_gradient_norm = inf
[evaluation]
every = 100
"""


def main() -> None:
    """Measure the bare engine, the command, and the bare engine again; then the ratio."""
    use_all_cores()
    case = cases.CASES["mlp-784"]
    engine = simulation(dataset(case), model_for(case), algorithm_for("hessian-free"))
    progress = engine.advance(engine.start(), 1)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.toml"
        write_store(Path(folder) / "store", dataset(case))
        plan.write_text(
            PLAN.format(
                rounds=ROUNDS,
                store=Path(folder) / "store",
                inner_lr=cases.INNER_LR,
                local_lr=cases.LOCAL_LR,
                delta=cases.DELTA,
                local_steps=cases.LOCAL_STEPS,
                batch=cases.BATCH,
            )
        )
        command(plan, Path(folder) / "first", rounds=1)  # compiles
        progress, before = bare(engine, progress)
        summary = command(plan, Path(folder) / "run", rounds=ROUNDS)
        progress, after = bare(engine, progress)
    found = {
        "bare_seconds": round(before + after, 2),
        "command_training_seconds": summary["seconds"],
        "command_evaluation_seconds": summary["evaluation_seconds"],
        "ratio": round(summary["seconds"] / (before + after), 3),
        "bare_halves": [round(before, 2), round(after, 2)],
    }
    RESULT.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")
    text = (
        f"Training {ROUNDS} rounds took {found['bare_seconds']} s in the bare engine "
        f"({found['bare_halves'][0]} and {found['bare_halves'][1]} s, before and after) and "
        f"{found['command_training_seconds']} s in `headstart run`: × {found['ratio']} "
        f"(asked: at most 1.15). Its eleven evaluations of all clients took "
        f"{found['command_evaluation_seconds']} s more, the last one after 0 … 10 steps."
    )
    print(text)
    write_section("end-to-end", text)


def bare(engine: Simulation, progress: Progress) -> tuple[Progress, float]:
    """Run half of the rounds, and return the seconds they took."""
    begin = time.perf_counter()
    for _ in range(ROUNDS // 2 // PIECE):
        progress = engine.advance(progress, PIECE)
    return progress, time.perf_counter() - begin


def command(plan: Path, out: Path, *, rounds: int) -> dict[str, Any]:
    """Return the summary of ``headstart run``."""
    words = ["run", str(plan), "--out", str(out), "--set", f"rounds={rounds}", "--no-report"]
    subprocess.run(
        [sys.executable, "-m", "headstart", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return json.loads((out / "summary.json").read_text())


if __name__ == "__main__":
    main()
