"""What every algorithm must keep, whatever it computes."""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import tiny

from headstart.algorithms import ALGORITHMS, Algorithm, PerFedAvg, Task
from headstart.algorithms.cohort import cohort_of
from headstart.errors import ConfigError
from headstart.keys import adaptation_start
from headstart.models import Classification
from headstart.options import as_table, build
from headstart.simulation import Federation

KEY = jax.random.key(3)
grid = pytest.mark.parametrize("algorithm", tiny.VARIANTS.values(), ids=tiny.VARIANTS.keys())


@pytest.fixture(scope="module")
def federation() -> Federation:
    data = tiny.federation()
    return Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))


@pytest.fixture(scope="module")
def params() -> Any:
    return tiny.MODEL.init(KEY, tiny.federation().schema)


@jax.jit
def exchange(algorithm: Algorithm, params: Any, task: Task, key: Any) -> tuple[Any, ...]:
    """One round with one client, compiled once for each algorithm."""
    return slow_exchange(algorithm, params, task, key)


@partial(jax.jit, static_argnames="steps")
def personal(
    algorithm: Algorithm, params: Any, task: Task, key: Any, *, steps: int
) -> tuple[Any, ...]:
    """A new client's model after 0 … steps steps: asked for, and step by step."""
    state = algorithm.init(params)
    memory = algorithm.init_memory(state)
    asked = [algorithm.personalize(state, memory, task, key, step) for step in range(steps + 1)]
    own, by_hand = algorithm.personal_start(state, memory, task, adaptation_start(key)), []
    for step in range(steps + 1):
        by_hand.append(algorithm.personal_model(own))
        own = algorithm.personal_step(own, task, jax.random.fold_in(key, step))
    return asked, by_hand


def slow_exchange(algorithm: Algorithm, params: Any, task: Task, key: Any) -> tuple[Any, ...]:
    state = algorithm.init(params)
    memory = algorithm.init_memory(state)
    sent = algorithm.broadcast(state, key)
    reply, after, info = algorithm.client_update(sent, memory, task, key)
    cohort = cohort_of([reply], asked=1, exist=1)
    return state, memory, reply, after, info, *algorithm.server_update(state, cohort, key)


def structure(tree: Any) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def test_the_grid_covers_every_algorithm() -> None:
    assert {type(a) for a in tiny.VARIANTS.values()} == set(ALGORITHMS.values())


@grid
def test_a_round_keeps_the_structure_of_state_and_memory(
    algorithm: Algorithm, params: Any, federation: Federation
) -> None:
    task = federation.training_task(jnp.int32(2))
    state, memory, _, after, info, new_state, _ = exchange(algorithm, params, task, KEY)
    assert structure(new_state) == structure(state)
    assert structure(after) == structure(memory)
    assert bool(jax.tree.leaves(memory)) == algorithm.needs_memory
    assert jnp.isfinite(info["loss"])


@grid
def test_equal_keys_give_equal_replies_and_other_keys_others(
    algorithm: Algorithm, params: Any, federation: Federation
) -> None:
    task = federation.training_task(jnp.int32(2))
    one, again, other = (
        exchange(algorithm, params, task, key)[2:4] for key in (KEY, KEY, jax.random.key(4))
    )
    assert tiny.identical(one, again)
    assert not tiny.identical(one, other)


@grid
def test_a_client_sees_its_own_rows_only(
    algorithm: Algorithm, params: Any, federation: Federation
) -> None:
    """Spoiling everybody else's rows changes nothing, to the bit."""
    start, count = int(federation.starts[1]), int(federation.train_counts[1])
    x, y = federation.examples
    spoiled = jnp.full_like(x, jnp.nan).at[start : start + count].set(x[start : start + count])
    objective = federation.objective
    whole = Task(objective, (x, y), jnp.int32(start), jnp.int32(count), 64)
    alone = Task(objective, (spoiled, y), jnp.int32(start), jnp.int32(count), 64)
    assert tiny.identical(
        exchange(algorithm, params, whole, KEY)[2:4], exchange(algorithm, params, alone, KEY)[2:4]
    )


@grid
def test_a_client_who_was_never_there_gets_a_model(
    algorithm: Algorithm, params: Any, federation: Federation
) -> None:
    task = federation.training_task(jnp.int32(6))
    asked, by_hand = personal(algorithm, params, task, KEY, steps=2)
    assert structure(asked[2]) == structure(params)
    assert tiny.distance(asked[2], asked[0]) > 0
    for one, other in zip(asked, by_hand, strict=True):
        assert tiny.distance(one, other) < 1e-6


@grid
def test_options_survive_a_file(algorithm: Algorithm) -> None:
    assert build(type(algorithm), as_table(algorithm), "algorithm") == algorithm


@grid
def test_gradients_are_counted_as_they_are_computed(
    algorithm: Algorithm, params: Any, federation: Federation
) -> None:
    """Without compilation every gradient calls the loss once, a Hessian-vector product too."""
    calls = []

    class Counting:
        first_layer = None

        def loss(self, w: Any, batch: Any) -> Any:
            calls.append(1)
            return federation.objective.loss(w, batch)

    task = Task(Counting(), federation.examples, jnp.int32(0), jnp.int32(6), 8)
    with jax.disable_jit():
        slow_exchange(algorithm, params, task, KEY)
        update, calls[:] = len(calls), []
        state = algorithm.init(params)
        own = algorithm.personal_start(state, algorithm.init_memory(state), task, KEY)
        algorithm.personal_step(own, task, KEY)
    products = 0
    if isinstance(algorithm, PerFedAvg) and algorithm.method == "exact":
        products = algorithm.local_steps * algorithm.inner_steps
    assert update + products == algorithm.gradients_per_update(6)
    assert len(calls) == algorithm.gradients_per_step


WRONG = [
    ("inner_lr", 0.0),
    ("inner_lr", float("nan")),
    ("local_lr", -0.1),
    ("local_lr", float("inf")),
    ("local_steps", 0),
    ("batch_size", 0),
]


@pytest.mark.parametrize(
    "cls, option, value",
    [
        (cls, option, value)
        for cls in ALGORITHMS.values()
        for option, value in WRONG
        if option in [field.name for field in dataclasses.fields(cls)]
    ],
)
def test_bad_options_are_refused_by_name(cls: type[Algorithm], option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        cls(**{option: value})


@pytest.mark.parametrize("cls", ALGORITHMS.values(), ids=ALGORITHMS.keys())
def test_every_algorithm_is_final_and_documented(cls: type[Algorithm]) -> None:
    assert getattr(cls, "__final__", False), "say @final: nothing is overridden"
    assert cls.__doc__ and inspect.getmodule(cls).__doc__
