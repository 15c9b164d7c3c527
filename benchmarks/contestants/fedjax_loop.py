"""FedJAX: its own loop over clients and batches, each local step compiled (the "jit" backend)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import cases
from benchmarks.cases import Case
from benchmarks.contestants.counting import counted, gradients_of

# FedJAX 0.0.17 calls this by a name that JAX has removed.
jax.tree_map = jax.tree.map  # type: ignore[attr-defined]
import fedjax  # noqa: E402

Params = list[jax.Array]
Batch = tuple[jax.Array, jax.Array]


class Contestant:
    """See ``serve.Contestant``."""

    def prepare(self, case: Case, method: str) -> dict[str, Any]:
        """Count on a program with counters in it; time one without."""
        marked = Training(case, method, mark=counted)
        gradients = gradients_of(marked.round)
        self.training = Training(case, method)
        self.run(1)
        return {
            "gradients": gradients,
            "parameters": sum(p.size for p in self.training.params),
            "setting": "jit",
        }

    def run(self, rounds: int) -> dict[str, Any]:
        """Run more rounds of the same training."""
        start = time.perf_counter()
        for _ in range(rounds):
            self.training.round()
        jax.block_until_ready(self.training.params)
        taken = time.perf_counter() - start
        assert all(np.isfinite(p).all() for p in self.training.params), "diverged"
        return {"seconds": taken}

    def direction(self, case: Case, method: str, to: str) -> dict[str, Any]:
        """Return the direction of a local step."""
        d = jax.jit(lambda w, batches: direction(loss, method, w, batches))(
            case.weights(), case.fixed_batches(method)
        )
        np.savez(to, *map(np.asarray, d))
        return {}


class Training:
    """A model and FedJAX's data sets, one for each client."""

    def __init__(
        self, case: Case, method: str, mark: Callable[[jax.Array], jax.Array] = lambda x: x
    ) -> None:
        """Prepare the training; ``mark`` wraps the logits."""
        x, y = case.examples()
        starts = range(0, len(x), cases.EXAMPLES)
        self.clients = [
            fedjax.ClientDataset({"x": x[s : s + cases.TRAINING], "y": y[s : s + cases.TRAINING]})
            for s in starts
        ]
        self.batch_size = cases.BATCH * cases.BATCHES[method]
        self.params = [jnp.asarray(w) for w in case.weights()]
        self.random = np.random.default_rng(0)

        def step(w: Params, batch: dict[str, jax.Array]) -> Params:
            parts = (jnp.split(batch[k], cases.BATCHES[method]) for k in ("x", "y"))
            batches = list(zip(*parts, strict=True))
            marked = lambda w, batch: loss(w, batch, mark)  # noqa: E731
            return _moved(w, direction(marked, method, w, batches), -cases.LOCAL_LR)

        self.train = fedjax.for_each_client(lambda params, _: params, step)

    def round(self) -> Params:
        """Train each chosen client; the mean is the next model."""
        replies = self.train(self.params, self._chosen())
        self.params = fedjax.tree_util.tree_mean((params, 1.0) for _, params in replies)
        return self.params

    def _chosen(self) -> Iterator[tuple[int, Any, tuple[()]]]:
        for client in self.random.choice(cases.CLIENTS, cases.ACTIVE, replace=False).tolist():
            batches = self.clients[client].shuffle_repeat_batch(
                batch_size=self.batch_size,
                num_epochs=None,
                num_steps=cases.LOCAL_STEPS,
                seed=int(self.random.integers(2**31)),
            )
            yield client, batches, ()


def direction(
    loss: Callable[[Params, Batch], jax.Array], method: str, w: Params, batches: list[Batch]
) -> Params:
    """Return the gradient, or the meta-gradient of one inner step."""
    gradient = jax.grad(loss)
    if method == "fedavg":
        return gradient(w, batches[0])
    d = gradient(_moved(w, gradient(w, batches[1]), -cases.INNER_LR), batches[0])
    if method == "first-order":
        return d
    if method == "exact":
        product = jax.jvp(lambda u: gradient(u, batches[2]), (w,), (d,))[1]
    else:
        ahead = gradient(_moved(w, d, cases.DELTA), batches[2])
        behind = gradient(_moved(w, d, -cases.DELTA), batches[2])
        product = jax.tree.map(lambda a, b: (a - b) / (2 * cases.DELTA), ahead, behind)
    return _moved(d, product, -cases.INNER_LR)


def loss(
    w: Params, batch: Batch, mark: Callable[[jax.Array], jax.Array] = lambda x: x
) -> jax.Array:
    """Return the mean cross-entropy."""
    logits = mark(network(w, batch[0] * jnp.float32(cases.SCALE)))
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]))


def network(w: Params, x: jax.Array) -> jax.Array:
    """Return the logits."""
    pairs = list(zip(w[::2], w[1::2], strict=True))
    for i, (weight, bias) in enumerate(pairs):
        if weight.ndim == 4:
            strides = (cases.STRIDE, cases.STRIDE)
            names = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, weight, strides, "SAME", dimension_numbers=names)
        else:
            x = x.reshape(len(x), -1) @ weight
        x = x + bias
        if i < len(pairs) - 1:
            x = jax.nn.elu(x)
    return x


def _moved(w: Params, d: Params, step: float) -> Params:
    return jax.tree.map(lambda p, g: p + step * g, w, d)
