"""The convolution and the recurrence against slow loops that follow their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart import models
from headstart.data._schema import Schema
from headstart.models._char_lstm import LSTM
from headstart.models._cnn import Convolution

TEXT = Schema(shape=(6,), classes=4, vocabulary=5)


def draw(key: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(key).normal(size=shape).astype(np.float32)


def slow_convolution(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """out[i, j] = Σ_{a,b} W[:, a, b, :] x[2i + a − p, 2j + b − q] + b, zero outside."""
    batch, height, width, _ = x.shape
    outputs, k = weight.shape[:2]
    out = np.zeros((batch, -(-height // 2), -(-width // 2), outputs))
    p, q = (max(2 * (-(-n // 2) - 1) + k - n, 0) // 2 for n in (height, width))
    for n, i, j in np.ndindex(*out.shape[:3]):
        out[n, i, j] = bias
        for a, b in np.ndindex(k, k):
            row, column = 2 * i + a - p, 2 * j + b - q
            if 0 <= row < height and 0 <= column < width:
                out[n, i, j] += weight[:, a, b] @ x[n, row, column]
    return out


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize(("height", "width"), [(4, 4), (5, 4), (3, 7), (1, 1)])
def test_convolution_is_the_sum_over_windows(k: int, height: int, width: int) -> None:
    weight, bias, x = draw(0, 3, k, k, 2), draw(1, 3), draw(2, 2, height, width, 2)
    fast = jax.jit(lambda w, b, x: Convolution(w, b)(x))(weight, bias, x)
    np.testing.assert_allclose(fast, slow_convolution(weight, bias, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [8, 28, 7])
def test_convolution_is_the_librarys_with_same_padding(size: int) -> None:
    weight, bias, x = draw(0, 4, 3, 3, 2), np.zeros(4, np.float32), draw(1, 2, size, size, 2)
    library = jax.lax.conv_general_dilated(
        jnp.asarray(x),
        jnp.asarray(weight),
        (2, 2),
        "SAME",
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
    )
    ours = jax.jit(lambda w, b, x: Convolution(w, b)(x))(weight, bias, x)
    np.testing.assert_allclose(ours, library, rtol=1e-4, atol=1e-5)


def test_cnn_is_convolutions_then_dense_layers() -> None:
    model = models.cnn([2, 3], hidden=[4], activation="tanh")
    params = model.init(jax.random.key(0), Schema(shape=(5, 6, 2), classes=3))
    x = h = draw(1, 2, 5, 6, 2)
    for layer in params.convolutions:
        h = np.tanh(slow_convolution(np.asarray(layer.weight), np.asarray(layer.bias), h))
    hidden, last = params.layers
    h = np.tanh(h.reshape(2, -1) @ np.asarray(hidden.weight).T)
    expected = h @ np.asarray(last.weight).T
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, rtol=1e-4, atol=1e-5)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def slow_lstm(lstm: LSTM, x: np.ndarray) -> np.ndarray:
    """One sequence, one position after the other, one gate after the other."""
    w, u, b = (np.asarray(part) for part in (lstm.input, lstm.recurrent, lstm.bias))
    n = u.shape[1]
    h, c, out = np.zeros(n), np.zeros(n), []
    for x_t in x:
        i, f, g, o = (
            w[gate * n : (gate + 1) * n] @ x_t
            + u[gate * n : (gate + 1) * n] @ h
            + b[gate * n : (gate + 1) * n]
            for gate in range(4)
        )
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


@pytest.mark.parametrize("layers", [1, 2])
def test_char_lstm_is_its_formula(layers: int) -> None:
    model = models.char_lstm(embedding=3, hidden=2, layers=layers)
    params = model.init(jax.random.key(0), TEXT)
    tokens = np.random.default_rng(0).integers(5, size=(3, 6), dtype=np.uint8)
    expected = []
    for sequence in tokens:
        h = np.asarray(params.embedding)[sequence]
        for layer in params.recurrent:
            h = slow_lstm(layer, h)
        bias = np.asarray(params.output.bias)[None]
        expected.append(h @ np.asarray(params.output.weight).T + bias)
    np.testing.assert_allclose(jax.jit(model.apply)(params, tokens), expected, rtol=1e-4, atol=1e-6)


def test_a_position_sees_no_later_one() -> None:
    model = models.char_lstm(embedding=3, hidden=4)
    apply, params = jax.jit(model.apply), model.init(jax.random.key(0), TEXT)
    tokens = jnp.zeros((1, 6), jnp.uint8)
    changed = apply(params, tokens.at[0, 3].set(1)) != apply(params, tokens)
    assert changed.any(axis=-1).tolist() == [[False] * 3 + [True] * 3]
