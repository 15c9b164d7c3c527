"""What there is to say about a data set before anybody trains on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.data.federated import FederatedDataset


def describe(data: FederatedDataset) -> dict[str, Any]:
    """Clients, their sizes and how many classes they hold, fit for JSON.

    >>> import headstart.data
    >>> headstart.data.describe(headstart.data.load("digits").split())["classes_per_client"]
    {'min': 2, 'median': 3.5, 'max': 5}
    """
    held = [int(np.count_nonzero(data.classes_of(c))) for c in range(data.clients)]
    return {
        "description": data.description,
        "clients": data.clients,
        "known_clients": data.known_clients,
        "new_clients": data.new_clients,
        "examples": len(data.y),
        "shape": list(data.schema.shape),
        "classes": data.schema.classes,
        "train_examples": _spread(data.train_counts),
        "held_out_examples": _spread(data.test_counts),
        "classes_per_client": _spread(np.array(held)),
    }


def class_table(data: FederatedDataset) -> list[dict[str, Any]]:
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


def _spread(values: np.ndarray) -> dict[str, float]:
    middle = float(np.median(values))
    return {
        "min": int(values.min()),
        "median": int(middle) if middle.is_integer() else middle,
        "max": int(values.max()),
    }
