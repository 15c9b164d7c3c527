"""How many gradients a number of rounds has cost."""

from __future__ import annotations

import numpy as np

from headstart._keys import Keys
from headstart._simulation.readahead import BLOCK, chosen_in_block
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset


class GradientCount:
    """Counts by who took part: with epochs, a client's cost depends on its size."""

    def __init__(
        self, data: FederatedDataset, algorithm: Algorithm, keys: Keys, active: int
    ) -> None:
        sizes, place = np.unique(data.train_counts[: data.known_clients], return_inverse=True)
        costs = np.array([algorithm.gradients_per_update(int(size)) for size in sizes])
        self.mean = float(np.mean(costs[place]))
        self._common = int(costs[0]) if len(set(costs.tolist())) == 1 else None
        self._costs, self._keys, self._active = costs[place], keys, active
        self._sums = np.zeros(1, np.int64)
        """Gradients of the first 0, 1, 2 … rounds, as far as they were asked for."""

    def until(self, rounds: int) -> int:
        """Gradient evaluations of the first ``rounds`` rounds."""
        if self._common is not None:
            return rounds * self._active * self._common
        while len(self._sums) <= rounds:
            chosen = chosen_in_block(
                self._keys, np.int32(len(self._sums) - 1), known=len(self._costs),
                active=self._active,
            )  # fmt: skip
            more = np.cumsum(self._costs[np.asarray(chosen)].sum(axis=1))
            self._sums = np.concatenate([self._sums, self._sums[-1] + more[:BLOCK]])
        return int(self._sums[rounds])
