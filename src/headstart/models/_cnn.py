"""A small convolutional network for images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from headstart.errors import ConfigError
from headstart.models._layers import (
    ACTIVATIONS,
    Dense,
    check_width,
    check_widths,
    dense_shapes,
    dense_with_zero_bias,
    flatten_to_columns,
    glorot,
    require_numbers,
)
from headstart.models._model import Examples
from headstart.options import require_one_of

STRIDE = 2


class Convolution(eqx.Module):
    r"""Windows of k × k pixels, every second one in both directions, times a matrix.

        out[i, j] = Σ_{a, b < k} W[:, a, b, :] x[2i + a − p, 2j + b − q] + b

    Pixels outside the image are zero; p and q centre the windows, so h × w becomes ⌈h/2⌉ × ⌈w/2⌉.
    """

    weight: Float[Array, "out k k in"]
    bias: Float[Array, " out"]

    # Windows are copied out and multiplied as one matrix. Clients have different weights, and
    # a vmapped lax.conv becomes a grouped convolution, which is slow on CPUs.
    # Gradients of ten clients with 40 images each, 16 and 32 channels, in milliseconds (minimum
    # of 40 trials on two shared cores, so only the ratios are meaningful):
    #                              8 × 8 × 1   28 × 28 × 1   32 × 32 × 3
    #     lax.conv, vmapped            5.4          60           104
    #     lax.conv, one by one         6.2          33            50
    #     windows, vmapped             2.0          27            69
    #     windows, one by one          2.5          24            40
    # A window is a row here, unlike an example in a dense layer: there are many windows and few
    # channels. FedAvg's round of ten clients on two cores: 146 ms with rows, 206 ms with columns
    # for 32 × 32 × 3, 133 and 145 ms for 28 × 28 × 1.
    # The bias is the weight of a last column of ones. Added to the product, it makes XLA compute
    # the activation of a few channels at a time: on one core a gradient took 2.97 ms instead of
    # 2.83 for 32 × 32 × 3, and 2.33 instead of 1.81 for 28 × 28 × 1.
    # Windows of stride 1 with pooling cost about four times as much at 8 × 8, more at 28 × 28.
    def __call__(self, x: Shaped[Array, "batch h w in"]) -> Float[Array, "batch h/2 w/2 out"]:
        """Convolve a batch of images."""
        outputs, k = self.weight.shape[:2]
        patches = windows(x, k)
        ones = jnp.ones((*patches.shape[:-1], 1), patches.dtype)
        rows = jnp.concatenate([patches, ones], axis=-1).reshape(-1, patches.shape[-1] + 1)
        weight = jnp.concatenate([self.weight.reshape(outputs, -1), self.bias[:, None]], axis=1)
        return (rows @ weight.T).reshape(*patches.shape[:-1], outputs)


class CNNParams(eqx.Module):
    """Convolutions, then dense layers up to the logits."""

    convolutions: tuple[Convolution, ...]
    layers: tuple[Dense, ...]


@dataclass(frozen=True)
class CNN:
    """Convolutions of stride 2, then dense layers, with an activation between all of them.

    Images are (height, width, channels). Each convolution halves height and width, rounded up.
    Weights start Glorot-uniform, biases at zero.
    """

    name: ClassVar[str] = "cnn"

    channels: tuple[int, ...] = (16, 32)
    """Output channels of each convolution."""
    kernel: int = 3
    """Height and width of the windows, in pixels."""
    hidden: tuple[int, ...] = (64,)
    """Units of each hidden dense layer."""
    activation: str = "elu"
    """elu, relu, tanh, gelu or silu."""

    def __post_init__(self) -> None:
        """Reject layers without units and unknown activations."""
        object.__setattr__(self, "channels", check_widths("model.channels", self.channels))
        if not self.channels:
            raise ConfigError("model.channels=[] leaves no convolution; use model.name='mlp'")
        object.__setattr__(self, "hidden", check_widths("model.hidden", self.hidden))
        object.__setattr__(self, "kernel", check_width("model.kernel", self.kernel))
        require_one_of(ACTIVATIONS, **{"model.activation": self.activation})

    @property
    def head(self) -> tuple[str, ...]:
        """Name pattern of the last layer."""
        return (f"layers.{len(self.hidden)}.*",)

    def init(self, key: PRNGKeyArray, examples: Examples) -> CNNParams:
        """Draw parameters for these images."""
        require_numbers("cnn", examples)
        rows, columns, depth = _image_shape(examples)
        depths = (depth, *self.channels)
        windows = tuple((*s[:1], self.kernel, self.kernel, *s[1:]) for s in dense_shapes(*depths))
        for _ in self.channels:
            rows, columns = _halve(rows), _halve(columns)
        shapes = dense_shapes(rows * columns * depths[-1], *self.hidden, examples.outputs)
        weights = glorot(key, windows + shapes)
        return CNNParams(
            tuple(Convolution(w, jnp.zeros(len(w))) for w in weights[: len(windows)]),
            tuple(map(dense_with_zero_bias, weights[len(windows) :])),
        )

    def apply(
        self, params: CNNParams, x: Shaped[Array, "batch h w c"]
    ) -> Float[Array, "batch classes"]:
        """Return the logits of a batch."""
        activation = ACTIVATIONS[self.activation]
        for convolution in params.convolutions:
            x = activation(convolution(x))
        h = flatten_to_columns(x)
        for layer in params.layers[:-1]:
            h = activation(layer(h))
        return params.layers[-1](h).T


def cnn(
    channels: Sequence[int] = (16, 32),
    kernel: int = 3,
    hidden: Sequence[int] = (64,),
    activation: str = "elu",
) -> CNN:
    """Return a convolutional network with these layers.

    >>> cnn([8, 16], hidden=[32])
    CNN(channels=(8, 16), kernel=3, hidden=(32,), activation='elu')
    """
    return CNN(
        check_widths("model.channels", channels),
        kernel,
        check_widths("model.hidden", hidden),
        activation,
    )


def windows(x: Shaped[Array, "batch h w c"], k: int) -> Shaped[Array, "batch h/2 w/2 k*k*c"]:
    """Return every second k × k window of each image, centred; pixels outside the image are zero.

    A row of a window is copied in pairs of pixels, which are adjacent in memory, and a last single
    pixel if k is odd: that makes fewer pieces than pixels, forward and backward.
    """
    (top, _), (left, _) = (_margin(size, k) for size in x.shape[1:3])
    batch, height, width, depth = x.shape
    rows, columns, reach = _halve(height), _halve(width), _halve(k) - 1
    below = STRIDE * (rows + reach) - height - top
    right = STRIDE * (columns + reach) - width - left
    x = jnp.pad(x, ((0, 0), (top, below), (left, right), (0, 0)))
    pairs = x.reshape(batch, rows + reach, STRIDE, columns + reach, STRIDE * depth)
    parts = []
    for a in range(k):
        line = pairs[:, a // STRIDE : a // STRIDE + rows, a % STRIDE]
        for b in range(0, k, STRIDE):
            pair = line[:, :, b // STRIDE : b // STRIDE + columns]
            parts.append(pair[..., : min(STRIDE, k - b) * depth])
    return jnp.concatenate(parts, axis=-1)


def _margin(size: int, k: int) -> tuple[int, int]:
    """Return the zeros before and after an axis for ⌈size/2⌉ windows; an odd one goes after."""
    total = max(STRIDE * (_halve(size) - 1) + k - size, 0)
    return total // 2, total - total // 2


def _halve(size: int) -> int:
    return -(-size // STRIDE)


def _image_shape(examples: Examples) -> tuple[int, int, int]:
    if len(examples.shape) != 3:
        raise ConfigError(
            f"model.name='cnn' takes images (height, width, channels), but examples have shape "
            f"{tuple(examples.shape)}; use model.name='mlp'"
        )
    rows, columns, depth = examples.shape
    return rows, columns, depth
