"""An algorithm with parameters that stay at the client: for example, share the body, keep the head.

A client trains shared and own parameters together, as the wrapped algorithm does. It starts from
the shared ones that it was sent and from its own of the last round, and replies with the update of
the shared ones only. A client that was never in training starts with the initial values of its own
ones (FedPer, Arivazhagan et al. 2019, where the own part is the head; LG-FedAvg, Liang et al. 2020,
where it is the body).
"""

from __future__ import annotations

from typing import NamedTuple, final

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from headstart.algorithms._algorithm_wrapper import AlgorithmWrapper
from headstart.algorithms._contract import (
    Cohort,
    Info,
    Memory,
    Personal,
    Reply,
    Sent,
    State,
    Task,
)
from headstart.errors import ConfigError
from headstart.trees import Tree, add, select_leaves, zeros_like


class KeptMemory(NamedTuple):
    """What a client keeps."""

    inner: Memory
    own: Tree


@final
class KeptAtClient(AlgorithmWrapper):
    """An algorithm with parameters that never leave a client."""

    own: tuple[bool, ...] = eqx.field(static=True, default=())
    """Which leaves stay at the client."""

    @property
    def needs_memory(self) -> bool:  # type: ignore[override]
        """True: clients keep their own parameters."""
        return True

    def inner_state(self, state: State) -> State:
        """Return the state itself."""
        return state

    def with_inner_state(self, state: State, inner: State) -> State:
        """Return the new state itself."""
        return inner

    def init(self, params: Tree) -> State:
        """Return the algorithm's state, with the initial values of what clients keep."""
        return self.algorithm.init(params)

    def init_memory(self, state: State) -> KeptMemory:
        """Return the algorithm's memory, and the initial values of the own parameters."""
        own = select_leaves(self.algorithm.model(state), self.own)
        return KeptMemory(self.algorithm.init_memory(state), own)

    def broadcast(self, state: State, key: PRNGKeyArray) -> Sent:
        """Send everything except what clients keep."""
        sent = self.algorithm.broadcast(state, key)
        if not jax.tree.leaves(sent.params):
            raise ConfigError(
                f"parts.kept is not for algorithm.name={self.name!r}, which shares no model"
            )
        return sent._replace(params=select_leaves(sent.params, self._shared))

    def client_update(
        self, sent: Sent, memory: KeptMemory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, KeptMemory, Info]:
        """Train shared and own parameters; reply with the update of the shared ones."""
        both = sent._replace(params=eqx.combine(sent.params, memory.own))
        reply, inner, info = self.algorithm.client_update(both, memory.inner, task, key)
        if reply.parts:
            raise ConfigError(
                f"parts.kept is not for algorithm.name={self.name!r} as it is set: it replies with "
                f"{', '.join(reply.parts)} beside the update"
            )
        own = add(memory.own, select_leaves(reply.update, self.own))
        shared = reply._replace(update=select_leaves(reply.update, self._shared))
        return shared, KeptMemory(inner, own), info

    def server_update(self, state: State, cohort: Cohort, key: PRNGKeyArray) -> tuple[State, Info]:
        """Update the shared parameters only."""
        still = zeros_like(select_leaves(self.algorithm.model(state), self.own))
        update = eqx.combine(cohort.update, still)
        return self.algorithm.server_update(state, cohort._replace(update=update), key)

    def personal_start(
        self, state: State, memory: KeptMemory, task: Task, key: PRNGKeyArray
    ) -> Personal:
        """Start from the shared parameters and the client's own."""
        shared = select_leaves(self.algorithm.model(state), self._shared)
        state = self.algorithm.with_model(state, eqx.combine(shared, memory.own))
        return self.algorithm.personal_start(state, memory.inner, task, key)

    @property
    def _shared(self) -> list[bool]:
        return [not own for own in self.own]
