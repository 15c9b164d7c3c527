"""Write docs/reference.md: every public name with the first sentence of its docstring.

    python -m tools.reference

Public is what the ``__all__`` of these packages and modules lists. Everything else is private.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

PUBLIC = (
    "headstart",
    "headstart.algorithms",
    "headstart.models",
    "headstart.models.objectives",
    "headstart.data",
    "headstart.aggregation",
    "headstart.parts",
    "headstart.testing",
    "headstart.errors",
    "headstart.machine",
    "headstart.meta",
    "headstart.options",
    "headstart.trees",
    "headstart.records",
    "headstart.report",
    "headstart.theory",
    "headstart.heterogeneity",
)
PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
INTRODUCTION = """# Reference

Every public name, with the first sentence of its docstring; `help(name)` prints the rest. What is
not listed here is private and may change without notice. This page is generated: `make reference`.
"""


def build_reference() -> str:
    """Return the text of the page."""
    sections = [_build_section(importlib.import_module(name)) for name in PUBLIC]
    return "\n".join([INTRODUCTION, *sections])


def describe(module: ModuleType, name: str) -> str:
    """Return the first sentence of a public name's docstring; empty if it has none."""
    thing = getattr(module, name)
    if inspect.ismodule(thing) or inspect.isroutine(thing) or inspect.isclass(thing):
        text = _own_docstring(thing)
    else:
        text = _docstring_in_source(module, name)
    paragraph = " ".join((inspect.cleandoc(text).split("\n\n") or [""])[0].split())
    return re.split(r"(?<=[^.][.?!])\s+(?=[A-Z])", paragraph)[0]


def _build_section(module: ModuleType) -> str:
    lines = [f"## `{module.__name__}`", ""]
    lines += [f"- `{name}` — {describe(module, name)}" for name in module.__all__]
    return "\n".join([*lines, ""])


def _own_docstring(thing: Any) -> str:
    text = thing.__doc__ or ""
    written_by_dataclass = inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")
    return "" if written_by_dataclass else text


def _docstring_in_source(module: ModuleType, name: str) -> str:
    """Return the string below an assignment, here or in the module it is imported from."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            if any((alias.asname or alias.name) == name for alias in statement.names):
                return _docstring_in_source(importlib.import_module(statement.module), name)
        elif name in _assigned_names(statement) and isinstance(following, ast.Expr):
            value = following.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return ""


def _assigned_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return []
    return [target.id for target in targets if isinstance(target, ast.Name)]


if __name__ == "__main__":
    PAGE.write_text(build_reference(), encoding="utf-8")
