"""Several algorithms on the same clients with the same seeds, in one table.

A seed varies the partition, the initial model and every draw. All rows adapt by the same number of
steps on the same split. Differences are paired by seed: both methods saw the same clients.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart._experiments.arguments import check_arguments
from headstart._experiments.configuration import EvaluationOptions, Experiment, read_experiment
from headstart._experiments.description import describe_experiment
from headstart._experiments.finished_run import Run
from headstart._experiments.training import Listener, run_experiment, train
from headstart._metric import ACCURACY, Metric
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError, OutputError
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike
from headstart.options import require_at_least, to_json
from headstart.parts import Parts
from headstart.records import (
    KNOWN,
    NEW,
    ComparisonRecord,
    ComparisonRow,
    Differences,
    GradientsPerClient,
    PairedDifference,
    RunDirectory,
    RunSummary,
    curves_over_seeds,
    paired_difference,
    scores_over_seeds,
    write_comparison,
)

ListenerFor = Callable[[str, int], Listener]
DataFor = Callable[[int], FederatedDataset]
Diverged = str
"""Why a run diverged."""
Outcomes = Mapping[int, RunSummary | Diverged]
"""The result of a method's run for each seed."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Means over seeds, paired differences to a baseline, and the runs."""

    record: ComparisonRecord
    """The content of ``comparison.json``."""
    runs: Mapping[str, Mapping[int, Run]]
    """Finished runs by label and seed; those that diverged are missing."""
    folder: Path | None = None

    def __repr__(self) -> str:
        """Return the table as text."""
        from rich.console import Console

        from headstart.report import comparison_table

        text = io.StringIO()
        Console(width=100, file=text).print(comparison_table(self.record))
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return f"<pre>{html.escape(repr(self))}</pre>"

    def report(self) -> Path:
        """Write the page of the comparison to its folder."""
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
    """Train every algorithm with every seed on the same clients, and compare them.

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
    datasets = {seed: data(seed) if callable(data) else data for seed in numbers}
    first = datasets[numbers[0]]
    plans = []
    for label, algorithm in algorithms.items():
        check_arguments(first, model, algorithm, rounds)
        plans.append(
            describe_experiment(
                first, model, algorithm, rounds=rounds, participation=participation, seed=0,
                evaluation=options, objective=objective, parts=parts or Parts(), label=label,
            )
        )  # fmt: skip
    refuse_unequal(plans)
    chosen = choose_baseline(plans, baseline)
    runs: dict[str, dict[int, Run]] = {}
    outcomes: dict[str, dict[int, RunSummary | Diverged]] = {}
    for label, algorithm in algorithms.items():
        runs[label], outcomes[label] = {}, {}
        for seed in numbers:
            folder = None if out is None else Path(out) / _run_folder(label, seed)
            try:
                run = train(
                    datasets[seed], model, algorithm, rounds=rounds, participation=participation,
                    seed=seed, evaluation=options, objective=objective, parts=parts, label=label,
                    out=folder, resume=folder is not None, progress=progress,
                )  # fmt: skip
            except DivergedError as error:
                outcomes[label][seed] = str(error)
                continue
            runs[label][seed], outcomes[label][seed] = run, run.summary
    record = compare_outcomes(plans, numbers, outcomes, chosen)
    if out is not None:
        write_comparison(Path(out), record)
    return Comparison(record, runs, None if out is None else Path(out))


def compare_experiments(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    out: Path,
    *,
    baseline: str | None = None,
    listener: ListenerFor | None = None,
) -> ComparisonRecord:
    """Run what is not done yet, and write ``comparison.json`` and ``comparison.csv``."""
    refuse_unequal(experiments)
    if (out / "config.toml").exists():
        raise OutputError(f"{out} holds a single run; choose another folder with --out")
    chosen = choose_baseline(experiments, baseline)
    outcomes: dict[str, dict[int, RunSummary | Diverged]] = {}
    for experiment in experiments:
        label = experiment.label
        outcomes[label] = {}
        for seed in seeds:
            run_listener = listener(label, seed) if listener else Listener()
            folder = out / _run_folder(label, seed)
            outcomes[label][seed] = _outcome(experiment.with_seed(seed), folder, run_listener)
    record = compare_outcomes(experiments, seeds, outcomes, chosen)
    write_comparison(out, record)
    return record


def compare_outcomes(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    outcomes: Mapping[str, Outcomes],
    baseline: str,
) -> ComparisonRecord:
    """Return the record of a comparison from the outcomes of its runs by label and seed."""
    finished = [o for each in outcomes.values() for o in each.values() if isinstance(o, RunSummary)]
    metric = finished[0].metric if finished else ACCURACY
    rows = [_row(experiment, outcomes[experiment.label]) for experiment in experiments]
    base = next(row for row in rows if row.label == baseline)
    return ComparisonRecord(
        data=dict(experiments[0].data),
        rounds=tuple(sorted({experiment.rounds for experiment in experiments})),
        seeds=tuple(seeds),
        adapt_steps=experiments[0].evaluation.adapt_steps,
        adapt_on=experiments[0].evaluation.adapt_on,
        baseline=baseline,
        metric=metric,
        rows=tuple(
            row.model_copy(update={"differences": _differences(row, base, metric)}) for row in rows
        ),
    )


def refuse_unequal(experiments: Sequence[Experiment]) -> None:
    """Raise ConfigError unless all experiments have the same clients and the same adaptation."""
    if not experiments:
        raise ConfigError("nothing to compare; give at least one experiment file")
    labels = [experiment.label for experiment in experiments]
    for label in labels:
        if labels.count(label) > 1 or sum(slug(other) == slug(label) for other in labels) > 1:
            raise ConfigError(f"two experiments are called {label!r}; give each a label of its own")
    first = experiments[0]
    for other in experiments[1:]:
        if _adaptation_batch(other) != _adaptation_batch(first):
            raise ConfigError(
                f"{other.label!r} and {first.label!r} adapt with batches of different size; "
                "use the same algorithm.batch_size"
            )
        for section in ("data", "objective", "evaluation", "participation"):
            if getattr(other, section) != getattr(first, section):
                raise ConfigError(
                    f"{other.label!r} and {first.label!r} differ in {section}; "
                    "a fair comparison needs the same clients, objective, participation and "
                    "adaptation"
                )


def choose_baseline(experiments: Sequence[Experiment], label: str | None) -> str:
    """Return the label of the baseline: as asked, else FedAvg + update, else the first row."""
    labels = [experiment.label for experiment in experiments]
    if label is not None:
        if label not in labels:
            raise ConfigError(f"--baseline {label!r} is not compared; use one of {labels}")
        return label
    if "FedAvg + update" in labels:
        return "FedAvg + update"
    averaging = [e.label for e in experiments if e.algorithm["name"] == "fedavg"]
    return (averaging or labels)[0]


def slug(label: str) -> str:
    """Return a folder name for a label."""
    return re.sub(r"[^\w.=-]+", "-", label.lower()).strip("-.") or "run"


def _run_folder(label: str, seed: int) -> Path:
    """Return a run's folder, relative to the comparison's."""
    return Path(slug(label)) / f"seed-{seed}"


def _outcome(experiment: Experiment, folder: Path, listener: Listener) -> RunSummary | Diverged:
    """Return the run's summary: from its folder if it is complete, else by running it."""
    directory = RunDirectory(folder)
    if directory.is_complete and read_experiment(folder) == experiment:
        summary = directory.summary()
        if summary.data_digest == experiment.build_data().digest():
            return summary
        raise ConfigError(f"{folder} was made with other data; choose another folder with --out")
    try:
        started = directory.config_file.exists()
        return run_experiment(experiment, folder, resume=started, listener=listener).summary
    except DivergedError as error:
        listener.note(str(error))
        return str(error)


def _row(experiment: Experiment, outcomes: Outcomes) -> ComparisonRow:
    """Return a method's row: means over seeds of the means over clients."""
    finished = {s: each for s, each in outcomes.items() if isinstance(each, RunSummary)}
    diverged = {str(s): each for s, each in outcomes.items() if isinstance(each, Diverged)}
    summaries = [finished[seed] for seed in sorted(finished)]
    first = summaries[0] if summaries else None
    return ComparisonRow(
        label=experiment.label,
        algorithm=to_json(experiment.algorithm),
        seeds=tuple(sorted(finished)),
        runs=tuple(str(_run_folder(experiment.label, seed)) for seed in sorted(outcomes)),
        diverged=diverged,
        failed={str(s): "; ".join(each.failures) for s, each in finished.items() if each.failures},
        gradient_evaluations=first and first.gradient_evaluations,
        gradient_evaluations_per_client=(
            first.gradient_evaluations_per_client if first else GradientsPerClient()
        ),
        seconds=sum(each.seconds or 0.0 for each in summaries),
        known=scores_over_seeds(summaries, KNOWN),
        new=scores_over_seeds(summaries, NEW),
        adaptation=curves_over_seeds(summaries),
    )


def _differences(row: ComparisonRow, base: ComparisonRow, metric: Metric) -> Differences:
    """Return the primary metric after adaptation minus the baseline's, paired by seed."""
    if row is base:
        return Differences()
    return Differences(known=_paired(row, base, KNOWN, metric), new=_paired(row, base, NEW, metric))


def _paired(
    row: ComparisonRow, base: ComparisonRow, group: str, metric: Metric
) -> PairedDifference | None:
    shared = [seed for seed in row.seeds if seed in base.seeds]
    if not shared or group not in row.groups or group not in base.groups:
        return None
    ours, theirs = _by_seed(row, group, metric), _by_seed(base, group, metric)
    pairs = [(ours[seed], theirs[seed]) for seed in shared]
    complete = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(complete) < len(pairs):
        return None
    return paired_difference([a for a, _ in complete], [b for _, b in complete], metric.direction)


def _by_seed(row: ComparisonRow, group: str, metric: Metric) -> dict[int, float | None]:
    values = row.groups[group][metric.name].after.values
    return dict(zip(row.seeds, values, strict=True))


def _adaptation_batch(experiment: Experiment) -> object:
    size = experiment.algorithm["batch_size"]
    return size[0] if isinstance(size, list | tuple) else size
