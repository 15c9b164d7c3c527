"""Read the rows of the next clients from disk while the current ones compute.

The clients of a round are known in advance: they are drawn from the seed. For data in mapped files,
the operating system is told which rows come next, in the order of the rounds, and reads them while
the compiled program works on earlier ones. Nothing is copied, and results do not depend on it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from headstart._keys import Keys
from headstart._simulation.sampling import choose_clients
from headstart.data._federated import FederatedDataset

BLOCK = 16
"""Rounds whose clients are drawn at a time."""


class ReadAhead:
    """Tells the operating system which rows the next rounds need, in a separate thread."""

    def __init__(self, data: FederatedDataset, keys: Keys, *, known: int, active: int) -> None:
        self.files = [_MappedRows(array) for array in (data.x, data.y) if is_mapped(array)]
        self.data, self.keys, self.known, self.active = data, keys, known, active
        self.reached = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
        self._pending: Future[None] | None = None

    def request(self, first: int, count: int) -> None:
        """Request the rows of these rounds and of as many after them; return at once."""
        if not self.files or (self._pending is not None and not self._pending.done()):
            return
        begin, self.reached = max(first, self.reached), first + 2 * count
        self._pending = self._thread.submit(self._read, begin, self.reached)

    def wait(self) -> None:
        """Wait until the last request was passed on."""
        if self._pending is not None:
            self._pending.result()

    def _read(self, begin: int, end: int) -> None:
        for block in range(begin, end, BLOCK):
            chosen = np.asarray(
                choose_clients_of_block(
                    self.keys, np.int32(block), known=self.known, active=self.active
                )
            )
            clients = chosen[: end - block].ravel()
            starts = self.data.offsets[clients]
            stops = starts + self.data.train_counts[clients]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                for file in self.files:
                    file.will_need(start, stop)


def is_mapped(array: np.ndarray) -> bool:
    """Return whether the array is a mapped file that the system can be advised on."""
    can_advise = hasattr(os, "posix_fadvise")
    return can_advise and isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)


class _MappedRows:
    def __init__(self, array: Any) -> None:
        self.row_bytes = array.strides[0]
        self.begin = array.offset
        self.file = os.open(array.filename, os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)

    def will_need(self, start: int, stop: int) -> None:
        place, length = self.begin + start * self.row_bytes, (stop - start) * self.row_bytes
        os.posix_fadvise(self.file, place, length, os.POSIX_FADV_WILLNEED)


@partial(jax.jit, static_argnames=("known", "active"))
def choose_clients_of_block(
    keys: Keys, first: Int[Array, ""], *, known: int, active: int
) -> Int[Array, "block active"]:
    """Return the clients of BLOCK rounds in one call: calls compete with the running rounds."""

    def choose(number: Int[Array, ""]) -> Int[Array, " active"]:
        return choose_clients(keys.sampling(number), known, active)

    return jax.vmap(choose)(first + jnp.arange(BLOCK))
