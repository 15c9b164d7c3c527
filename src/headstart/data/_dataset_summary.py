"""A summary of a data set: clients, sizes, classes and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.data._federated import FederatedDataset


def describe(data: FederatedDataset) -> dict[str, Any]:
    """Clients, their sizes and how many classes they hold, fit for JSON.

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
        **_labels(data),
        "train_examples": _spread(data.train_counts),
        "held_out_examples": _spread(data.test_counts),
        **_held(data),
        "columns": describe_columns(data),
    }


def _labels(data: FederatedDataset) -> dict[str, Any]:
    """How many classes or labels there are, or between what numbers the labels lie."""
    if data.schema.target == "number":
        return {"label": _range(data.y)}
    return {"classes" if data.schema.target == "class" else "labels": data.schema.classes}


def _held(data: FederatedDataset) -> dict[str, Any]:
    if data.schema.target == "class":
        return {"classes_per_client": _spread(_classes_held(data))}
    if data.schema.target == "labels":
        held = [np.count_nonzero(data.classes_of(client)) for client in range(data.clients)]
        return {"labels_per_client": _spread(np.array(held))}
    return {}


def _range(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.percentile(values, (0, 50, 100)).tolist()
    return {"min": low, "median": middle, "max": high}


def describe_columns(data: FederatedDataset) -> list[dict[str, Any]]:
    """Every named column that a model will see, with its range; empty where there are no names."""
    names = data.schema.feature_names
    if not names:
        return []
    low, high = np.min(data.x, axis=0), np.max(data.x, axis=0)
    return [
        {"name": name, "min": float(low[i]), "max": float(high[i])} for i, name in enumerate(names)
    ]


def count_classes(data: FederatedDataset) -> list[dict[str, Any]]:
    """One row per client: name, new or known, sizes of the splits, labels of each class."""
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


def _classes_held(data: FederatedDataset) -> np.ndarray:
    """How many classes each client holds; a thousand clients at a time, since they may be many."""
    held = np.zeros(data.clients, np.int64)
    for first in range(0, data.clients, 1000):
        last = min(first + 1000, data.clients)
        labels = data.y[int(data.offsets[first]) : int(data.offsets[last])]
        each = labels.size // len(labels)
        owner = np.repeat(np.arange(last - first), np.diff(data.offsets[first : last + 1]) * each)
        seen = np.zeros((last - first, data.schema.classes), bool)
        seen[owner, np.ravel(labels)] = True
        held[first:last] = seen.sum(axis=1)
    return held


def _spread(values: np.ndarray) -> dict[str, float]:
    middle = float(np.median(values))
    return {
        "min": int(values.min()),
        "median": int(middle) if middle.is_integer() else middle,
        "max": int(values.max()),
    }
