"""One training run in this process, of a data set, a model, an algorithm and a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart._keys import Keys
from headstart._simulation.constant import ConstantAnswer, score_constant_answer
from headstart._simulation.dead_units import Liveness, compare_with_untrained
from headstart._simulation.federation import Federation
from headstart._simulation.gradient_norm import gradient_norm_squared
from headstart._simulation.gradients import GradientCount
from headstart._simulation.layout import Layout, choose_layout, make_mesh, parse_layout, replicate
from headstart._simulation.readahead import ReadAhead
from headstart._simulation.rounds import CAPACITY, NO_CLIENT, RoundLog, init_memories, run_rounds
from headstart._simulation.sampling import count_active_clients
from headstart._simulation.scoring import AdaptOn, Scores, evaluate
from headstart._simulation.step_choice import Comparison, compare_clients
from headstart._simulation.traffic import Traffic, compute_traffic
from headstart.algorithms._contract import Algorithm, Memory, State
from headstart.data._federated import FederatedDataset
from headstart.errors import ConfigError, DivergedError
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike, make_objective
from headstart.parts import Parts, TrainingSetup, prepare_algorithm, prepare_training
from headstart.trees import size

LOSS = "clients.loss"
MOST_FOR_RULE = 4 * 2**30
"""The most bytes for the replies of a round, if a rule needs all of them at once."""


class Progress(NamedTuple):
    """The state of a run: all that is needed to resume it."""

    round: int
    state: State
    memory: Memory
    log: Mapping[str, np.ndarray] = {}
    """What the clients (averaged) and the server reported in each round since the log was last
    emptied: ``clients.loss``, ``server.update_norm`` …"""

    @property
    def losses(self) -> np.ndarray:
        """Mean training loss of each round in the log."""
        return self.log.get(LOSS, np.zeros(0))


class Simulation:
    """Trains and evaluates; uses no files and no clock."""

    def __init__(
        self,
        data: FederatedDataset,
        model: Model,
        algorithm: Algorithm,
        *,
        participation: float = 1.0,
        seed: int = 0,
        layout: Layout | str | None = None,
        evaluate_at_most: int | None = None,
        parts: Parts | None = None,
        objective: ObjectiveLike = None,
    ) -> None:
        """Check that the settings fit together, and put the data on the devices.

        Without ``layout``, the size of the network decides. Of the known and of the new clients, at
        most ``evaluate_at_most`` each are evaluated, drawn at random.
        """
        self.objective = make_objective(model, data.schema, objective)
        largest = int(np.max(data.train_counts[: data.known_clients]))
        if algorithm.largest_batch > largest:
            raise ConfigError(
                f"algorithm.batch_size={algorithm.largest_batch} is more than any client has: "
                f"the largest has {largest} training examples; use at most that"
            )
        self.data, self.model, self.parts = data, model, parts or Parts()
        self.algorithm = prepare_algorithm(self.parts, model, algorithm, data.schema)
        self._configured = algorithm
        self.active = count_active_clients(participation, data.known_clients)
        self.evaluated = _choose_evaluated(data, evaluate_at_most, seed)
        keys = Keys.from_seed(seed)
        self._init_key = keys.init
        self._check_rule()
        self.layout = self._choose_layout(layout)
        self.keys = replicate(self.layout.mesh, keys)
        self.read_ahead = ReadAhead(data, keys, known=data.known_clients, active=self.active)
        self._costs = GradientCount(data, algorithm, keys, self.active)
        self.model_parts = None if self.parts.everything else self._prepare().parts
        self.federation = Federation.from_dataset(
            data, self.objective, self.layout.mesh, self.model_parts
        )

    def start(self) -> Progress:
        """Return the state before the first round."""
        state, memory = self._init_state()
        return self._on_mesh(Progress(0, state, memory))

    def shapes(self) -> Progress:
        """Return the shapes of what :meth:`start` returns, which a checkpoint must match."""
        state, memory = jax.eval_shape(self._init_state)
        return Progress(0, state, memory)

    def advance(self, progress: Progress, rounds: int) -> Progress:
        """Train ``rounds`` more rounds; raise DivergedError if a reply is not finite."""
        progress = self._on_mesh(progress)
        while rounds > 0:
            count = min(rounds, CAPACITY)
            self.read_ahead.request(progress.round, count)
            state, memory, log = run_rounds(
                self.algorithm, progress.state, progress.memory, self.federation, self.keys,
                np.int32(progress.round), np.int32(count), active=self.active, layout=self.layout,
            )  # fmt: skip
            if int(log.bad_client) != NO_CLIENT:
                raise self._divergence_error(progress.round + int(log.done), int(log.bad_client))
            progress = Progress(
                progress.round + count, state, memory, _extend_log(progress.log, log, count)
            )
            rounds -= count
        return progress

    def evaluate(
        self,
        progress: Progress,
        steps: list[int],
        *,
        adapt_on: AdaptOn = "train",
        most: int = 10,
        shots: int | None = None,
    ) -> Scores:
        """Score the evaluated clients' own models after each number of adaptation steps.

        With ``shots``, a client adapts to at most that many of its examples.
        """
        progress = self._on_mesh(progress)
        return evaluate(
            self.algorithm, progress.state, progress.memory, self.federation,
            self.keys, clients=self.evaluated, steps=steps, layout=self.layout,
            adapt_on=adapt_on, most=max(most, *steps), shots=shots,
        )  # fmt: skip

    def compare_steps(self, progress: Progress, most: int) -> Comparison:
        """Compare 0 … ``most`` adaptation steps for every evaluated client."""
        progress = self._on_mesh(progress)
        return compare_clients(
            self.algorithm, progress.state, progress.memory, self.federation,
            self.keys, clients=self.evaluated, most=most, layout=self.layout,
        )  # fmt: skip

    def constant_answer(self) -> ConstantAnswer | None:
        """Return what the evaluated known clients reach with one constant answer each."""
        known = self.evaluated[self.evaluated < self.data.known_clients]
        return score_constant_answer(self.objective, self.data, known.tolist())

    def liveness(self, progress: Progress) -> Liveness | None:
        """Compare how the shared model, and the untrained one, depend on inputs and weights."""
        untrained, _ = self._init_state()
        state = jax.tree.map(np.asarray, progress.state)  # every process has all of it
        return compare_with_untrained(
            self.objective, self.data, self.algorithm.model(untrained),
            self.algorithm.model(state), self.model_parts,
        )  # fmt: skip

    def gradient_norm_squared(self, progress: Progress) -> float:
        """Measure ‖∇F‖² at the algorithm's point, on the evaluated known clients' training data."""
        measured = self.algorithm.gradient_norm_point(self._on_mesh(progress).state)
        known = self.evaluated[self.evaluated < self.data.known_clients]
        return float(
            gradient_norm_squared(
                measured.params, self.federation, known.astype(np.int32),
                inner_lr=measured.inner_lr, inner_steps=measured.inner_steps,
                most=int(np.max(np.asarray(self.data.train_counts)[known])),
            )
        )  # fmt: skip

    def gradient_evaluations(self, rounds: int) -> int:
        """Return the gradient evaluations of this number of rounds.

        A Hessian-vector product counts as two gradients. If the cost depends on a client's size,
        the clients of the rounds are drawn again.
        """
        return self._costs.total(rounds)

    @property
    def traffic(self) -> Traffic:
        """Bytes that one client receives and sends in a round."""
        state, memory = jax.eval_shape(self._init_state)
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), memory)
        return compute_traffic(
            self.algorithm, state, one, self.federation.training_task(jnp.int32(0))
        )

    @property
    def gradients_per_client(self) -> float:
        """Gradient evaluations of one client in a round, averaged over the known clients."""
        mean = self._costs.mean
        return int(mean) if mean.is_integer() else mean

    def _init_state(self) -> tuple[State, Memory]:
        state = self.algorithm.init(self._prepare().params)
        return state, init_memories(self.algorithm, state, self.data.known_clients)

    def _prepare(self) -> TrainingSetup:
        return prepare_training(
            self.parts, self.model, self._configured, self._init_key, self.data.schema
        )

    def _choose_layout(self, wanted: Layout | str | None) -> Layout:
        if isinstance(wanted, Layout):
            return wanted
        if wanted is not None:
            return parse_layout(wanted, make_mesh())
        state, _ = jax.eval_shape(self._init_state)
        parameters = size(self.algorithm.model(state))
        return choose_layout(make_mesh(), parameters=parameters, batch=self.algorithm.largest_batch)

    def _check_rule(self) -> None:
        """Raise ConfigError if the rule would get too few replies, or too many for the memory."""
        rule = self.algorithm.rule
        if rule is None:
            return
        if self.active < rule.needs():
            raise ConfigError(
                f"the aggregation rule needs {rule.needs()} replies; a round has {self.active} "
                "clients: raise participation"
            )
        shapes, _ = jax.eval_shape(self._init_state)
        needed = 4 * size(self.algorithm.model(shapes)) * self.active * len(jax.local_devices())
        if needed > MOST_FOR_RULE:
            raise ConfigError(
                f"the aggregation rule needs all {self.active} replies of a round at once, "
                f"{needed / 1e9:.1f} GB of at most {MOST_FOR_RULE / 1e9:.1f}; lower participation "
                "or use the weighted mean"
            )

    def _on_mesh(self, progress: Progress) -> Progress:
        """Put the state on the mesh, unless it is there; that of a checkpoint is not."""
        mesh = self.layout.mesh
        leaves = jax.tree.leaves((progress.state, progress.memory))
        if all(getattr(getattr(a, "sharding", None), "mesh", None) == mesh for a in leaves):
            return progress
        state, memory = replicate(mesh, (progress.state, progress.memory))
        return progress._replace(state=state, memory=memory)

    def _divergence_error(self, round: int, client: int) -> DivergedError:
        name = self.data.name(client)
        return DivergedError(
            f"training diverged in round {round + 1} at client {name}: its update is not finite, "
            f"most likely because the steps are too large; try {self.algorithm.smaller_steps}",
            round=round + 1,
            client=name,
        )


def _extend_log(log: Mapping[str, np.ndarray], more: RoundLog, count: int) -> dict[str, np.ndarray]:
    """Append the first ``count`` rounds of another call to a log."""
    new = {f"clients.{name}": values for name, values in more.clients.items()}
    new |= {f"server.{name}": values for name, values in more.server.items()}
    return {
        name: np.concatenate([log.get(name, np.zeros(0)), np.asarray(values)[:count]])
        for name, values in new.items()
    }


def _choose_evaluated(data: FederatedDataset, most: int | None, seed: int) -> np.ndarray:
    """Choose at most ``most`` known and ``most`` new clients, in order."""
    rng = np.random.default_rng(seed)

    def choose(count: int) -> np.ndarray:
        if most is None or count <= most:
            return np.arange(count)
        return np.sort(rng.choice(count, most, replace=False, shuffle=False))

    return np.concatenate(
        [choose(data.known_clients), data.known_clients + choose(data.new_clients)]
    )
