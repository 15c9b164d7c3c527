"""Make a client's model from a file of examples, or from the run's own data."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from headstart._atomic_files import write_json
from headstart._experiments.configuration import Table, read_experiment
from headstart._experiments.finished_run import PersonalModel, Run
from headstart._experiments.run_files import load_run
from headstart._metric import Metric
from headstart.data._example_files import read_examples
from headstart.errors import ConfigError, DataError, OutputError
from headstart.models.objectives import make_objective
from headstart.options import convert, require_at_least
from headstart.records import Change, PersonalResult


def personalize_file(
    run_folder: Path,
    file: Path,
    *,
    steps: int | None = None,
    out: Path | None = None,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    force: bool = False,
) -> PersonalResult:
    """Adapt to a part of the examples, score on the rest, write the model that was scored."""
    if not 0 < test_fraction < 1:
        raise ConfigError(f"--test-fraction={test_fraction} must lie between 0 and 1")
    require_at_least(0, **{"--seed": seed})
    model = out or run_folder / "personal" / f"{file.stem}.safetensors"
    refuse_to_replace(model, force)
    run = load_run(run_folder)
    x, y = _read(file, run, read_experiment(run_folder).data, label)
    train, test = split_rows(len(y), test_fraction, seed, file)
    before = run.personalize(x[train], y[train], steps=0, seed=seed)
    after = run.personalize(x[train], y[train], steps=steps, seed=seed)
    result = PersonalResult(
        run=str(run_folder),
        data=str(file),
        steps=after.steps or 0,
        chosen=after.chosen,
        train_examples=len(train),
        test_examples=len(test),
        metric=primary_metric(after),
        scores=score_change(before, after, x[test], y[test]),
        model=str(model),
    )
    after.save(model, algorithm=run.summary.algorithm)
    write_json(model.with_suffix(".json"), result.to_table())
    return result


def personalize_client(
    run_folder: Path,
    client: str,
    *,
    steps: int | None = None,
    out: Path | None = None,
    force: bool = False,
) -> PersonalResult:
    """Write the model of one of the run's own clients, as it was scored."""
    run = load_run(run_folder)
    number, own = run.client_data(client)
    model = out or run_folder / "personal" / f"{_file_name(own.name)}.safetensors"
    refuse_to_replace(model, force)
    before, after = (run.personalize(client=number, steps=n) for n in (0, steps))
    result = PersonalResult(
        run=str(run_folder),
        client=own.name,
        steps=after.steps or 0,
        chosen=after.chosen,
        train_examples=len(own.y_train),
        test_examples=len(own.y_test),
        metric=primary_metric(after),
        scores=score_change(before, after, own.x_test, own.y_test),
        model=str(model),
    )
    after.save(model, algorithm=run.summary.algorithm)
    write_json(model.with_suffix(".json"), result.to_table())
    return result


def score_change(
    before: PersonalModel, after: PersonalModel, x: np.ndarray, y: np.ndarray
) -> dict[str, Change]:
    """Return every metric before and after adaptation."""
    scores = before.score(x, y), after.score(x, y)
    objective = make_objective(after.model, after.schema, after.objective)
    return {
        name: Change(before=scores[0][name], after=scores[1][name]) for name in objective.metrics
    }


def primary_metric(model: PersonalModel) -> Metric:
    """Return the metric by which the model is judged."""
    return Metric.of(
        {"metric": make_objective(model.model, model.schema, model.objective).primary.to_table()}
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "client"


def _read(file: Path, run: Run, options: Table, label: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Read the file's examples as the run's own data: same label, same ignored columns."""
    name = label or convert(str, options.get("label", "label"), "data.label")
    dropped: list[str] = convert(list[str], options.get("drop", ()), "data.drop")
    ignore = (*dropped, str(options.get("client", "client")))
    try:
        return read_examples(file, run.schema, label=name, ignore=ignore)
    except DataError as error:
        # Here the label is an option of the command, not a key of an experiment.
        raise DataError(str(error).replace("data.label", "--label")) from None


def refuse_to_replace(model: Path, force: bool) -> None:
    """Raise OutputError if the model file or its result exists and must not be replaced."""
    if model.suffix != ".safetensors":
        raise OutputError(f"--out {model} must end in .safetensors")
    for path in (model, model.with_suffix(".json")):
        if path.exists() and not force:
            raise OutputError(f"{path} exists already; use --force to replace it, or --out")


def split_rows(
    count: int, test_fraction: float, seed: int, file: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to adapt on and the rows to score on, drawn at random."""
    if count < 2:
        raise DataError(
            f"{file} has {count} example{'s' * (count != 1)}; at least 2 are needed, one of them "
            "to score on"
        )
    rows = np.random.default_rng(seed).permutation(count)
    held = min(max(1, round(count * test_fraction)), count - 1)
    return rows[held:], rows[:held]
