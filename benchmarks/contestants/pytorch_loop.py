"""PyTorch: the loop one would write, client after client and step after step."""

from __future__ import annotations

import functools
import math
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import cases
from benchmarks.cases import Case

Weights = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


class Contestant:
    """See ``serve.Contestant``."""

    def prepare(self, case: Case, method: str) -> dict[str, Any]:
        """Count a round, then keep the better number of threads."""
        self.training = Training(case, method)
        self.training.round(cases.ACTIVE)
        counted = self.training.gradients
        seconds = {threads: self._trial(threads) for threads in sorted({1, cases.cores()})}
        threads = min(seconds, key=lambda threads: seconds[threads])
        torch.set_num_threads(threads)
        return {
            "gradients": counted,
            "parameters": sum(w.numel() for w in self.training.w),
            "setting": f"{threads} thread{'s' * (threads > 1)}",
        }

    def _trial(self, threads: int) -> float:
        torch.set_num_threads(threads)
        self.training.round(1)
        return min(self._seconds(1, clients=1) for _ in range(3))

    def run(self, rounds: int) -> dict[str, Any]:
        """Run more rounds of the same training."""
        return {"seconds": self._seconds(rounds, cases.ACTIVE)}

    def _seconds(self, rounds: int, clients: int) -> float:
        start = time.perf_counter()
        for _ in range(rounds):
            self.training.round(clients)
        taken = time.perf_counter() - start
        assert all(torch.isfinite(p).all() for p in self.training.w), "diverged"
        return taken

    def direction(self, case: Case, method: str, to: str) -> dict[str, Any]:
        """Return the direction of a local step."""
        training = Training(case, method)
        fixed = case.fixed_batches(method)
        batches = [
            (torch.from_numpy(x) * cases.SCALE, torch.from_numpy(y).long()) for x, y in fixed
        ]
        np.savez(to, *to_common(training.direction(training.w, batches)))
        return {}


class Training:
    """A model, the clients' data, and how many gradients were computed so far."""

    def __init__(self, case: Case, method: str) -> None:
        """Start from the common first weights."""
        self.x, self.y = examples(case)
        self.case, self.method = case, method
        self.w = from_common(case.weights())
        self.gradients = 0

    def round(self, active: int) -> None:
        """Train a copy at each chosen client; the mean is the next model."""
        chosen = torch.randperm(cases.CLIENTS)[:active].tolist()
        replies = [self.client(client) for client in chosen]
        self.w = [torch.stack(leaves).mean(0) for leaves in zip(*replies, strict=True)]

    def client(self, client: int) -> Weights:
        """Take local steps from the common model, which does not change."""
        w = [p.clone() for p in self.w]
        for _ in range(cases.LOCAL_STEPS):
            w = _moved(w, self.direction(w, self.batches(client)), -cases.LOCAL_LR)
        return w

    def batches(self, client: int) -> list[Batch]:
        """Draw independent random batches of the client's training examples."""
        size = cases.BATCH * cases.BATCHES[self.method]
        rows = client * cases.EXAMPLES + torch.randint(cases.TRAINING, (size,))
        parts = (a[rows].split(cases.BATCH) for a in (self.x, self.y))
        return list(zip(*parts, strict=True))

    def direction(self, w: Weights, batches: list[Batch]) -> Weights:
        """Return the gradient, or the meta-gradient of one inner step."""
        if self.method == "fedavg":
            return self.gradient(w, batches[0])
        adapted = _moved(w, self.gradient(w, batches[1]), -cases.INNER_LR)
        d = self.gradient(adapted, batches[0])
        if self.method == "first-order":
            return d
        product = self.exact_product if self.method == "exact" else self.difference
        return _moved(d, product(w, d, batches[2]), -cases.INNER_LR)

    def gradient(self, w: Weights, batch: Batch) -> Weights:
        """Return ∇f(w)."""
        self.gradients += 1
        leaves = [p.detach().requires_grad_() for p in w]
        return list(torch.autograd.grad(self.loss(leaves, batch), leaves))

    def exact_product(self, w: Weights, v: Weights, batch: Batch) -> Weights:
        """Return ∇²f(w) v by differentiating the gradient; the work of two gradients."""
        self.gradients += 2
        leaves = [p.detach().requires_grad_() for p in w]
        first = torch.autograd.grad(self.loss(leaves, batch), leaves, create_graph=True)
        return list(torch.autograd.grad(first, leaves, grad_outputs=v))

    def difference(self, w: Weights, v: Weights, batch: Batch) -> Weights:
        """Return ∇²f(w) v from two gradients."""
        ahead = self.gradient(_moved(w, v, cases.DELTA), batch)
        behind = self.gradient(_moved(w, v, -cases.DELTA), batch)
        return [(a - b) / (2 * cases.DELTA) for a, b in zip(ahead, behind, strict=True)]

    def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(self.logits(w, batch[0]), batch[1])

    def logits(self, w: Weights, x: torch.Tensor) -> torch.Tensor:
        """Return the logits. Channels stay last in memory, which is faster here."""
        x = x.permute(0, 3, 1, 2)
        pairs = list(zip(w[::2], w[1::2], strict=True))
        for i, (weight, bias) in enumerate(pairs):
            if weight.ndim == 4:
                x = F.conv2d(_padded(x), weight, bias, stride=cases.STRIDE)
            else:
                x = F.linear(_flat(x), weight, bias)
            if i < len(pairs) - 1:
                x = F.elu(x)
        return x


@functools.lru_cache(maxsize=1)
def examples(case: Case) -> Batch:
    """Return all examples in memory, as floats: no slower here than bytes scaled on use."""
    x, y = case.examples()
    return torch.from_numpy(x) * cases.SCALE, torch.from_numpy(y).long()


def _moved(w: Weights, d: Weights, step: float) -> Weights:
    return [torch.add(p, g, alpha=step) for p, g in zip(w, d, strict=True)]


def _flat(x: torch.Tensor) -> torch.Tensor:
    """Return images as rows, in their order in memory."""
    return x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x


def _padded(x: torch.Tensor) -> torch.Tensor:
    """Pad with zeros that centre the windows; the odd one goes last, unlike in conv2d."""
    margins: list[int] = []
    for size in reversed(x.shape[2:]):
        windows = math.ceil(size / cases.STRIDE)
        total = max((windows - 1) * cases.STRIDE + cases.KERNEL - size, 0)
        margins += [total // 2, total - total // 2]
    return F.pad(x, margins)


def from_common(arrays: list[np.ndarray]) -> Weights:
    """Return weights in PyTorch's order: (out, in), or (out, in, k, k) for a convolution."""
    moved = [np.moveaxis(a, (-1, -2), (0, 1)) if a.ndim > 1 else a for a in arrays]
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in moved]


def to_common(w: Weights) -> list[np.ndarray]:
    """Return the inverse of :func:`from_common`."""
    return [np.moveaxis(p.numpy(), (0, 1), (-1, -2)) if p.ndim > 1 else p.numpy() for p in w]
