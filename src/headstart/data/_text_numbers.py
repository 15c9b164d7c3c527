"""Parse and order text that may be numbers, such as labels and client names."""

from __future__ import annotations

import numpy as np


def number_words(words: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the distinct words in order, and each word's number; whole numbers sort as numbers."""
    names, codes = np.unique(words, return_inverse=True)
    values = [v for v in map(parse_integer, names) if v is not None]
    if len(values) < len(names):
        return [str(name) for name in names], codes
    ordered = sorted(set(values))
    place = {n: i for i, n in enumerate(ordered)}
    return [str(n) for n in ordered], np.array([place[n] for n in values])[codes]


def parse_integer(text: str) -> int | None:
    """Return the whole number in a text, also if written as 1.0, or None."""
    try:
        return int(text)
    except ValueError:
        value = parse_number(text)
        return int(value) if value is not None and value.is_integer() else None


def parse_number(text: str) -> float | None:
    """Return the number in a text, or None."""
    try:
        return float(text)
    except ValueError:
        return None
