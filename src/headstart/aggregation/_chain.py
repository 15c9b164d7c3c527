"""An algorithm whose updates pass through a chain of steps, or are combined by a rule.

The result is an algorithm again, so that both engines, evaluation and checkpoints treat it like any
other. With no step and no rule it is the algorithm itself: then aggregation costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
from jaxtyping import PRNGKeyArray

from headstart.aggregation._interfaces import AggregationRule, AggregationStep, StepState
from headstart.algorithms._algorithm_wrapper import AlgorithmWrapper
from headstart.algorithms._contract import Cohort, Info, Memory, Reply, Sent, State, Task
from headstart.trees import Tree

AT_CLIENT = 2**32 - 2
"""Folded into a client's key for the steps of the chain; training folds in small numbers."""


class ChainState(NamedTuple):
    """The algorithm's state, and what each step keeps."""

    inner: State
    steps: tuple[StepState, ...]


class ChainExtra(NamedTuple):
    """What is sent besides the model."""

    inner: Any
    steps: tuple[StepState, ...]


def with_aggregation(
    algorithm: Any, steps: Sequence[AggregationStep] = (), rule: AggregationRule | None = None
) -> Any:
    """Return the algorithm with these steps and this rule; unchanged if there are none."""
    return (
        AggregatedAlgorithm(algorithm, tuple(steps), rule)
        if steps or rule is not None
        else algorithm
    )


@final
class AggregatedAlgorithm(AlgorithmWrapper):
    """An algorithm with a chain of steps and perhaps a rule."""

    steps: tuple[AggregationStep, ...] = ()
    rule_used: AggregationRule | None = None

    @property
    def rule(self) -> AggregationRule | None:
        """How replies are combined."""
        return self.rule_used

    @property
    def bits_per_number(self) -> int:
        """The fewest bits of any step."""
        widths = [step.bits for step in self.steps if step.bits is not None]
        return min([*widths, self.algorithm.bits_per_number])

    @property
    def update_scale(self) -> float:
        """The scale of all steps together."""
        return math.prod((step.scale for step in self.steps), start=self.algorithm.update_scale)

    def init(self, params: Tree) -> ChainState:
        """Return the first states of the algorithm and of the steps."""
        return ChainState(self.algorithm.init(params), tuple(s.init(params) for s in self.steps))

    def inner_state(self, state: ChainState) -> State:
        """Return the algorithm's state."""
        return state.inner

    def with_inner_state(self, state: ChainState, inner: State) -> ChainState:
        """Return the state with another state of the algorithm."""
        return state._replace(inner=inner)

    def broadcast(self, state: ChainState, key: PRNGKeyArray) -> Sent:
        """Send what the algorithm sends, and the states of the steps."""
        sent = self.algorithm.broadcast(state.inner, key)
        return Sent(sent.params, ChainExtra(sent.extra, state.steps))

    def client_update(
        self, sent: Sent, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> tuple[Reply, Memory, Info]:
        """Pass the algorithm's reply through all steps."""
        extra: ChainExtra = sent.extra
        inner = Sent(sent.params, extra.inner)
        reply, memory, info = self.algorithm.client_update(inner, memory, task, key)
        key = jax.random.fold_in(key, AT_CLIENT)
        for number, (step, state) in enumerate(zip(self.steps, extra.steps, strict=True)):
            reply = step.at_client(state, reply, jax.random.fold_in(key, number))
        return reply, memory, info

    def server_update(
        self, state: ChainState, cohort: Cohort, key: PRNGKeyArray
    ) -> tuple[ChainState, Info]:
        """Pass the cohort back through all steps, then to the algorithm."""
        kept = list(state.steps)
        for number in reversed(range(len(self.steps))):
            own = jax.random.fold_in(key, 1 + number)
            cohort, kept[number] = self.steps[number].at_server(kept[number], cohort, own)
        inner, info = self.algorithm.server_update(state.inner, cohort, jax.random.fold_in(key, 0))
        return ChainState(inner, tuple(kept)), info
