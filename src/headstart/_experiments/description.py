"""Objects made in Python, described so that a folder can hold them.

What can be named (built in, or a class in a module that can be imported) is written down like in
an experiment file, and a stored run is opened without further help. What cannot (a function, a
class in a notebook, data in memory) is called *given*: whoever opens the run gives it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TypeVar

from headstart._experiments.configuration import (
    ALGORITHM,
    GIVEN,
    MODEL,
    RULE,
    STEP,
    EvaluationOptions,
    Experiment,
    Kind,
    Table,
)
from headstart.aggregation import AggregatedAlgorithm
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError
from headstart.models._model import Model
from headstart.models.objectives import Objective, ObjectiveLike
from headstart.models.objectives._objective_options import OBJECTIVES
from headstart.options import build_from_table, to_table
from headstart.parts import Parts

T = TypeVar("T")


def describe_experiment(
    data: FederatedDataset,
    model: Model,
    algorithm: Algorithm,
    *,
    rounds: int,
    participation: float,
    seed: int,
    evaluation: EvaluationOptions,
    objective: ObjectiveLike,
    parts: Parts,
    label: str = "",
) -> Experiment:
    """The experiment that these objects are, as far as it can be written down."""
    inner = algorithm.algorithm if isinstance(algorithm, AggregatedAlgorithm) else algorithm
    return Experiment(
        label=label or algorithm.label,
        seed=seed,
        rounds=rounds,
        participation=participation,
        data={GIVEN: data.description or "data in memory"},
        model=table_of(MODEL, model),
        algorithm=table_of(ALGORITHM, inner),
        aggregation=_aggregation_of(algorithm),
        parts=parts,
        objective=objective_table(objective),
        evaluation=evaluation,
    )


def table_of(kind: Kind[T], thing: T) -> dict[str, object]:
    """A section of an experiment file that gives the thing again, or says that it was given."""
    name = _name_of(kind.builtin, type(thing))
    if name is not None and is_dataclass(thing):
        options = to_table(thing)
        if _is_plain(options) and _gives_again(type(thing), options, thing):
            return {"name": name, **options}
    return {"name": GIVEN, "description": repr(thing)[:200]}


def objective_table(objective: ObjectiveLike) -> dict[str, object]:
    """An ``[objective]`` table."""
    if objective is None:
        return {}
    if isinstance(objective, str):
        return {"name": objective}
    if isinstance(objective, Mapping):
        return dict(objective)
    cls = type(objective) if isinstance(objective, Objective) else objective
    name = _name_of(OBJECTIVES, cls) if isinstance(cls, type) else None
    if name is None:
        return {"name": GIVEN, "description": repr(objective)[:200]}
    if not isinstance(objective, Objective):
        return {"name": name}
    options = {k: v for k, v in to_table(objective).items() if k not in ("model", "schema")}
    return {"name": name, **options} if _is_plain(options) else {"name": GIVEN}


def _aggregation_of(algorithm: Algorithm) -> dict[str, object]:
    if not isinstance(algorithm, AggregatedAlgorithm):
        return {}
    table: dict[str, object] = {}
    if algorithm.steps:
        table["steps"] = [table_of(STEP, step) for step in algorithm.steps]
    if algorithm.rule_used is not None:
        rule = table_of(RULE, algorithm.rule_used)
        table |= {"rule": rule.pop("name"), **rule}
    return table


def _name_of(builtin: Table, cls: type) -> str | None:
    """The name under which the class is found again, or None."""
    for name, known in builtin.items():
        if known is cls:
            return name
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return None
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_plain(options: Table) -> bool:
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _gives_again(cls: type, options: Table, thing: object) -> bool:
    try:
        return bool(build_from_table(cls, options, "") == thing)
    except (ConfigError, TypeError, NameError):
        return False
