"""Build checked objects from tables of options, as in a file or on the command line.

Algorithms, models and partitions are dataclasses, and their fields are their options. So a new one
needs no second description of its options.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headstart.errors import ConfigError

__all__ = [
    "build_from_table",
    "choose",
    "convert",
    "refuse_unknown",
    "require_at_least",
    "require_one_of",
    "require_positive",
    "to_json",
    "to_table",
]

T = TypeVar("T")
LARGEST = 2**31 - 1
"""The largest count, because counts are 32-bit integers."""


def build_from_table(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build an instance of the dataclass; ``where`` names the table in messages."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    refuse_unknown(table, fields, where)
    prefix = f"{where}." if where else ""
    missing = [name for name, f in fields.items() if _required(f) and name not in table]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]} is missing; it has no default")
    values = {name: convert(hints[name], value, prefix + name) for name, value in table.items()}
    return cls(**values)


def to_table(thing: Any) -> dict[str, Any]:
    """Return the options of an object, for a file; the inverse of :func:`build_from_table`."""
    fields = [f.name for f in dataclasses.fields(thing) if f.init]
    table = {name: getattr(thing, name) for name in fields}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in table.items() if v is not None}


def to_json(table: Any) -> Any:
    """Return a table as JSON can hold it: an infinite number as text, which is read as a number.

    >>> to_json({"max_gradient_norm": float("inf"), "batch_size": (4, 5, 6)})
    {'max_gradient_norm': 'inf', 'batch_size': [4, 5, 6]}
    >>> convert(float, "inf", "max_gradient_norm")
    inf
    """
    if isinstance(table, Mapping):
        return {key: to_json(value) for key, value in table.items()}
    if isinstance(table, list | tuple):
        return [to_json(value) for value in table]
    return str(table) if isinstance(table, float) and math.isinf(table) else table


def convert(kind: Any, value: Any, where: str) -> Any:
    """Convert a value to the annotated type; a ConfigError says why it does not fit."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind, config={"arbitrary_types_allowed": True}).validate_python(value)
    except ValidationError as error:
        reasons = dict.fromkeys(e["msg"][:1].lower() + e["msg"][1:] for e in error.errors())
        raise ConfigError(f"{where}={value!r} does not fit: {', or '.join(reasons)}") from None


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise a ConfigError for the first unknown name, with the closest known one."""
    known = list(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            shown = name if name.isprintable() else repr(name)
            raise ConfigError(f"{where}.{shown} is not an option; {hint}".lstrip("."))


def choose(table: Mapping[str, T], name: str, where: str) -> T:
    """Return an entry of a registry; a ConfigError lists what there is."""
    if name not in table:
        close = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"{where}={name!r} is not known; {hint}use one of {', '.join(table)}")
    return table[name]


def require_positive(**values: Any) -> None:
    """Require each number to be finite and positive; traced numbers were checked before tracing."""
    for name, value in values.items():
        if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value} must be a finite number above 0")


def require_at_least(least: int, **values: Any) -> None:
    """Require each whole number to be at least ``least``."""
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name}={value} must be at least {least}")
        if value > LARGEST:
            raise ConfigError(f"{name}={value} is too large; use at most {LARGEST}")


def require_one_of(choices: Iterable[str], **values: Any) -> None:
    """Require each word to be one of the choices."""
    for name, value in values.items():
        if value not in list(choices):
            raise ConfigError(f"{name}={value!r} is not known; use one of {', '.join(choices)}")


def _required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
