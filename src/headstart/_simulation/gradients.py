"""Count the gradient evaluations of a run."""

from __future__ import annotations

import numpy as np

from headstart._keys import Keys
from headstart._simulation.readahead import BLOCK, choose_clients_of_block
from headstart.algorithms._contract import Algorithm
from headstart.data._federated import FederatedDataset


class GradientCount:
    """Counts per participating client: with epochs, the cost of a client depends on its size."""

    def __init__(
        self, data: FederatedDataset, algorithm: Algorithm, keys: Keys, active: int
    ) -> None:
        sizes, place = np.unique(data.train_counts[: data.known_clients], return_inverse=True)
        costs = np.array([algorithm.gradients_per_update(int(size)) for size in sizes])
        self.mean = float(np.mean(costs[place]))
        self._cost_of_all = int(costs[0]) if len(set(costs.tolist())) == 1 else None
        self._costs, self._keys, self._active = costs[place], keys, active
        self._sums = np.zeros(1, np.int64)
        """Return the gradient evaluations of the first 0, 1, 2 … rounds, computed on demand."""

    def total(self, rounds: int) -> int:
        """Return the gradient evaluations of the first ``rounds`` rounds."""
        if self._cost_of_all is not None:
            return rounds * self._active * self._cost_of_all
        while len(self._sums) <= rounds:
            chosen = choose_clients_of_block(
                self._keys, np.int32(len(self._sums) - 1), known=len(self._costs),
                active=self._active,
            )  # fmt: skip
            more = np.cumsum(self._costs[np.asarray(chosen)].sum(axis=1))
            self._sums = np.concatenate([self._sums, self._sums[-1] + more[:BLOCK]])
        return int(self._sums[rounds])
