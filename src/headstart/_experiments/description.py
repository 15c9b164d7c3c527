"""Describe objects made in Python, so that a run folder can store them.

A component with a name (built in, or a class in a module that can be imported) is stored as in an
experiment file, and a stored run is opened without further help. A component without one (a
function, a class in a notebook, data in memory) is marked as *given*: it must be given again when
the run is opened.
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
    """Return the experiment that these objects make up, as far as a file can hold it."""
    inner = algorithm.algorithm if isinstance(algorithm, AggregatedAlgorithm) else algorithm
    return Experiment(
        label=label or algorithm.label,
        seed=seed,
        rounds=rounds,
        participation=participation,
        data={GIVEN: data.description or "data in memory"},
        model=describe_component(MODEL, model),
        algorithm=describe_component(ALGORITHM, inner),
        aggregation=_describe_aggregation(algorithm),
        parts=parts,
        objective=describe_objective(objective),
        evaluation=evaluation,
    )


def describe_component(kind: Kind[T], component: T) -> dict[str, object]:
    """Return the section of an experiment file for a component, or a note that it was given."""
    name = _find_name(kind.builtin, type(component))
    if name is not None and is_dataclass(component):
        options = to_table(component)
        if _is_plain(options) and _can_be_restored(type(component), options, component):
            return {"name": name, **options}
    return {"name": GIVEN, "description": repr(component)[:200]}


def describe_objective(objective: ObjectiveLike) -> dict[str, object]:
    """Return the ``[objective]`` table of an objective."""
    if objective is None:
        return {}
    if isinstance(objective, str):
        return {"name": objective}
    if isinstance(objective, Mapping):
        return dict(objective)
    cls = type(objective) if isinstance(objective, Objective) else objective
    name = _find_name(OBJECTIVES, cls) if isinstance(cls, type) else None
    if name is None:
        return {"name": GIVEN, "description": repr(objective)[:200]}
    if not isinstance(objective, Objective):
        return {"name": name}
    options = {k: v for k, v in to_table(objective).items() if k not in ("model", "schema")}
    return {"name": name, **options} if _is_plain(options) else {"name": GIVEN}


def _describe_aggregation(algorithm: Algorithm) -> dict[str, object]:
    if not isinstance(algorithm, AggregatedAlgorithm):
        return {}
    table: dict[str, object] = {}
    if algorithm.steps:
        table["steps"] = [describe_component(STEP, step) for step in algorithm.steps]
    if algorithm.rule_used is not None:
        rule = describe_component(RULE, algorithm.rule_used)
        table |= {"rule": rule.pop("name"), **rule}
    return table


def _find_name(builtin: Table, cls: type) -> str | None:
    """Return the name under which the class can be found again, or None."""
    for name, known in builtin.items():
        if known is cls:
            return name
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return None
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_plain(options: Table) -> bool:
    """Return whether a file can hold the options; TOML has ``inf``."""
    try:
        json.dumps(options)
    except (TypeError, ValueError):
        return False
    return True


def _can_be_restored(cls: type, options: Table, component: object) -> bool:
    try:
        return bool(build_from_table(cls, options, "") == component)
    except (ConfigError, TypeError, NameError):
        return False
