"""Small changes of a Python source, one at a time."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
    "maximum": "minimum", "sum": "mean", "mean": "sum", "zeros": "ones", "ones": "zeros",
    "zeros_like": "ones_like", "ones_like": "zeros_like", "add": "subtract", "subtract": "add",
    "floor": "ceil", "ceil": "floor", "argmin": "argmax", "argmax": "argmin",
}  # fmt: skip
ANNOTATIONS = {"annotation", "returns", "decorator_list", "type_params", "bases", "keywords"}


@dataclass(frozen=True)
class Mutant:
    """One change of one source file."""

    file: str
    where: str
    before: str
    after: str
    number: int
    source: str

    @property
    def name(self) -> str:
        """Name the change without line numbers, so that edits elsewhere do not rename it."""
        again = f" (#{self.number + 1})" if self.number else ""
        return f"{self.file}: {self.where}: {self.before} → {self.after}{again}"

    @property
    def rank(self) -> str:
        """Order mutants at random, but always alike."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def version(self) -> str:
        """Identify the mutated source."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def mutants_of(path: Path, file: str) -> list[Mutant]:
    """List every mutant of one source file."""
    module = ast.parse(path.read_text())
    count: dict[tuple[str, str, str], int] = {}
    mutants = []
    for where, before, after in _changes(module, module, ""):
        key = (where, before, after)
        count[key] = count.get(key, -1) + 1
        mutants.append(Mutant(file, where, before, after, count[key], ast.unparse(module)))
    return mutants


def _changes(module: ast.Module, node: ast.AST, where: str) -> Iterator[tuple[str, str, str]]:
    """Apply every change below a node in place, one after the other; the last is undone."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        if field in ANNOTATIONS and not isinstance(node, ast.Call):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _left_alone(child):
                continue
            # Show a constant within its expression.
            shown = node if isinstance(child, ast.Constant) and isinstance(node, ast.expr) else None
            before = _text(shown or child)
            for replacement in _replacements(node, field, child):
                _put(node, field, index, replacement)
                yield where, before, _text(shown or replacement)
                _put(node, field, index, child)
            if not isinstance(child, ast.Raise):  # the wording of messages is not mutated
                yield from _changes(module, child, where)


def _put(node: ast.AST, field: str, index: int, child: ast.AST) -> None:
    value = getattr(node, field)
    if isinstance(value, list):
        value[index] = child
    else:
        setattr(node, field, child)


def _left_alone(node: ast.AST) -> bool:
    """Imports, docstrings, and ``strict=True``, which only asserts."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    strict = isinstance(node, ast.keyword) and node.arg == "strict"
    return docstring or strict or isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr)


def _negated_below(test: ast.AST) -> bool:
    """Whether another mutant is the negation of this condition."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(
            ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]
        ):
            return True
    return False


def _replacements(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    conditional = isinstance(parent, ast.If | ast.IfExp | ast.While) and field == "test"
    if conditional and isinstance(node, ast.expr) and not _negated_below(node):
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(node.op)]())
        case ast.Compare() if type(node.ops[0]) in OPERATORS:
            yield _with(node, ops=[OPERATORS[type(node.ops[0])](), *node.ops[1:]])
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.Constant(value=bool() | int() | float() as value):
            yield ast.Constant(_other(value))
        case ast.Call():
            yield from _calls(node)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    if isinstance(node, ast.Expr | ast.Raise | ast.AugAssign):
        yield ast.Pass()


def _calls(call: ast.Call) -> Iterator[ast.Call]:
    """Another function; every keyword left out."""
    match call.func:
        case ast.Name(id=name) if name in FUNCTIONS:
            yield _with(call, func=ast.Name(FUNCTIONS[name]))
        case ast.Attribute(attr=name) if name in FUNCTIONS:
            yield _with(call, func=_with(call.func, attr=FUNCTIONS[name]))
    for keyword in call.keywords:
        if keyword.arg not in (None, "strict"):
            yield _with(call, keywords=[one for one in call.keywords if one is not keyword])


def _other(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 2 * value or 1.0


def _with(node: Any, **fields: Any) -> Any:
    changed = copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:99] + "…"
