"""Problems that a check finds: where, what, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LONGEST_REASON = 300


class Problem(NamedTuple):
    """One violation of a contract."""

    where: str
    """The method, or the property of the class."""
    what: str
    remedy: str

    def __str__(self) -> str:
        """Describe the problem in one line."""
        return f"{self.where}: {self.what}; {self.remedy}"


class ContractError(AssertionError):
    """An algorithm or a model does not keep its contract; ``problems`` lists why."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        lines = "".join(f"\n  {number}. {p}" for number, p in enumerate(problems, 1))
        super().__init__(f"{name} does not keep the contract:{lines}")


class CheckStopped(Exception):
    """A check cannot continue because of a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def report_errors_as_problems(where: str) -> Iterator[None]:
    """Turn an exception inside the block into a problem at ``where``."""
    try:
        yield
    except CheckStopped:
        raise
    except Exception as error:
        raise CheckStopped(
            Problem(where, f"raised {describe_error(error)}", _remedy(error))
        ) from error


def describe_error(error: Exception) -> str:
    """Return the class of an error and its first line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:LONGEST_REASON].rstrip(" :")


def _remedy(error: Exception) -> str:
    if isinstance(error, jax.errors.JAXTypeError):
        return (
            "the method is compiled: use jnp.where instead of if, and declare options that change "
            "the program with eqx.field(static=True, …)"
        )
    return "correct the method"


def describe_difference(expected: Any, actual: Any) -> str:
    """Describe the first difference between the structures, shapes or types of two trees.

    >>> describe_difference({"a": jnp.zeros(2)}, {"a": jnp.zeros(3)})
    'leaf a has shape (3,) instead of (2,)'
    """
    expected_leaves, actual_leaves = _name_leaves(expected), _name_leaves(actual)
    for name, leaf in expected_leaves.items():
        if name not in actual_leaves:
            return f"leaf {name} is missing"
        other = actual_leaves[name]
        if _shape(leaf) != _shape(other):
            return f"leaf {name} has shape {_shape(other)} instead of {_shape(leaf)}"
        if _dtype(leaf) != _dtype(other):
            return f"leaf {name} has type {_dtype(other)} instead of {_dtype(leaf)}"
    for name in actual_leaves:
        if name not in expected_leaves:
            return f"leaf {name} should not be there"
    expected_form, actual_form = jax.tree.structure(expected), jax.tree.structure(actual)
    if expected_form != actual_form:  # type: ignore[operator]
        return f"its structure is {actual_form} instead of {expected_form}"
    return ""


def are_identical(a: Any, b: Any) -> bool:
    """Return whether two trees are identical bit for bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(u).tobytes() == np.asarray(v).tobytes() for u, v in pairs)


def find_largest_gap(a: Any, b: Any) -> tuple[str, float]:
    """Return the leaf in which two trees of the same structure differ most, and by how much.

    Differences are relative for numbers above 1, and infinite where a number is not finite.
    """
    worst = ("", 0.0)
    for (name, u), v in zip(_name_leaves(a).items(), jax.tree.leaves(b), strict=True):
        first, second = np.asarray(u, float), np.asarray(v, float)
        gaps = np.abs(first - second) / np.maximum(1.0, np.abs(first))
        gap = float(np.max(np.nan_to_num(gaps, nan=np.inf), initial=0.0))
        if gap > worst[1]:
            worst = (name, gap)
    return worst


def find_not_finite(tree: Any) -> str:
    """Return the name of the first leaf with a number that is not finite, or an empty text."""
    for name, leaf in _name_leaves(tree).items():
        if not np.all(np.isfinite(np.asarray(leaf))):
            return name
    return ""


def _name_leaves(tree: Any) -> dict[str, Any]:
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "value": leaf
        for path, leaf in named
    }


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(jnp.shape(leaf))


def _dtype(leaf: Any) -> Any:
    return getattr(leaf, "dtype", None) or jnp.result_type(leaf)
