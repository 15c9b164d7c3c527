"""Bytes that a client receives and sends, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import tiny

from headstart._simulation import Simulation
from headstart._simulation.traffic import Traffic
from headstart.aggregation import Quantise, with_aggregation
from headstart.algorithms import APFL, FedAvg, Local

PLAIN = FedAvg(**tiny.COMMON)
MODEL = 4 * (tiny.FEATURES + 1) * tiny.CLASSES  # weights and biases of four bytes
STEP_SIZE = WEIGHT = CHOICE = 4
RATES = 2 * 4  # one for each array


@pytest.mark.parametrize(
    "algorithm, down, up",
    [
        (PLAIN, MODEL + STEP_SIZE, MODEL + WEIGHT),
        (
            FedAvg(**tiny.COMMON, random_iterate=True),
            MODEL + STEP_SIZE + CHOICE,
            2 * (MODEL + WEIGHT),
        ),
        (
            FedAvg(**tiny.COMMON, rates="per-array"),
            MODEL + STEP_SIZE + RATES,
            MODEL + WEIGHT + RATES + WEIGHT,
        ),
        (with_aggregation(PLAIN, [Quantise(width=6)]), MODEL + STEP_SIZE, 12 + WEIGHT),  # 90 bits
        (APFL(**tiny.COMMON), MODEL, MODEL + WEIGHT),
        (Local(**tiny.COMMON), 0, WEIGHT),
    ],
    ids=["fedavg", "random iterate", "rates", "six bits", "apfl", "local"],
)
def test_bytes_of_one_client_in_a_round(algorithm: Any, down: int, up: int) -> None:
    traffic = Simulation(tiny.federation(), tiny.MODEL, algorithm).traffic
    assert traffic == (down, up)
    assert traffic.times(3) == Traffic(3 * down, 3 * up)
