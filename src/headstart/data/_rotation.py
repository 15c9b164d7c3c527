"""Images rotated about their centre, and the angle of each client."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

_STREAM = 1
"""Separates the angles from a client's other draws, which use the same seed and number."""


def draw_angle(seed: int, client: int, degrees: float) -> float:
    """Draw a client's angle, uniform in [−degrees, degrees], from the seed and its number alone."""
    return float(np.random.default_rng([seed, client, _STREAM]).uniform(-degrees, degrees))


def rotate_images(
    images: Shaped[np.ndarray, "images height width ..."], degrees: float
) -> Shaped[np.ndarray, "images height width ..."]:
    """Rotate images counter-clockwise about their centre, within their frame.

    The value at a pixel is the bilinear interpolation of the four around the point it comes from;
    points outside the image count as 0. Whole numbers are rounded; the type is kept.

    >>> rotate_images(np.array([[[1, 2], [3, 4]]]), 90).tolist()
    [[[2, 4], [1, 3]]]
    """
    height, width = images.shape[1:3]
    flat = images.reshape(len(images), height * width, -1)
    rotated = np.zeros(flat.shape, np.result_type(images.dtype, np.float32))
    for pixels, weights in _neighbours(height, width, degrees):
        rotated += flat[:, pixels] * weights.astype(rotated.dtype)[None, :, None]
    if images.dtype.kind != "f":
        np.rint(rotated, out=rotated)
    return rotated.astype(images.dtype).reshape(images.shape)


def _neighbours(height: int, width: int, degrees: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each of four neighbours, its pixel number and weight at every pixel."""
    angle = np.deg2rad(degrees)
    row, column = np.indices((height, width), float).reshape(2, -1)
    y, x = row - (height - 1) / 2, column - (width - 1) / 2
    # Rounding lets multiples of 90° hit pixels exactly, although sine and cosine do not.
    from_row = np.round(x * np.sin(angle) + y * np.cos(angle) + (height - 1) / 2, 9)
    from_column = np.round(x * np.cos(angle) - y * np.sin(angle) + (width - 1) / 2, 9)
    top, left = np.floor(from_row), np.floor(from_column)
    found = []
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        r, c = top + down, left + right
        weights = (1 - np.abs(from_row - r)) * (1 - np.abs(from_column - c))
        weights[(r < 0) | (r >= height) | (c < 0) | (c >= width)] = 0
        r, c = np.clip(r, 0, height - 1).astype(int), np.clip(c, 0, width - 1).astype(int)
        found.append((r * width + c, weights))
    return found
