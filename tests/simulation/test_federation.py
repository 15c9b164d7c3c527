"""A federated data set on the device."""

from __future__ import annotations

import pytest

from headstart._simulation.federation import _next_power_of_two


@pytest.mark.parametrize("least, expected", [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_sizes_are_rounded_up_to_a_power_of_two(least: int, expected: int) -> None:
    assert _next_power_of_two(least) == expected
