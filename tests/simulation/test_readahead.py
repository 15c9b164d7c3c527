"""What is read ahead is what the rounds will want, and reading ahead changes no result."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny

from headstart._simulation import Simulation
from headstart._simulation.readahead import _MappedRows, is_mapped
from headstart._simulation.sampling import choose_clients
from headstart.algorithms import FedAvg
from headstart.data import open_store, write_store


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", tiny.federation(clients=40, new_clients=2))
    return tmp_path / "store"


def test_exactly_the_training_rows_of_the_coming_clients_are_asked_for(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *place: asked.append(place[:2]))
    data = open_store(stored)
    engine = Simulation(data, tiny.MODEL, FedAvg(**tiny.COMMON), participation=0.1)
    engine.advance(engine.start(), 2)
    engine.read_ahead.wait()
    expected = []
    for number in range(4):  # two rounds, and two more that are likely
        key = engine.keys.sampling(number)
        for client in choose_clients(key, 38, engine.active).tolist():
            start, count = int(data.offsets[client]), int(data.train_counts[client])
            for array in (data.x, data.y):
                assert isinstance(array, np.memmap)
                row = array.strides[0]
                expected.append((array.offset + start * row, count * row))
    assert asked == expected


def test_files_are_closed_with_their_reader(stored: Path) -> None:
    rows = _MappedRows(open_store(stored).x)
    number = rows.file
    os.fstat(number)
    del rows
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_mapped_data_give_the_same_model_to_the_bit(stored: Path) -> None:
    mapped, held = open_store(stored), tiny.federation(clients=40, new_clients=2)
    assert is_mapped(mapped.x) and not is_mapped(held.x) and not is_mapped(mapped.x[1:])
    ends = []
    for data in (mapped, held):
        engine = Simulation(data, tiny.MODEL, FedAvg(**tiny.COMMON), participation=0.2)
        ends.append(jax.tree.map(np.asarray, engine.advance(engine.start(), 3).state))
    assert tiny.identical(*ends)
