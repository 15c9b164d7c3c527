"""The machine's float32 peak: the best that known libraries make of a large matrix product."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import cases
from benchmarks.cases import Case

SIZE = 2048


class Contestant:
    """See ``serve.Contestant``; case and method make no difference."""

    def __init__(self) -> None:
        """Make one pair of matrices for each library."""
        random = np.random.default_rng(0)
        a, b = (random.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in "ab")
        out = np.empty_like(a)
        ja, jb, dot = jnp.asarray(a), jnp.asarray(b), jax.jit(jnp.dot)
        self.products: dict[str, Callable[[], Any]] = {
            "numpy": lambda: np.dot(a, b, out=out),
            "xla": lambda: dot(ja, jb).block_until_ready(),
        }
        try:
            import torch
        except ModuleNotFoundError:
            return
        torch.set_num_threads(cases.cores())
        ta, tb, tout = (torch.from_numpy(array) for array in (a, b, np.empty_like(a)))
        self.products["torch"] = lambda: torch.mm(ta, tb, out=tout)

    def prepare(self, case: Case, method: str) -> dict[str, Any]:
        """Run each library once, to warm it up."""
        self.run(1)
        return {}

    def run(self, rounds: int) -> dict[str, Any]:
        """Return the GFLOP/s of each library: the best of this many products."""
        return {
            "gflops": {
                name: 2e-9 * SIZE**3 / min(_seconds(product) for _ in range(rounds))
                for name, product in self.products.items()
            }
        }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
