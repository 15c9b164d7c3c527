"""A federated data set on the device."""

from __future__ import annotations

import jax
import pytest
import tiny

from headstart._simulation.federation import Federation, _next_power_of_two
from headstart.models import Classification


@pytest.mark.parametrize("least, expected", [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_sizes_are_rounded_up_to_a_power_of_two(least: int, expected: int) -> None:
    assert _next_power_of_two(least) == expected


def test_without_a_mesh_the_data_are_on_one_device() -> None:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    arrays = jax.tree.leaves(federation)
    assert {device for array in arrays for device in array.devices()} == {jax.devices()[0]}
