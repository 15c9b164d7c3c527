"""Several algorithms on the same clients, several seeds, one honest table.

A seed varies the partition, the initial model and every draw. All rows adapt by the same number of
steps on the same split. Differences are paired by seed: both methods saw the same clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.atomic_files import write_json, write_text
from headstart.errors import ConfigError, DivergedError, OutputError
from headstart.experiments.configuration import Experiment
from headstart.records import RunDirectory
from headstart.experiments.results import as_csv
from headstart.experiments.training import Listener, run_experiment
from headstart.metric import ACCURACY, Metric
from headstart.records import half_width, paired

ListenerFor = Callable[[str, int], Listener]
GROUPS = ("known_clients", "new_clients")


def compare(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    out: Path,
    *,
    baseline: str | None = None,
    listener: ListenerFor | None = None,
) -> dict[str, Any]:
    """Run what is not yet done, and write ``comparison.json`` and ``comparison.csv``."""
    refuse_unequal(experiments)
    if (out / "config.toml").exists():
        raise OutputError(f"{out} holds a single run; choose another folder with --out")
    chosen = choose_baseline(experiments, baseline)
    outcomes: dict[str, dict[int, dict[str, Any]]] = {}
    for experiment in experiments:
        outcomes[experiment.label] = {}
        for seed in seeds:
            folder = out / slug(experiment.label) / f"seed-{seed}"
            hear = listener(experiment.label, seed) if listener else Listener()
            summary = outcome(experiment.with_seed(seed), folder, hear)
            outcomes[experiment.label][seed] = summary
    result = compared(experiments, seeds, outcomes, chosen)
    write_comparison(out, result)
    return result


def write_comparison(out: Path, result: dict[str, Any]) -> None:
    """``comparison.json`` and ``comparison.csv``."""
    write_json(out / "comparison.json", result)
    write_text(out / "comparison.csv", as_csv([flat(row) for row in result["rows"]]))


def compared(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    outcomes: Mapping[str, dict[int, dict[str, Any]]],
    baseline: str,
) -> dict[str, Any]:
    """The table of a comparison, from the summaries of its runs by label and seed."""
    rows, metric = [], ACCURACY
    for experiment in experiments:
        found = outcomes[experiment.label]
        good = [o for o in found.values() if "diverged" not in o]
        metric = Metric.of(good[0]) if good else metric
        rows.append(row(experiment, found))
    return {
        "data": dict(experiments[0].data),
        "rounds": sorted({e.rounds for e in experiments}),
        "seeds": list(seeds),
        "adapt_steps": experiments[0].evaluation.adapt_steps,
        "adapt_on": experiments[0].evaluation.adapt_on,
        "baseline": baseline,
        "metric": metric.to_table(),
        "rows": with_differences(rows, baseline, metric),
    }


def outcome(experiment: Experiment, folder: Path, listener: Listener) -> dict[str, Any]:
    """The run's summary: from its folder if it is there, else by running or resuming it."""
    directory = RunDirectory(folder)
    started = (folder / "config.toml").exists()
    if directory.is_complete and directory.experiment() == experiment:
        summary = directory.summary()
        if summary["data_digest"] == experiment.build_data().digest():
            return summary
        raise ConfigError(f"{folder} was made with other data; choose another folder with --out")
    try:
        return run_experiment(experiment, folder, resume=started, listener=listener).summary
    except DivergedError as error:
        listener.note(str(error))
        return {"diverged": str(error)}


def row(experiment: Experiment, outcomes: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """One line of the table: means over seeds of the means over clients."""
    good = {seed: o for seed, o in outcomes.items() if "diverged" not in o}
    entry: dict[str, Any] = {
        "label": experiment.label,
        "algorithm": dict(experiment.algorithm),
        "seeds": sorted(good),
        "runs": [str(Path(slug(experiment.label)) / f"seed-{seed}") for seed in sorted(outcomes)],
        "diverged": {str(seed): o["diverged"] for seed, o in outcomes.items() if "diverged" in o},
        "failed": {
            str(seed): "; ".join(o["failures"]) for seed, o in good.items() if o.get("failures")
        },
        "gradient_evaluations": _any(good, "gradient_evaluations"),
        "gradient_evaluations_per_client": _any(good, "gradient_evaluations_per_client"),
        "seconds": sum(o["seconds"] for o in good.values()),
    }
    first = next(iter(good.values()), {})
    metric = Metric.of(first)
    names = [metric, *(Metric(**table) for table in first.get("metrics", ())[1:])]
    for group in GROUPS:
        parts = [o if group == "known_clients" else o["new_clients"] for o in good.values()]
        entry[group] = None
        if parts and parts[0] is not None:
            entry[group] = over_seeds(parts, metric) | _others(parts, names[1:])
    entry["adaptation"] = curve_over_seeds([o["adaptation"] for o in good.values()], metric.name)
    return entry


def _others(parts: list[dict[str, Any]], metrics: Sequence[Metric]) -> dict[str, Any]:
    """The metrics beside the primary one, by their names."""
    return {metric.name: over_seeds(parts, metric) for metric in metrics}


def over_seeds(parts: list[dict[str, Any]], metric: Metric = ACCURACY) -> dict[str, Any]:
    """A metric before and after: the mean over clients, then mean and interval over seeds.

    ``p10`` and ``p90`` are what one client in ten stays below and above.
    """
    table = {}
    for when in ("before", "after"):
        found = [part[metric.name][when] for part in parts]
        values = [one["mean"] for one in found]
        known = None not in values
        table[when] = {
            "mean": float(np.mean(values)) if known else None,
            "ci95": half_width(values) if known else None,
            "values": values,
            "p10": float(np.mean([one["p10"] for one in found])) if known else None,
        }
        if metric.direction == "lower":
            table[when]["p90"] = float(np.mean([o["p90"] for o in found])) if known else None
    return table


def curve_over_seeds(curves: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The primary metric against adaptation steps, mean and interval over seeds."""
    if not curves:
        return None
    result: dict[str, Any] = {"steps": curves[0]["steps"]}
    for group in GROUPS:
        if curves[0][group] is None:
            result[group] = None
            continue
        columns = list(zip(*(curve[group][name] for curve in curves), strict=True))
        whole = [None not in column for column in columns]
        result[group] = {
            name: [float(np.mean(c)) if ok else None for c, ok in zip(columns, whole, strict=True)],
            "ci95": [half_width(c) if ok else None for c, ok in zip(columns, whole, strict=True)],
        }
    return result


def with_differences(
    rows: list[dict[str, Any]], baseline: str, metric: Metric = ACCURACY
) -> list[dict[str, Any]]:
    """Each row's metric after adaptation minus the baseline's, paired by seed."""
    base = next(r for r in rows if r["label"] == baseline)
    for entry in rows:
        shared = [seed for seed in entry["seeds"] if seed in base["seeds"]]
        entry["difference"] = {}
        for group in GROUPS:
            if entry is base or entry[group] is None or base[group] is None or not shared:
                entry["difference"][group] = None
                continue
            mine, theirs = _by_seed(entry, group, shared), _by_seed(base, group, shared)
            if None in mine or None in theirs:
                entry["difference"][group] = None
                continue
            entry["difference"][group] = paired(mine, theirs, metric.direction)
            if entry["failed"] or base["failed"]:
                entry["difference"][group]["verdict"] = "failed"
    return rows


def flat(entry: dict[str, Any]) -> dict[str, Any]:
    """A row for ``comparison.csv``."""
    line = {"label": entry["label"], "algorithm": entry["algorithm"]["name"]}
    line["seeds"], line["diverged"] = len(entry["seeds"]), len(entry["diverged"])
    line["gradient_evaluations"] = entry["gradient_evaluations"]
    for group in GROUPS:
        for when in ("before", "after"):
            part = entry[group] and entry[group][when]
            for number in ("mean", "ci95"):
                line[f"{group}_{when}_{number}"] = part and part[number]
        difference = entry["difference"][group] or {}
        line[f"{group}_difference"] = difference.get("mean")
        line[f"{group}_difference_ci95"] = difference.get("ci95")
    return line


def refuse_unequal(experiments: Sequence[Experiment]) -> None:
    """A comparison is fair only on the same clients, with the same adaptation."""
    if not experiments:
        raise ConfigError("nothing to compare; give at least one experiment file")
    labels = [e.label for e in experiments]
    for label in labels:
        if labels.count(label) > 1 or sum(slug(o) == slug(label) for o in labels) > 1:
            raise ConfigError(f"two experiments are called {label!r}; give each a label of its own")
    first = experiments[0]
    for other in experiments[1:]:
        if _adaptation_batch(other) != _adaptation_batch(first):
            raise ConfigError(
                f"{other.label!r} and {first.label!r} adapt with batches of different size; "
                "use the same algorithm.batch_size"
            )
        for what in ("data", "objective", "evaluation", "participation"):
            if getattr(other, what) != getattr(first, what):
                raise ConfigError(
                    f"{other.label!r} and {first.label!r} differ in {what}; "
                    "a fair comparison needs the same clients, objective, participation and "
                    "adaptation"
                )


def choose_baseline(experiments: Sequence[Experiment], label: str | None) -> str:
    """The row the others are compared with: as asked, else FedAvg + update, else the first."""
    labels = [e.label for e in experiments]
    if label is not None:
        if label not in labels:
            raise ConfigError(f"--baseline {label!r} is not compared; use one of {labels}")
        return label
    if "FedAvg + update" in labels:
        return "FedAvg + update"
    averaging = [e.label for e in experiments if e.algorithm["name"] == "fedavg"]
    return (averaging or labels)[0]


def slug(label: str) -> str:
    """A folder name for a label."""
    return re.sub(r"[^\w.=-]+", "-", label.lower()).strip("-.") or "run"


def _adaptation_batch(experiment: Experiment) -> int:
    size = experiment.algorithm["batch_size"]
    return size[0] if isinstance(size, list | tuple) else size


def _by_seed(entry: dict[str, Any], group: str, seeds: list[int]) -> list[float]:
    values = dict(zip(entry["seeds"], entry[group]["after"]["values"], strict=True))
    return [values[seed] for seed in seeds]


def _any(outcomes: dict[int, dict[str, Any]], key: str) -> Any:
    return next((o[key] for o in outcomes.values()), None)
