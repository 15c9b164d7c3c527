"""What happens to an update between a client and the server.

A *step* acts on one client's reply before it leaves, and on the mean of all replies when it has
arrived. Steps see only sums, so memory does not grow with the number of clients, and every
algorithm is ready for secure aggregation and differential privacy without knowing about them:

    client    reply  → step 1 → step 2 → …  leaves
    server    mean   → … → step 2 → step 1 → ``server_update``

A *rule* combines all replies of a round at once, instead of the weighted mean. It needs memory for
all of them: active clients × parameters, on every device.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeAlias

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from headstart.algorithms._contract import Cohort, Reply
from headstart.trees import Tree

StepState: TypeAlias = PyTree


class AggregationStep(eqx.Module):
    """One step of a chain; a method that is not overridden does nothing."""

    name: ClassVar[str]
    """The name of the step in an experiment file."""

    def init(self, params: Tree) -> StepState:
        """Return what the step keeps at the server between rounds; every client receives it."""
        return ()

    def at_client(self, state: StepState, reply: Reply, key: PRNGKeyArray) -> Reply:
        """Return the reply as it leaves the client."""
        return reply

    def at_server(
        self, state: StepState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[Cohort, StepState]:
        """Return the cohort as the next step, or the algorithm, sees it."""
        return cohort, state

    @property
    def bits(self) -> int | None:
        """Bits of the integers that the update consists of when it leaves; None: no change.

        They must fit a signed integer of that width.
        """
        return None

    @property
    def scale(self) -> float:
        """The factor that turns numbers that leave into an update again."""
        return 1.0


class AggregationRule(eqx.Module):
    """Combines the replies of a round, instead of their weighted mean."""

    name: ClassVar[str]
    """The name of the rule in an experiment file."""

    @abstractmethod
    def combine(self, replies: Tree, weights: Float[Array, " clients"]) -> Tree:
        """Return one tree from many, which are stacked along the first axis of every leaf."""

    def needs(self) -> int:
        """Return the fewest replies that the rule can combine."""
        return 1
