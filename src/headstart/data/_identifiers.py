"""Columns that most likely tell rows apart rather than describe them: a silent leak of the label.

A row number, a serial number or a time of entry says nothing of a new example, but where rows are
sorted by class it predicts the held-out ones perfectly.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from headstart.data._example_pool import Pool
from headstart.errors import DataWarning

SMALLEST = 8
"""Clients with fewer rows say nothing: their values may be sorted by chance."""
MANY = 30
"""In fewer rows than this all whole numbers may differ by chance: then all clients are joined."""
EXACT = 2**24
"""Whole numbers beyond this are not kept exactly in 32 bits."""
LOOKED_AT = 1000
"""Clients that are looked at, the first ones; one look must not take longer than the reading."""
DISTINCT = 3
"""Fewer different values (yes and no) are in order too easily."""


def warn_about_identifiers(pool: Pool, path: Path) -> None:
    """One line that names the columns that look like identifiers, if there are any."""
    found = find_identifier_columns(pool)
    if found:
        named = ", ".join(f"{name!r} ({why})" for name, why in found.items())
        plural = len(found) > 1
        warnings.warn(
            f"{path}: column{'s' * plural} {named} may identify rows rather than describe them "
            "and give the label away; if so, leave "
            f"{'them' if plural else 'it'} out with data.drop",
            DataWarning,
            stacklevel=4,
        )


def find_identifier_columns(pool: Pool) -> dict[str, str]:
    """Names of such columns with the reason: sorted, or unique whole numbers, in most clients.

    Measurements are often unique without being identifiers; whole numbers seldom are.
    """
    names = pool.schema.feature_names
    if not names:
        return {}
    clients = _rows_of_clients(pool)
    found = {}
    for place, name in enumerate(names):
        columns = [pool.x[rows, place] for rows in clients]
        columns = [column for column in columns if np.any(column != column[0])]
        if not columns:
            continue
        if np.mean([_is_sorted(column) for column in columns]) > 0.5:
            found[name] = "sorted within most clients"
        elif np.mean([_is_serial(column) for column in _long(columns)]) > 0.5:
            found[name] = "a different whole number in every row"
    return found


def _rows_of_clients(pool: Pool) -> list[np.ndarray]:
    """The rows of each client in their order, of those that are large enough."""
    if pool.owner is None:
        return [np.arange(len(pool.y))] if len(pool.y) >= SMALLEST else []
    order = np.argsort(pool.owner, kind="stable")
    sizes = np.bincount(pool.owner)
    ends = np.cumsum(sizes)
    large = np.flatnonzero(sizes >= SMALLEST)[:LOOKED_AT]
    return [order[ends[c] - sizes[c] : ends[c]] for c in large]


def _is_sorted(column: np.ndarray) -> bool:
    steps = np.diff(column)
    in_order = bool(np.all(steps >= 0) or np.all(steps <= 0))
    return in_order and len(np.unique(column)) >= DISTINCT


def _long(columns: list[np.ndarray]) -> list[np.ndarray]:
    return [column for column in columns if len(column) >= MANY] or [np.concatenate(columns)]


def _is_serial(column: np.ndarray) -> bool:
    whole = bool(np.all(column == np.floor(column)))
    distinct = len(np.unique(column))
    return whole and (distinct == len(column) or (distinct > 1 and np.abs(column).min() > EXACT))
