"""What is said of a data set is what is in it."""

import json

import numpy as np

from headstart.data import Schema, describe, from_clients
from headstart.data._dataset_summary import count_classes


def test_numbers_of_a_small_data_set() -> None:
    def part(n: int, label: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((n, 1)), np.full(n, label)

    clients = [(*part(4, 0), *part(1, 1)), (*part(2, 2), *part(1, 2)), (*part(9, 0), *part(5, 1))]
    data = from_clients(clients, Schema(shape=(1,), classes=3), new_clients=1, names=list("abc"))
    about = describe(data)
    assert about["clients"] == 3 and about["known_clients"] == 2 and about["examples"] == 22
    assert about["train_examples"] == {"min": 2, "median": 4, "max": 9}
    assert about["held_out_examples"] == {"min": 1, "median": 1, "max": 5}
    assert about["classes_per_client"] == {"min": 1, "median": 2, "max": 2}
    rows = count_classes(data)
    assert [row["labels"] for row in rows] == [[4, 1, 0], [0, 0, 3], [9, 5, 0]]
    assert [row["new"] for row in rows] == [False, False, True]
    json.dumps([about, rows])
