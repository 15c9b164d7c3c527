"""Replies on their way from clients to the server."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms._cohort import pack_update, packed_dtype, weighted_mean
from headstart.algorithms._contract import Part


@pytest.mark.parametrize(
    "bits, expected",
    [(2, jnp.int8), (8, jnp.int8), (9, jnp.int16), (16, jnp.int16), (32, None), (64, None)],
)
def test_whole_numbers_travel_in_as_few_bytes_as_they_need(bits: int, expected: object) -> None:
    assert packed_dtype(bits) is expected


def test_only_the_update_is_packed() -> None:
    content = {"update": {"w": jnp.array([1.0, -3.0])}, "parts": {"p": jnp.array([0.5])}}
    packed = pack_update(content, 8)
    assert packed["update"]["w"].dtype == jnp.int8
    np.testing.assert_array_equal(packed["update"]["w"], [1, -3])
    assert packed["parts"]["p"].dtype == jnp.float32
    assert pack_update(content, 32) is content


def test_the_weighted_mean_by_hand() -> None:
    parts = [
        Part(jnp.array([1.0, 2.0]), jnp.array(1.0)),
        Part(jnp.array([5.0, 0.0]), jnp.array(3.0)),
    ]
    np.testing.assert_allclose(weighted_mean(parts), [4.0, 0.5])
