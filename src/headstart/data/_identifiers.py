"""Detect columns that identify rows rather than describe them, which can leak the label.

A row number, a serial number or a time of entry says nothing about a new example, but where rows
are sorted by class it predicts the held-out ones perfectly.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from headstart.data._example_pool import Pool
from headstart.errors import DataWarning

SMALLEST = 8
"""Clients with fewer rows are skipped: their values may be sorted by chance."""
MANY = 30
"""In fewer rows all whole numbers may differ by chance, so such clients are joined."""
EXACT = 2**24
"""32-bit floats do not hold all whole numbers beyond this exactly."""
MOST_CLIENTS = 1000
"""Only this many clients are examined, so that the check takes no longer than reading."""
DISTINCT = 3
"""Columns with fewer different values (yes and no) are easily sorted by chance."""


def warn_about_identifiers(pool: Pool, path: Path) -> None:
    """Warn in one line about columns that look like identifiers."""
    reasons = find_identifier_columns(pool)
    if reasons:
        named = ", ".join(f"{name!r} ({reason})" for name, reason in reasons.items())
        plural = len(reasons) > 1
        warnings.warn(
            f"{path}: column{'s' * plural} {named} may identify rows rather than describe them "
            "and give the label away; if so, leave "
            f"{'them' if plural else 'it'} out with data.drop",
            DataWarning,
            stacklevel=4,
        )


def find_identifier_columns(pool: Pool) -> dict[str, str]:
    """Return columns that are sorted or hold unique whole numbers in most clients, with the reason.

    Unique measurements are common; unique whole numbers are most often identifiers.
    """
    names = pool.schema.feature_names
    if not names:
        return {}
    clients = _collect_client_rows(pool)
    reasons = {}
    for place, name in enumerate(names):
        columns = [pool.x[rows, place] for rows in clients]
        columns = [column for column in columns if np.any(column != column[0])]
        if not columns:
            continue
        if np.mean([_is_sorted(column) for column in columns]) > 0.5:
            reasons[name] = "sorted within most clients"
        elif np.mean([_is_serial(column) for column in _select_long(columns)]) > 0.5:
            reasons[name] = "a different whole number in every row"
    return reasons


def _collect_client_rows(pool: Pool) -> list[np.ndarray]:
    """Return the rows of each client that is large enough, in their order."""
    if pool.owner is None:
        return [np.arange(len(pool.y))] if len(pool.y) >= SMALLEST else []
    order = np.argsort(pool.owner, kind="stable")
    sizes = np.bincount(pool.owner)
    ends = np.cumsum(sizes)
    large = np.flatnonzero(sizes >= SMALLEST)[:MOST_CLIENTS]
    return [order[ends[c] - sizes[c] : ends[c]] for c in large]


def _is_sorted(column: np.ndarray) -> bool:
    steps = np.diff(column)
    in_order = bool(np.all(steps >= 0) or np.all(steps <= 0))
    return in_order and len(np.unique(column)) >= DISTINCT


def _select_long(columns: list[np.ndarray]) -> list[np.ndarray]:
    return [column for column in columns if len(column) >= MANY] or [np.concatenate(columns)]


def _is_serial(column: np.ndarray) -> bool:
    whole = bool(np.all(column == np.floor(column)))
    distinct = len(np.unique(column))
    return whole and (distinct == len(column) or (distinct > 1 and np.abs(column).min() > EXACT))
