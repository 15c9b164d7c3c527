"""An algorithm around another one; it delegates everything that it does not change."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from jaxtyping import Array, Float, Int, PRNGKeyArray

from headstart.algorithms._contract import (
    Algorithm,
    GradientNormPoint,
    Memory,
    Personal,
    State,
    Task,
)
from headstart.trees import Tree


class AlgorithmWrapper(Algorithm):
    """Delegates everything that does not depend on the round; a final class adds the rest."""

    algorithm: Algorithm

    @abstractmethod
    def inner_state(self, state: State) -> State:
        """Return the wrapped algorithm's state."""

    @abstractmethod
    def with_inner_state(self, state: State, inner: State) -> State:
        """Return the state with another state of the wrapped algorithm."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the wrapped algorithm."""
        return self.algorithm.name

    @property
    def needs_memory(self) -> bool:  # type: ignore[override]
        """Whether the wrapped algorithm needs memory."""
        return self.algorithm.needs_memory

    @property
    def label(self) -> str:
        """The label of the wrapped algorithm."""
        return self.algorithm.label

    @property
    def smaller_steps(self) -> str:
        """The advice of the wrapped algorithm."""
        return self.algorithm.smaller_steps

    @property
    def gradients_per_step(self) -> int:
        """The cost of the wrapped algorithm's step."""
        return self.algorithm.gradients_per_step

    @property
    def largest_batch(self) -> int:
        """The largest batch of the wrapped algorithm."""
        return self.algorithm.largest_batch

    @property
    def measures_gradient_norm(self) -> bool:
        """Whether the wrapped algorithm measures it."""
        return self.algorithm.measures_gradient_norm

    @property
    def rule(self) -> Any:
        """The rule of the wrapped algorithm."""
        return self.algorithm.rule

    @property
    def bits_per_number(self) -> int:
        """The bits per number of the wrapped algorithm."""
        return self.algorithm.bits_per_number

    @property
    def update_scale(self) -> float:
        """The scale of the wrapped algorithm."""
        return self.algorithm.update_scale

    def gradient_norm_point(self, state: State) -> GradientNormPoint:
        """Return the point of the wrapped algorithm."""
        return self.algorithm.gradient_norm_point(self.inner_state(state))

    def adaptation_rates(self, state: State) -> list[Tree]:
        """Return the rates of the wrapped algorithm."""
        return self.algorithm.adaptation_rates(self.inner_state(state))

    def gradients_per_update(self, examples: int) -> int:
        """Return the cost of the wrapped algorithm's update."""
        return self.algorithm.gradients_per_update(examples)

    def weight_of(self, examples: Int[Array, ""]) -> Float[Array, ""]:
        """Return the weight in the wrapped algorithm."""
        return self.algorithm.weight_of(examples)

    def model(self, state: State) -> Tree:
        """Return the wrapped algorithm's shared model."""
        return self.algorithm.model(self.inner_state(state))

    def with_model(self, state: State, params: Tree) -> State:
        """Return the state with another shared model of the wrapped algorithm."""
        inner = self.algorithm.with_model(self.inner_state(state), params)
        return self.with_inner_state(state, inner)

    def init_memory(self, state: State) -> Memory:
        """Return the wrapped algorithm's first memory."""
        return self.algorithm.init_memory(self.inner_state(state))

    def personal_start(
        self, state: State, memory: Memory, task: Task, key: PRNGKeyArray
    ) -> Personal:
        """Return the wrapped algorithm's start."""
        return self.algorithm.personal_start(self.inner_state(state), memory, task, key)

    def personal_step(self, personal: Personal, task: Task, key: PRNGKeyArray) -> Personal:
        """Take one adaptation step of the wrapped algorithm."""
        return self.algorithm.personal_step(personal, task, key)

    def personal_model(self, personal: Personal) -> Tree:
        """Return the wrapped algorithm's parameters of the client."""
        return self.algorithm.personal_model(personal)
