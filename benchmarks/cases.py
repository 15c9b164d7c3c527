"""What is computed: data, networks, methods, the work of a round, and the speed asked for.

Nothing here needs JAX or PyTorch, so that every contestant starts from the same numbers. Weights
and gradients are exchanged as a list weight, bias, weight, bias … with the outputs on the last
axis of a weight: (in, out), or (k, k, in, out) for a convolution.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

CLIENTS, ACTIVE = 50, 10
EXAMPLES, TRAINING = 1200, 1000
"""Of one client: all, and those it trains on, which come first."""
CLASSES, SCALE = 10, 1 / 255
"""Bytes times SCALE are what a network sees."""
BATCH, LOCAL_STEPS = 40, 10
INNER_LR, LOCAL_LR, DELTA = 0.01, 0.001, 1e-3

METHODS = ("fedavg", "first-order", "hessian-free", "exact")
BATCHES = {"fedavg": 1, "first-order": 2, "hessian-free": 3, "exact": 3}
"""Independent batches of a local step, in the order outer, inner, Hessian."""
GRADIENTS = {"fedavg": 1, "first-order": 2, "hessian-free": 4, "exact": 4}
"""Of a local step; a Hessian-vector product counts as two."""

HIDDEN = (80, 60)
CHANNELS, KERNEL, STRIDE, CNN_HIDDEN = (16, 32), 3, 2, (64,)


class Layer(NamedTuple):
    """A matrix product, done at one or (convolutions) at many positions of an example."""

    shape: tuple[int, ...]
    positions: int = 1

    @property
    def products(self) -> int:
        """Multiplications of one example."""
        return self.positions * math.prod(self.shape)


@dataclass(frozen=True)
class Case:
    """A network and the images it is trained on."""

    name: str
    network: str
    """mlp or cnn."""
    image: tuple[int, int, int]
    """Height, width, channels."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """From the input to the logits."""
        if self.network == "mlp":
            return _dense(math.prod(self.image), *HIDDEN, CLASSES)
        rows, columns, depth = self.image
        convolutions = []
        for channels in CHANNELS:
            rows, columns = math.ceil(rows / STRIDE), math.ceil(columns / STRIDE)
            convolutions.append(Layer((KERNEL, KERNEL, depth, channels), rows * columns))
            depth = channels
        return (*convolutions, *_dense(rows * columns * depth, *CNN_HIDDEN, CLASSES))

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum(math.prod(layer.shape) + layer.shape[-1] for layer in self.layers)

    @property
    def flops_per_gradient(self) -> int:
        """Multiplications and additions in matrix products, no others counted.

        Forward, gradient of the weights, gradient of the input: three products per layer, two in
        the first one, where the gradient of the input is not needed.
        """
        first, *later = (layer.products for layer in self.layers)
        return 2 * BATCH * (2 * first + 3 * sum(later))

    def weights(self) -> list[np.ndarray]:
        """Return the same first weights for all; biases are not zero, so a check covers them."""
        random = np.random.default_rng(1)
        arrays = []
        for shape, _ in self.layers:
            bound = math.sqrt(6 / (math.prod(shape[:-1]) + shape[-1]))
            arrays += [random.uniform(-bound, bound, s) for s in (shape, shape[-1:])]
        return [array.astype(np.float32) for array in arrays]

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all clients' images and labels, one client after the other."""
        return _examples(self.image)

    def fixed_batches(self, method: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the batches on which contestants must agree."""
        x, y = self.examples()
        cuts = [slice(i * BATCH, (i + 1) * BATCH) for i in range(BATCHES[method])]
        return [(x[cut], y[cut]) for cut in cuts]


@functools.lru_cache(maxsize=1)
def _examples(image: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    count = CLIENTS * EXAMPLES
    x = random.integers(0, 256, (count, *image), dtype=np.uint8)
    return x, random.integers(0, CLASSES, count, dtype=np.int32)


def _dense(*sizes: int) -> tuple[Layer, ...]:
    return tuple(map(Layer, itertools.pairwise(sizes)))


CASES = {
    case.name: case
    for case in (
        Case("mlp-784", "mlp", (28, 28, 1)),
        Case("mlp-3072", "mlp", (32, 32, 3)),
        Case("cnn-28x28x1", "cnn", (28, 28, 1)),
        Case("cnn-32x32x3", "cnn", (32, 32, 3)),
    )
}

_RATIOS = {"mlp-784": {"pytorch": 4.5, "fedjax": 2.2}, "mlp-3072": {"pytorch": 3.5, "fedjax": 1.8}}


def asked_percent(case: Case, method: str) -> float | None:
    """Return the percentage of the machine's peak that Headstart should reach."""
    return 60.0 if case.network == "mlp" and method != "fedavg" else None


def asked_ratio(case: Case, method: str, contestant: str) -> float | None:
    """Return how many times Headstart's time the contestant should need."""
    if case.network == "cnn":
        return 2.0 if contestant == "pytorch" else None
    if method in ("first-order", "hessian-free"):
        return _RATIOS[case.name].get(contestant)
    return None


def gradients_per_round(method: str) -> int:
    """Return the gradients of a round that every contestant must count."""
    return ACTIVE * LOCAL_STEPS * GRADIENTS[method]


def cores() -> int:
    """Return the number of cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
