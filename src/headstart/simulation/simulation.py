"""One training run in this process: a data set, a model, an algorithm and a seed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.contract import Algorithm, Memory, State
from headstart.data.federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.models.contract import Model
from headstart.models.objective import Classification
from headstart.simulation.evaluation import AdaptOn, Scores, evaluate
from headstart.simulation.federation import Federation, Keys
from headstart.simulation.rounds import CAPACITY, NOBODY, memory_for_all, run_rounds
from headstart.simulation.sampling import active_clients


class Progress(NamedTuple):
    """Where a run stands; all that is needed to go on."""

    round: int
    state: State
    memory: Memory
    losses: np.ndarray
    """Mean training loss of each round since the losses were last taken out."""


class Simulation:
    """Trains and evaluates; knows no files and no clock."""

    def __init__(
        self,
        data: FederatedDataset,
        model: Model,
        algorithm: Algorithm,
        *,
        participation: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Refuse settings that cannot work together, and put the data on the device."""
        largest = int(np.max(data.train_counts[: data.known_clients]))
        if algorithm.largest_batch > largest:
            raise ConfigError(
                f"algorithm.batch_size={algorithm.largest_batch} is more than any client has: "
                f"the largest has {largest} training examples; use at most that"
            )
        self.data, self.model, self.algorithm = data, model, algorithm
        self.active = active_clients(participation, data.known_clients)
        self.keys = Keys.from_seed(seed)
        self.federation = Federation.from_dataset(data, Classification(model, data.schema))

    def start(self) -> Progress:
        """Before the first round."""
        state = self.algorithm.init(self.model.init(self.keys.init, self.data.schema))
        memory = memory_for_all(self.algorithm, state, self.data.known_clients)
        return Progress(0, state, memory, np.zeros(0))

    def shapes(self) -> Progress:
        """What :meth:`start` returns, as shapes only: the frame a checkpoint must fit."""
        return jax.eval_shape(self.start)

    def advance(self, progress: Progress, rounds: int) -> Progress:
        """So many rounds further; DivergedError if a client's reply is not finite."""
        while rounds > 0:
            count = min(rounds, CAPACITY)
            state, memory, log = run_rounds(
                self.algorithm, progress.state, progress.memory, self.federation, self.keys,
                jnp.int32(progress.round), jnp.int32(count), active=self.active,
            )  # fmt: skip
            if int(log.bad_client) != NOBODY:
                raise self._diverged(progress.round + int(log.done), int(log.bad_client))
            losses = np.concatenate([progress.losses, np.asarray(log.losses)[:count]])
            progress = Progress(progress.round + count, state, memory, losses)
            rounds -= count
        return progress

    def evaluate(
        self, progress: Progress, steps: list[int], *, adapt_on: AdaptOn = "train", most: int = 10
    ) -> Scores:
        """Every client's own model after each number of adaptation steps."""
        return evaluate(
            self.algorithm, progress.state, progress.memory, self.federation,
            self.keys.adaptation, steps=steps, adapt_on=adapt_on, most=max(most, *steps),
        )  # fmt: skip

    def gradient_evaluations(self, rounds: int) -> int:
        """What so many rounds cost; a Hessian-vector product counts as two gradients."""
        return rounds * self.active * self.algorithm.gradients_per_update

    def _diverged(self, round: int, client: int) -> DivergedError:
        name = self.data.name(client)
        rate = getattr(self.algorithm, "local_lr", None)
        smaller = None if rate is None else min(rate / 10, 0.1)
        remedy = "" if rate is None else f"; try algorithm.local_lr={smaller:g} (now {rate:g})"
        if hasattr(self.algorithm, "inner_steps") and self.algorithm.inner_steps:
            remedy += f" or algorithm.inner_lr={self.algorithm.inner_lr / 10:g}"  # type: ignore[attr-defined]
        if getattr(self.algorithm, "server_optimizer", None):
            remedy += " or a smaller algorithm.server_lr"
        return DivergedError(
            f"training diverged in round {round + 1} at client {name}: its update is not finite, "
            f"most likely because the steps are too large{remedy}",
            round=round + 1,
            client=name,
        )
