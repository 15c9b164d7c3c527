"""Build an objective from the ``[objective]`` table or a caller's argument."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

from headstart._extensions import collect_builtin, find_extension, require_subclass
from headstart.errors import ConfigError
from headstart.models._model import Model
from headstart.models.objectives._objective import DataSchema, Objective, Target
from headstart.options import convert, refuse_unknown

OBJECTIVES: dict[str, type[Objective]] = collect_builtin(
    "headstart.models.objectives", require_subclass(Objective)
)
"""Every built-in objective by the name an experiment file uses; further fields are options."""

_PARTS = ("model", "schema")

Maker = Callable[[Model, Any], Objective]
ObjectiveLike = Objective | Maker | str | Mapping[str, Any] | None
"""An objective, a function of model and schema that makes one, a name, or a table."""


def make_objective(model: Model, schema: DataSchema, given: ObjectiveLike = None) -> Objective:
    """Return the objective for this model and data; by default the one that fits the labels.

    >>> from headstart.data import Schema
    >>> from headstart.models import mlp
    >>> type(make_objective(mlp(), Schema(shape=(4,), classes=3))).__name__
    'Classification'
    """
    if isinstance(given, Objective):
        if given.model != model or given.schema != schema:
            raise ConfigError(
                "objective was made for another model or other data; pass its class, or make it "
                "with the model and the schema that are trained"
            )
        return given
    if given is None or isinstance(given, str | Mapping):
        return build_objective({"name": given} if isinstance(given, str) else given, model, schema)
    objective = given(model, schema)
    if not isinstance(objective, Objective):
        kind = type(objective).__name__
        raise ConfigError(f"objective={given!r} gives {kind}, not an Objective")
    return objective


def build_objective(table: Mapping[str, Any] | None, model: Model, schema: DataSchema) -> Objective:
    """Build the objective of an ``[objective]`` table."""
    table = resolve_objective(table or {})
    cls = find_objective_class(table.pop("name", default_objective_name(schema)))
    return cls(model, schema, **_convert_options(cls, table))


def resolve_objective(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table, checked as far as possible without data, without empty options."""
    table = {key: value for key, value in table.items() if value not in (None, [], ())}
    name = table.pop("name", None)
    known: type[Any] = Objective if name is None else find_objective_class(name)
    plain = {
        k: list(v) if isinstance(v, tuple) else v for k, v in _convert_options(known, table).items()
    }
    return plain if name is None else {"name": name, **plain}


def find_target(table: Mapping[str, Any]) -> Target:
    """Return the kind of labels an ``[objective]`` table needs; classes if it has no name."""
    return find_objective_class(table["name"]).target if "name" in table else "class"


def find_objective_class(name: Any) -> type[Objective]:
    """Return an objective by name, built in or not (see :mod:`headstart._extensions`)."""
    name = convert(str, name, "objective.name")
    return find_extension(
        "objective", name, OBJECTIVES, "objective.name", require_subclass(Objective)
    )


def _convert_options(cls: type[Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the options to the types of the class's fields."""
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in _PARTS]
    refuse_unknown(table, known, "objective")
    return {name: convert(hints[name], v, f"objective.{name}") for name, v in table.items()}


def default_objective_name(schema: DataSchema) -> str:
    """Return the name of the objective that fits the labels."""
    if schema.target != "class":
        return {"number": "regression", "labels": "multi-label"}[schema.target]
    return "sequences" if schema.vocabulary else "classification"
