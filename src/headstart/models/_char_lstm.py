"""A recurrent network over characters that predicts the next one at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.errors import ConfigError
from headstart.models._layers import Dense, check_width, dense_with_zero_bias, glorot
from headstart.models._model import Examples


class LSTM(eqx.Module):
    r"""Long short-term memory (Hochreiter and Schmidhuber 1997, with a forget gate).

    i, f, g, o = W x_t + U h_{t−1} + b
    c_t = σ(f) c_{t−1} + σ(i) tanh(g);   h_t = σ(o) tanh(c_t)
    """

    input: Float[Array, "4*hidden in"]
    recurrent: Float[Array, "4*hidden hidden"]
    bias: Float[Array, " 4*hidden"]

    def __call__(self, x: Float[Array, "length batch in"]) -> Float[Array, "length batch hidden"]:
        """Return h_t at every position, starting from h = c = 0."""
        # One product for all positions; only U h depends on the previous position.
        input_part = x @ self.input.T + self.bias[None, None, :]
        start = jnp.zeros((x.shape[1], self.recurrent.shape[1]), input_part.dtype)

        def step(carry: tuple[Array, Array], input_t: Array) -> tuple[tuple[Array, Array], Array]:
            h, c = carry
            i, f, g, o = jnp.split(input_t + h @ self.recurrent.T, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(step, (start, start), input_part)[1]


class CharLSTMParams(eqx.Module):
    """A vector for each token, the recurrent layers, and the layer to the logits."""

    embedding: Float[Array, "vocabulary embedding"]
    recurrent: tuple[LSTM, ...]
    output: Dense


@dataclass(frozen=True)
class CharLSTM:
    """Embedding, LSTM layers, and one dense layer shared by all positions.

    Embeddings start standard normal, weights Glorot-uniform (each gate separately), biases at zero
    except the forget gate's, which is 1 so that memory lasts beyond the first steps
    (Jozefowicz, Zaremba and Sutskever 2015).
    """

    name: ClassVar[str] = "char-lstm"

    embedding: int = 8
    """Length of the vector of a token."""
    hidden: int = 128
    """Units of each recurrent layer."""
    layers: int = 1
    """Number of recurrent layers."""

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        for name in ("embedding", "hidden", "layers"):
            object.__setattr__(self, name, check_width(f"model.{name}", getattr(self, name)))

    @property
    def head(self) -> tuple[str, ...]:
        """Name pattern of the last layer."""
        return ("output.*",)

    def init(self, key: PRNGKeyArray, examples: Examples) -> CharLSTMParams:
        """Draw parameters for these tokens."""
        _require_tokens(examples)
        first, second = jax.random.split(key)
        n, inputs = self.hidden, (self.embedding, *[self.hidden] * (self.layers - 1))
        shapes = [shape for i in inputs for shape in [(n, i)] * 4 + [(n, n)] * 4]
        *gates, output = glorot(second, (*shapes, (examples.outputs, n)))
        return CharLSTMParams(
            embedding=jax.random.normal(first, (examples.vocabulary, self.embedding)),
            recurrent=tuple(_make_lstm(gates[k : k + 8]) for k in range(0, len(gates), 8)),
            output=dense_with_zero_bias(output),
        )

    def apply(
        self, params: CharLSTMParams, x: Int[Array, "batch length"]
    ) -> Float[Array, "batch length classes"]:
        """Return the logits of every position, which depend on it and the positions before."""
        h = params.embedding[x.T]
        for layer in params.recurrent:
            h = layer(h)
        logits = params.output(h.reshape(-1, self.hidden).T).T
        return logits.reshape(*h.shape[:2], -1).swapaxes(0, 1)


def char_lstm(embedding: int = 8, hidden: int = 128, layers: int = 1) -> CharLSTM:
    """Return a recurrent network over characters.

    >>> char_lstm(hidden=64)
    CharLSTM(embedding=8, hidden=64, layers=1)
    """
    return CharLSTM(embedding, hidden, layers)


def _make_lstm(gates: list[Array]) -> LSTM:
    """Make a layer from the weights of i, f, g, o for the input, then for the state."""
    bias = jnp.zeros((4, len(gates[0]))).at[1].set(1.0)
    return LSTM(jnp.concatenate(gates[:4]), jnp.concatenate(gates[4:]), bias.ravel())


def _require_tokens(examples: Examples) -> None:
    if examples.vocabulary < 1:
        raise ConfigError(
            "model.name='char-lstm' takes tokens, but the inputs are numbers (vocabulary of 0); "
            "use model.name='mlp', or 'cnn' for images"
        )
    if len(examples.shape) != 1:
        raise ConfigError(
            f"model.name='char-lstm' takes sequences (length,), but examples have shape "
            f"{tuple(examples.shape)}"
        )
