"""Problems that a check finds: where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LONGEST_REASON = 300


class Problem(NamedTuple):
    """One thing that is wrong."""

    where: str
    """The method, or the property of the class."""
    what: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.what}; {self.remedy}"


class ContractError(AssertionError):
    """An algorithm or a model does not keep its contract; ``problems`` says where."""

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
    """Turn an exception inside the block into a problem of this place."""
    try:
        yield
    except CheckStopped:
        raise
    except Exception as error:
        raise CheckStopped(
            Problem(where, f"raised {describe_error(error)}", _remedy(error))
        ) from error


def describe_error(error: Exception) -> str:
    """The class of an error and its first line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:LONGEST_REASON].rstrip(" :")


def _remedy(error: Exception) -> str:
    if isinstance(error, jax.errors.JAXTypeError):
        return (
            "the method is compiled: use jnp.where in place of if, and declare options that change "
            "the program with eqx.field(static=True, …)"
        )
    return "correct the method"


def describe_difference(expected: Any, found: Any) -> str:
    """The first difference between the structures, shapes or types of two trees, in words.

    >>> describe_difference({"a": jnp.zeros(2)}, {"a": jnp.zeros(3)})
    'leaf a has shape (3,) instead of (2,)'
    """
    wanted, given = _leaves(expected), _leaves(found)
    for name, leaf in wanted.items():
        if name not in given:
            return f"leaf {name} is missing"
        if _shape(leaf) != _shape(given[name]):
            return f"leaf {name} has shape {_shape(given[name])} instead of {_shape(leaf)}"
        if _dtype(leaf) != _dtype(given[name]):
            return f"leaf {name} has type {_dtype(given[name])} instead of {_dtype(leaf)}"
    for name in given:
        if name not in wanted:
            return f"leaf {name} should not be there"
    one, other = jax.tree.structure(expected), jax.tree.structure(found)
    if one != other:  # type: ignore[operator]
        return f"it is built as {other} instead of {one}"
    return ""


def are_identical(a: Any, b: Any) -> bool:
    """Whether two trees agree to the bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(u).tobytes() == np.asarray(v).tobytes() for u, v in pairs)


def find_largest_gap(a: Any, b: Any) -> tuple[str, float]:
    """The leaf in which two trees of the same structure differ most, and by how much.

    Differences are relative for numbers above 1, and infinite where one is not finite.
    """
    worst = ("", 0.0)
    for (name, u), v in zip(_leaves(a).items(), jax.tree.leaves(b), strict=True):
        one, other = np.asarray(u, float), np.asarray(v, float)
        gaps = np.abs(one - other) / np.maximum(1.0, np.abs(one))
        gap = float(np.max(np.nan_to_num(gaps, nan=np.inf), initial=0.0))
        if gap > worst[1]:
            worst = (name, gap)
    return worst


def find_not_finite(tree: Any) -> str:
    """The name of the first leaf with a number that is not finite; empty if there is none."""
    for name, leaf in _leaves(tree).items():
        if not bool(jnp.all(jnp.isfinite(leaf))):
            return name
    return ""


def _leaves(tree: Any) -> dict[str, Any]:
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "value": leaf
        for path, leaf in named
    }


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(jnp.shape(leaf))


def _dtype(leaf: Any) -> Any:
    return getattr(leaf, "dtype", None) or jnp.result_type(leaf)
