"""A finished run in memory: its numbers, and a model for whoever comes later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from headstart.algorithms.contract import Algorithm, State, Task
from headstart.data.federated import Schema, from_clients
from headstart.data.inputs import matched_inputs, matched_labels
from headstart.errors import DataError, DivergedError
from headstart.keys import Keys
from headstart.models.contract import Model
from headstart.models.objective import Classification
from headstart.options import require_at_least
from headstart.runs.record import SMALLER_STEPS
from headstart.trees import Tree, all_finite


@dataclass(frozen=True, eq=False)
class PersonalModel:
    """One client's own model."""

    params: Tree
    model: Model
    schema: Schema

    def probabilities(self, x: Any) -> Float[np.ndarray, "batch ..."]:
        """Probability of each class for each example.

        ``x`` is an array, or a table whose columns are matched by name.
        """
        x = matched_inputs(x, self.schema)
        logits = self.model.apply(self.params, self.schema.decode(jnp.asarray(x)))
        if not np.all(np.isfinite(logits)):
            raise DivergedError("the model's outputs for these examples are not finite numbers")
        return np.asarray(jax.nn.softmax(logits))

    def predict(self, x: Any) -> Int[np.ndarray, "batch ..."]:
        """The likeliest class of each example, as a number; names are in ``schema.class_names``."""
        return np.argmax(self.probabilities(x), axis=-1)

    def accuracy(self, x: Any, y: Any) -> float:
        """Share of labels predicted right; an error if the model's outputs are not numbers."""
        x, y = check_examples(x, y, self.schema)
        score = Classification(self.model, self.schema).score(
            self.params, (jnp.asarray(x), jnp.asarray(y))
        )
        if not np.all(score.finite):
            raise DivergedError("the model's outputs for these examples are not finite numbers")
        return float(np.mean(np.asarray(score.correct, float)))


class Summary(dict[str, Any]):
    """The summary as a dictionary that prints as a few readable lines."""

    def __str__(self) -> str:
        """Before and after adaptation, known and new clients."""
        lines = [
            f"{self['label']}: {self['rounds']} rounds, "
            f"{self['gradient_evaluations']:,} gradient evaluations, {self['seconds']:.1f} s "
            f"(evaluation {self['evaluation_seconds']:.1f} s)"
        ]
        for name, part in (("known clients", self), ("new clients", self["new_clients"])):
            if part is None:
                continue
            before, after = part["accuracy"]["before"], part["accuracy"]["after"]
            lines.append(
                f"  {name + ':':15} {_percent(before)} → {_percent(after)} "
                f"after {self['adapt_steps']} adaptation steps" + self._sampled(name.split()[0])
            )
        if self["warning"]:
            lines.append(f"  warning: {self['warning']}")
        if self.get("note"):
            lines.append(f"  note: {self['note']}")
        failures = self.get("failures") or []
        lines += [f"  FAILED: {failure}" for failure in failures]
        if failures:
            lines.append(f"  {SMALLER_STEPS}")
        return "\n".join(lines)

    def _sampled(self, kind: str) -> str:
        there, seen = self["clients"][kind], self["evaluated_clients"][kind]
        if seen == there:
            return ""
        if self.get("engine") == "flower":
            return f" ({seen} of {there} sites answered)"
        return f" ({seen:,} of {there:,} clients, drawn at random)"

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class Run:
    """What training gives."""

    summary: dict[str, Any]
    records: list[dict[str, Any]]
    """One per evaluation."""
    clients: list[dict[str, Any]]
    """One per client."""
    model: Model
    algorithm: Algorithm
    state: State
    schema: Schema

    def __post_init__(self) -> None:
        """Let the summary print itself."""
        object.__setattr__(self, "summary", Summary(self.summary))

    @property
    def params(self) -> Tree:
        """The shared initial model."""
        return self.algorithm.model(self.state)

    def personalize(
        self, x: Any, y: Any, *, steps: int | None = None, seed: int = 0
    ) -> PersonalModel:
        """A model for somebody who was never there, adapted to all the examples given.

        Judge it on other examples than these: ``mine.accuracy(x_test, y_test)``.
        """
        steps = self.summary["adapt_steps"] if steps is None else steps
        return personalize(self, x, y, steps=steps, seed=seed)


def personalize(run: Run, x: Any, y: Any, *, steps: int, seed: int = 0) -> PersonalModel:
    """The run's model adapted to one client's examples by so many steps."""
    require_at_least(0, steps=steps, seed=seed)
    x, y = check_examples(x, y, run.schema)
    task = Task(
        Classification(run.model, run.schema),
        (jnp.asarray(x), jnp.asarray(y)),
        jnp.int32(0),
        jnp.int32(len(y)),
    )
    memory = run.algorithm.init_memory(run.state)
    key = Keys.from_seed(seed).adaptation_root
    params = jax.jit(run.algorithm.personalize)(run.state, memory, task, key, steps)
    if not all_finite(params):
        raise DivergedError(
            f"the model is not finite after {steps} adaptation steps; "
            "use fewer steps, or train with a smaller algorithm.inner_lr"
        )
    return PersonalModel(params, run.model, run.schema)


def check_examples(x: Any, y: Any, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """The examples as arrays, or one clear line why they do not fit the run."""
    x, y = matched_inputs(x, schema), matched_labels(y, schema)
    if len(x) != len(y) or not len(y):
        raise DataError(f"{len(x)} inputs and {len(y)} labels; give as many of each, at least one")
    from_clients([(x, y, x[:1], y[:1])], schema, names=["given"])
    return x, y.astype(np.int32)


def _percent(summary: dict[str, Any]) -> str:
    width = summary["ci95"]
    return f"{100 * summary['mean']:.1f} %" + ("" if width is None else f" ± {100 * width:.1f}")
