"""Public is what the reference documents: indexes, docstrings and the page agree."""

from __future__ import annotations

import importlib
import inspect
import re
import types

import pytest

from headstart import errors
from headstart.errors import DataWarning, HeadstartError
from tools.reference import PAGE, PUBLIC, build_reference, describe


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    undocumented = [public for public in module.__all__ if not describe(module, public)]
    assert undocumented == []


@pytest.mark.parametrize("name", PUBLIC)
def test_an_index_lists_everything_that_it_imports(name: str) -> None:
    """A class or function that looks public in an index is public."""
    module = importlib.import_module(name)
    here = name if hasattr(module, "__path__") else None
    for public, thing in vars(module).items():
        home = getattr(thing, "__module__", None)
        if public.startswith("_") or isinstance(thing, types.ModuleType) or home is None:
            continue
        own = home == name or (here is not None and home.startswith(f"{here}."))
        if own and (inspect.isclass(thing) or inspect.isfunction(thing)):
            assert public in module.__all__, f"{name}.{public} is not in __all__"


def test_the_reference_is_what_the_script_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_reference(), "run: make reference"


def test_the_tree_of_errors_is_complete() -> None:
    assert errors.__doc__ is not None
    drawn = set(re.findall(r"\b\w+(?:Error|Warning)\b", errors.__doc__))
    importlib.import_module("headstart.testing")
    for module in ("headstart.flower.protocol._error_codes", "headstart._cli.main"):
        pytest.importorskip(module)
    raised = {cls.__name__ for cls in _subclasses(HeadstartError)}
    assert {"HeadstartError", DataWarning.__name__, *raised} <= drawn
    defined = {cls.__name__ for cls in vars(errors).values() if inspect.isclass(cls)}
    assert set(errors.__all__) == defined


def _subclasses(cls: type[HeadstartError]) -> list[type[HeadstartError]]:
    """Return every class below this one that the package defines."""
    found: list[type[HeadstartError]] = []
    for direct in cls.__subclasses__():
        if direct.__module__.startswith("headstart"):
            found += [direct, *_subclasses(direct)]
    return found
