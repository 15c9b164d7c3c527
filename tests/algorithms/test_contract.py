"""What every algorithm must keep, whatever it computes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jaxtyping import Array

from headstart._keys import adaptation_step
from headstart._simulation import Federation
from headstart.algorithms import ALGORITHMS, APFL, Algorithm, FedAvg, Task
from headstart.algorithms._contract import ModelParts
from headstart.errors import ConfigError
from headstart.models import Classification, mlp
from headstart.testing import Problem, _behaviour_checks, algorithm_problems
from headstart.testing._behaviour_checks import count_gradients
from headstart.testing._bench import Bench
from headstart.testing._gradient_counting import Counts

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(3))


@pytest.fixture(scope="module")
def params() -> Any:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(KEY, leaf.shape), w)


def with_parts(task: Task, params: Any, adapted: tuple[bool, ...] | None) -> Task:
    """The task with nothing frozen, of which adaptation moves these leaves."""
    parts = ModelParts(jax.tree.map(lambda leaf: None, params), adapted)
    return Task(task.objective, task.examples, task.start, task.count, task.most, parts)


def test_the_grid_covers_every_algorithm() -> None:
    for names in (tiny.VARIANTS, tiny.EVERY_RUN):
        assert {type(tiny.VARIANTS[name]) for name in names} == set(ALGORITHMS.values())


class Checked(NamedTuple):
    """An algorithm, its problems, and the gradients that were counted to find them."""

    algorithm: Algorithm
    problems: list[Problem]
    counted: list[tuple[dict[int, Counts], Counts]]


@pytest.fixture(scope="module", params=tiny.variants())
def checked(request: pytest.FixtureRequest) -> Checked:
    counted: list[Any] = []

    def count_and_keep(bench: Bench) -> Any:
        counted.append(count_gradients(bench))
        return counted[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_behaviour_checks, "count_gradients", count_and_keep)
        return Checked(request.param, algorithm_problems(request.param), counted)


def test_every_algorithm_keeps_the_contract(checked: Checked) -> None:
    """tests/testing/test_testing.py shows what this notices."""
    assert checked.problems == []


def test_gradients_are_counted_to_the_last_one(checked: Checked) -> None:
    """Our own algorithms use the convention: a gradient is 1, a Hessian-vector product 2."""
    ((updates, step),) = checked.counted
    assert len(updates) == 2
    for examples, counts in updates.items():
        assert counts.evaluations == checked.algorithm.gradients_per_update(examples)
    assert step.evaluations == checked.algorithm.gradients_per_step


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


def test_what_is_not_adapted_is_constant_in_adaptation_only(task: Task, params: Any) -> None:
    batch = task.batch(KEY, 5)
    gradient = jax.jit(lambda task: jax.grad(task.loss)(params, batch))
    whole, part = gradient(task), with_parts(task, params, (True, False))
    assert tiny.distance(gradient(part), whole) < 1e-6
    held = gradient(part.for_adaptation())
    assert tiny.distance(held.weight, whole.weight) < 1e-6
    assert not held.bias.any() and whole.bias.all()
    for every in (task, with_parts(task, params, None)):
        assert every.for_adaptation() is every and every.adapted is None
    assert ModelParts(params).adapted is None
    assert part.adapted == (True, False)


def test_a_first_layer_is_known_only_where_the_whole_model_is_trained(params: Any) -> None:
    data = tiny.federation()
    objective = Classification(mlp([6]), data.schema)
    task = Federation.from_dataset(data, objective).training_task(jnp.int32(3))
    assert task.first_layer is not None
    assert with_parts(task, params, None).first_layer is None


def places(task: Task, *first: int) -> Array:
    """These places, filled up to the length that a task needs."""
    return jnp.pad(jnp.asarray(first), (0, task.most - len(first)))


def test_a_subset_draws_from_the_named_places_only(task: Task) -> None:
    start = int(task.start)
    some = task.subset(places(task, 4, 1, 7), jnp.int32(3))
    assert (some.rows_at(jnp.arange(3)) - start).tolist() == [4, 1, 7]
    drawn = np.unique(np.asarray(some.draw_rows(KEY, 20, 5)))
    assert (drawn - start).tolist() == [1, 4, 7]
    shuffled = np.asarray(some.shuffle_rows(KEY))[:3]
    assert sorted((shuffled - start).tolist()) == [1, 4, 7]
    fewer = some.subset(places(task, 2, 0), jnp.int32(2))
    assert (fewer.rows_at(jnp.arange(2)) - start).tolist() == [7, 4]


def test_a_subset_can_be_taken_before_and_after_adaptation_begins(task: Task, params: Any) -> None:
    part, chosen = with_parts(task, params, (True, False)), places(task, 4, 1, 7)
    before = part.subset(chosen, jnp.int32(3)).for_adaptation()
    after = part.for_adaptation().subset(chosen, jnp.int32(3))
    assert before.adapting and before.order is not None
    assert tiny.identical(before, after)


def test_how_many_examples_a_split_may_have_is_unknown_unless_said(task: Task) -> None:
    assert Task(task.objective, task.examples, task.start, task.count).most == 0


@pytest.mark.parametrize("rates", ["fixed", "per-array"])
def test_personalisation_by_hand(task: Task, params: Any, rates: Any) -> None:
    """Two steps of α = 0.2, each on a batch of the inner size; rates begin with α."""
    algorithm = FedAvg(**{**tiny.COMMON, "batch_size": (4, 5, 6)}, rates=rates)
    w = params
    for t in range(2):
        d = jax.grad(task.loss)(w, task.batch(adaptation_step(KEY, t), 4))
        w = jax.tree.map(lambda u, v: u - 0.2 * v, w, d)
    own = algorithm.personalize(algorithm.init(params), (), task, KEY, 2)
    assert tiny.distance(own, w) < 1e-6


def test_what_an_algorithm_need_not_define_has_a_default(params: Any) -> None:
    algorithm = APFL(**tiny.COMMON)
    state = algorithm.init(params)
    assert (algorithm.bits_per_number, algorithm.update_scale) == (32, 1.0)
    assert algorithm.rule is None and not algorithm.measures_gradient_norm
    assert algorithm.adaptation_rates(state) == []
    assert tuple(algorithm.gradient_norm_point(state)) == (params, 0.0, 0)
    zero = jax.tree.map(jnp.zeros_like, params)
    assert tiny.identical(algorithm.model(algorithm.with_model(state, zero)), zero)
    needing = {name for name, each in tiny.VARIANTS.items() if each.needs_memory}
    assert {name.partition("-")[0] for name in needing} == {"local", "apfl"} and len(needing) == 7
