"""Several algorithms side by side, from Python."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.algorithms.contract import Algorithm
from headstart.data.federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.experiments.arguments import check_arguments
from headstart.experiments.compare import (
    choose_baseline,
    compared,
    refuse_unequal,
    slug,
    write_comparison,
)
from headstart.experiments.config import EvaluationOptions, Experiment
from headstart.experiments.describing import described
from headstart.experiments.run import Run
from headstart.experiments.training import train
from headstart.models.model import Model
from headstart.models.objectives import ObjectiveLike
from headstart.options import require_at_least
from headstart.parts import Parts

DataFor = Callable[[int], FederatedDataset]


@dataclass(frozen=True, eq=False)
class Comparison:
    """One honest table: means over seeds, paired differences to a baseline, and the runs."""

    result: dict[str, Any]
    """What ``comparison.json`` holds."""
    runs: Mapping[str, Mapping[int, Run]]
    """Finished runs by label and seed; those that diverged are missing."""
    folder: Path | None = None

    def __repr__(self) -> str:
        """The table as text."""
        from rich.console import Console

        from headstart.records import ComparisonRecord
        from headstart.report import comparison_table

        text = io.StringIO()
        record = ComparisonRecord.from_table(self.result)
        Console(width=100, file=text).print(comparison_table(record))
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return f"<pre>{html.escape(repr(self))}</pre>"

    def report(self) -> Path:
        """The page of the comparison, in its folder."""
        from headstart.report import make_report

        if self.folder is None:
            raise ConfigError("the comparison has no folder; give one: hs.compare(…, out='runs/x')")
        return make_report([self.folder])


def compare(
    data: FederatedDataset | DataFor,
    model: Model,
    algorithms: Mapping[str, Algorithm],
    *,
    rounds: int,
    seeds: int | Sequence[int] = 5,
    participation: float = 0.5,
    evaluation: EvaluationOptions | None = None,
    objective: ObjectiveLike = None,
    parts: Parts | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Train every algorithm with every seed on the same clients, and compare them honestly.

    Args:
        data: Clients' examples; or a function from a seed to them, so that partitions vary too.
        model: The model of all rows.
        algorithms: Each with its label.
        rounds: Communication rounds of each run.
        seeds: How many, or which.
        participation: Fraction of the known clients that take part in a round.
        evaluation: How clients adapt and are scored, the same for all.
        objective: Loss and metrics; by default what fits the labels.
        parts: Which parameters are trained, adapted and kept.
        baseline: Label of the row that others are compared with; by default FedAvg, or the first.
        out: Folder to keep the runs and the table in; runs that are there already are not repeated.
        progress: Whether to show progress; by default on a terminal and in a notebook.
    """
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    require_at_least(1, seeds=len(numbers))
    if not isinstance(algorithms, Mapping) or not algorithms:
        raise ConfigError("algorithms is not a dictionary of labels and algorithms; give one")
    options = evaluation or EvaluationOptions()
    made = {seed: data(seed) if callable(data) else data for seed in numbers}
    plans = []
    for label, algorithm in algorithms.items():
        check_arguments(made[numbers[0]], model, algorithm, rounds)
        plans.append(_plan(label, made[numbers[0]], model, algorithm, rounds, participation,
                           options, objective, parts))  # fmt: skip
    refuse_unequal(plans)
    chosen = choose_baseline(plans, baseline)
    runs: dict[str, dict[int, Run]] = {}
    outcomes: dict[str, dict[int, dict[str, Any]]] = {}
    for label, algorithm in algorithms.items():
        runs[label], outcomes[label] = {}, {}
        for seed in numbers:
            folder = None if out is None else Path(out) / slug(label) / f"seed-{seed}"
            try:
                run = train(
                    made[seed], model, algorithm, rounds=rounds, participation=participation,
                    seed=seed, evaluation=options, objective=objective, parts=parts, label=label,
                    out=folder, resume=folder is not None, progress=progress,
                )  # fmt: skip
            except DivergedError as error:
                outcomes[label][seed] = {"diverged": str(error)}
                continue
            runs[label][seed], outcomes[label][seed] = run, dict(run.summary)
    result = compared(plans, numbers, outcomes, chosen)
    if out is not None:
        write_comparison(Path(out), result)
    return Comparison(result, runs, None if out is None else Path(out))


def _plan(
    label: str,
    data: FederatedDataset,
    model: Model,
    algorithm: Algorithm,
    rounds: int,
    participation: float,
    evaluation: EvaluationOptions,
    objective: ObjectiveLike,
    parts: Parts | None,
) -> Experiment:
    return described(
        data, model, algorithm, rounds=rounds, participation=participation, seed=0,
        evaluation=evaluation, objective=objective, parts=parts or Parts(), label=label,
    )  # fmt: skip
