"""Words as numbers: how labels and names of clients are told apart and ordered."""

from __future__ import annotations

import numpy as np


def number_words(words: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The different words in order, and each one's number; whole numbers are ordered as such."""
    names, codes = np.unique(words, return_inverse=True)
    values = [v for v in map(parse_integer, names) if v is not None]
    if len(values) < len(names):
        return [str(name) for name in names], codes
    ordered = sorted(set(values))
    place = {n: i for i, n in enumerate(ordered)}
    return [str(n) for n in ordered], np.array([place[n] for n in values])[codes]


def parse_integer(text: str) -> int | None:
    """The whole number a text says, also as 1.0, or None."""
    try:
        return int(text)
    except ValueError:
        value = parse_number(text)
        return int(value) if value is not None and value.is_integer() else None


def parse_number(text: str) -> float | None:
    """The number a text says, or None."""
    try:
        return float(text)
    except ValueError:
        return None
