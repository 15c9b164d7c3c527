"""A summary of a data set: clients, sizes, classes and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.data._federated import FederatedDataset


def describe(data: FederatedDataset) -> dict[str, Any]:
    """Summarise clients, their sizes and how many classes they hold; the result is plain JSON.

    >>> import headstart.data
    >>> headstart.data.describe(headstart.data.load("digits").split())["classes_per_client"]
    {'min': 2, 'median': 3.5, 'max': 5}
    """
    return {
        "description": data.description,
        "clients": data.clients,
        "known_clients": data.known_clients,
        "new_clients": data.new_clients,
        "examples": len(data.y),
        "shape": list(data.schema.shape),
        **_describe_labels(data),
        "train_examples": _summarize_counts(data.train_counts),
        "held_out_examples": _summarize_counts(data.test_counts),
        **_describe_holdings(data),
        "columns": describe_columns(data),
    }


def _describe_labels(data: FederatedDataset) -> dict[str, Any]:
    """Return the number of classes or labels, or the range of labels that are numbers."""
    if data.schema.target == "number":
        return {"label": _summarize_numbers(data.y)}
    return {"classes" if data.schema.target == "class" else "labels": data.schema.classes}


def _describe_holdings(data: FederatedDataset) -> dict[str, Any]:
    if data.schema.target == "class":
        return {"classes_per_client": _summarize_counts(_count_classes_held(data))}
    if data.schema.target == "labels":
        held = [np.count_nonzero(data.classes_of(client)) for client in range(data.clients)]
        return {"labels_per_client": _summarize_counts(np.array(held))}
    return {}


def _summarize_numbers(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.percentile(values, (0, 50, 100)).tolist()
    return {"min": low, "median": middle, "max": high}


def describe_columns(data: FederatedDataset) -> list[dict[str, Any]]:
    """List every named column that a model sees, with its range; empty if columns have no names."""
    names = data.schema.feature_names
    if not names:
        return []
    low, high = np.min(data.x, axis=0), np.max(data.x, axis=0)
    return [
        {"name": name, "min": float(low[i]), "max": float(high[i])} for i, name in enumerate(names)
    ]


def count_classes(data: FederatedDataset) -> list[dict[str, Any]]:
    """List each client's name, whether it is new, the sizes of its splits and its class counts."""
    return [
        {
            "client": client,
            "name": data.name(client),
            "new": client >= data.known_clients,
            "train": int(data.train_counts[client]),
            "held_out": int(data.test_counts[client]),
            "labels": data.classes_of(client).tolist(),
        }
        for client in range(data.clients)
    ]


def _count_classes_held(data: FederatedDataset) -> np.ndarray:
    """Count the classes that each client holds, a thousand clients at a time to bound memory."""
    held = np.zeros(data.clients, np.int64)
    for first in range(0, data.clients, 1000):
        last = min(first + 1000, data.clients)
        labels = data.y[int(data.offsets[first]) : int(data.offsets[last])]
        labels_per_example = labels.size // len(labels)
        sizes = np.diff(data.offsets[first : last + 1]) * labels_per_example
        owner = np.repeat(np.arange(last - first), sizes)
        seen = np.zeros((last - first, data.schema.classes), bool)
        seen[owner, np.ravel(labels)] = True
        held[first:last] = seen.sum(axis=1)
    return held


def _summarize_counts(values: np.ndarray) -> dict[str, float]:
    middle = float(np.median(values))
    return {
        "min": int(values.min()),
        "median": int(middle) if middle.is_integer() else middle,
        "max": int(values.max()),
    }
