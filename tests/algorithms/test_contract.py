"""What every algorithm must keep, whatever it computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tiny

from headstart.algorithms import ALGORITHMS, Algorithm
from headstart.errors import ConfigError
from headstart.testing import algorithm_problems
from headstart.testing._behaviour_checks import count_gradients
from headstart.testing._bench import Bench

grid = pytest.mark.parametrize("algorithm", tiny.VARIANTS.values(), ids=tiny.VARIANTS.keys())


def test_the_grid_covers_every_algorithm() -> None:
    assert {type(a) for a in tiny.VARIANTS.values()} == set(ALGORITHMS.values())


@grid
def test_every_algorithm_keeps_the_contract(algorithm: Algorithm) -> None:
    """tests/testing/test_testing.py shows what this notices."""
    assert algorithm_problems(algorithm) == []


@grid
def test_gradients_are_counted_to_the_last_one(algorithm: Algorithm) -> None:
    """Our own algorithms use the convention: a gradient is 1, a Hessian-vector product 2."""
    updates, step = count_gradients(Bench.of(algorithm, None, None))
    for examples, counts in updates.items():
        assert counts.evaluations == algorithm.gradients_per_update(examples)
    assert step.evaluations == algorithm.gradients_per_step


WRONG = [
    ("inner_lr", 0.0),
    ("inner_lr", float("nan")),
    ("local_lr", -0.1),
    ("local_lr", float("inf")),
    ("local_steps", 0),
    ("batch_size", 0),
]


@pytest.mark.parametrize(
    "cls, option, value",
    [
        (cls, option, value)
        for cls in ALGORITHMS.values()
        for option, value in WRONG
        if option in [field.name for field in dataclasses.fields(cls)]
    ],
)
def test_bad_options_are_refused_by_name(cls: type[Algorithm], option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        cls(**{option: value})
