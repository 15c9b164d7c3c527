"""Check that an algorithm keeps the contract of :mod:`headstart.algorithms._contract`."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from typing import Any

import tomli_w

from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset
from headstart.models._model import Model
from headstart.options import build_from_table, to_table
from headstart.testing._behaviour_checks import (
    cost_problems,
    engine_problems,
    personal_problems,
    reply_problems,
)
from headstart.testing._bench import Bench
from headstart.testing._problems import (
    CheckStopped,
    ContractError,
    Problem,
    describe_error,
    report_errors_as_problems,
)
from headstart.testing._structure_checks import structure_problems

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def check_algorithm(
    algorithm: Algorithm | type[Algorithm],
    *,
    data: FederatedDataset | None = None,
    model: Model | None = None,
    draws: bool = True,
) -> None:
    """Raise a :class:`ContractError` that lists every problem of the algorithm.

    ``algorithm`` is a class whose options all have defaults, or an instance. It trains a small
    network on a few small clients, unless ``data`` and ``model`` are given. Use ``draws=False`` for
    an algorithm whose clients use all their rows in every step, so that keys have no effect.

    >>> from headstart import FedAvg
    >>> check_algorithm(FedAvg(local_steps=2, batch_size=5))
    """
    problems = algorithm_problems(algorithm, data=data, model=model, draws=draws)
    if problems:
        raise ContractError(_class_of(algorithm).__name__, problems)


def algorithm_problems(
    algorithm: Algorithm | type[Algorithm],
    *,
    data: FederatedDataset | None = None,
    model: Model | None = None,
    draws: bool = True,
) -> list[Problem]:
    """Return every problem of an algorithm; empty if it keeps the contract.

    Computed values are checked only if structures, shapes and types are right.
    """
    cls = _class_of(algorithm)
    if not issubclass(cls, Algorithm):
        return [Problem("class", f"{cls.__name__} is not an Algorithm", "derive it from "
                        "headstart.algorithms.Algorithm")]  # fmt: skip
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        return [Problem("class", f"does not define {', '.join(missing)}", "write these methods")]
    problems = [*_class_problems(cls)]
    try:
        with report_errors_as_problems("options"):
            instance = algorithm() if inspect.isclass(algorithm) else algorithm
            problems += _option_problems(instance)
        with report_errors_as_problems("set-up"):
            bench = Bench.of(instance, data, model)
    except CheckStopped as stopped:
        return [*problems, stopped.problem]
    structural = list(_until_stopped(structure_problems(bench)))
    if structural:
        return problems + structural
    for check in (
        partial(reply_problems, draws=draws), personal_problems, cost_problems, engine_problems
    ):  # fmt: skip
        problems += _until_stopped(check(bench))
    return problems


def _until_stopped(check: Iterator[Problem]) -> Iterator[Problem]:
    """Yield the problems of a check, and the one that stopped it if it cannot continue."""
    try:
        with report_errors_as_problems("rounds"):
            yield from check
    except CheckStopped as stopped:
        yield stopped.problem


def _class_of(algorithm: Any) -> type:
    return algorithm if inspect.isclass(algorithm) else type(algorithm)


def _class_problems(cls: type[Algorithm]) -> Iterator[Problem]:
    if not getattr(cls, "__final__", False):
        yield Problem("class", "it is not final", "write @final (from typing) before the class")
    if _lacks_docstring(cls):
        yield Problem("class", "it has no docstring", "say in one line what it does")
    module = inspect.getmodule(cls)
    if module is not None and not (module.__doc__ or "").strip():
        yield Problem(
            "module",
            "it has no docstring",
            "give the formula with its equation number, and say what the paper leaves open",
        )
    name = getattr(cls, "name", None)
    if not isinstance(name, property) and not (isinstance(name, str) and NAME.fullmatch(name)):
        yield Problem(
            "name",
            f"is {name!r}",
            "set name: ClassVar[str] to lower-case letters, digits and hyphens",
        )


def _lacks_docstring(cls: type) -> bool:
    text = (cls.__dict__.get("__doc__") or "").strip()
    return not text or text.startswith(f"{cls.__name__}(")  # dataclasses generate this one


def _option_problems(algorithm: Algorithm) -> Iterator[Problem]:
    table = {name: value for name, value in to_table(algorithm).items() if _can_be_stored(value)}
    if len(table) < len(to_table(algorithm)):
        return  # an option that only Python code can create
    from_file = tomllib.loads(tomli_w.dumps(table))
    try:
        rebuilt = build_from_table(type(algorithm), from_file, "algorithm")
    except Exception as error:
        yield Problem(
            "options",
            f"they are refused after being written to a file: {describe_error(error)}",
            "annotate each option with its type",
        )
        return
    for name, value in to_table(algorithm).items():
        if to_table(rebuilt).get(name) != value:
            yield Problem(
                "options",
                f"{name}={value!r} becomes {to_table(rebuilt).get(name)!r} in a file",
                f"annotate {name} with its type, and do not change it in __init__",
            )


def _can_be_stored(value: Any) -> bool:
    try:
        tomli_w.dumps({"value": value})
    except TypeError:
        return False
    return True
