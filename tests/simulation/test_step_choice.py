"""Cross-validation within a client against plain loops; tasks of some of a client's rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from headstart._keys import adaptation_start, adaptation_step, example_order, fold_adaptation
from headstart._simulation import Progress, Simulation
from headstart._simulation.scoring import order_examples, sum_scores, take_first
from headstart._simulation.step_choice import (
    FOLDS,
    StepSums,
    choose_steps,
    cross_validate,
    make_choices,
    split_fold,
)
from headstart.algorithms import FedAvg, Task
from headstart.data import from_clients
from headstart.models.objectives import make_objective

STEPS = 3


@pytest.fixture(scope="module", params=["per-fedavg-exact", "apfl", "local"])
def trained(request: pytest.FixtureRequest) -> tuple[Simulation, Progress]:
    algorithm = tiny.VARIANTS[request.param]
    engine = Simulation(tiny.federation(), tiny.MODEL, algorithm, participation=0.6)
    return engine, engine.advance(engine.start(), 5)


def make_task(count: int, most: int = 32, start: int = 3) -> Task:
    """A client with ``count`` rows; the label of a row is its number after ``start``."""
    rows = start + most
    labels = np.arange(rows, dtype=np.int32) - start
    examples = (jnp.asarray(np.zeros((rows, tiny.FEATURES), np.float32)), jnp.asarray(labels))
    objective = make_objective(tiny.MODEL, tiny.federation().schema, None)
    return Task(objective, examples, jnp.int32(start), jnp.int32(count), most)


@given(
    count=st.integers(1, 32),
    used=st.integers(1, 32),
    size=st.integers(1, 8),
    seed=st.integers(0, 9),
)
def test_a_subset_draws_only_its_own_rows(count: int, used: int, size: int, seed: int) -> None:
    """All ways to draw: batches, many steps at once, and all rows in random order."""
    least = min(used, count)
    draws = draw_from_subset(make_task(count), jax.random.key(seed), least, size=size)
    rows, drawn, shuffled, again = jax.tree.map(np.asarray, draws)
    own = set((rows[:least] - 3).tolist())
    assert len(own) == least
    assert own <= set(range(count))
    assert set(np.concatenate(drawn).tolist()) <= own
    assert sorted((shuffled[:least] - 3).tolist()) == sorted(own)
    assert int(again[0]) in own


@partial(jax.jit, static_argnames="size")
def draw_from_subset(task: Task, key: Any, used: Any, *, size: int) -> Any:
    """Rows of a subset; labels drawn from it in all ways; its rows shuffled; one of one of it."""
    few = task.subset(order_examples(task, key), used)
    drawn = [few.batch(key, size)[1], *(y for _, y in few.batches(key, [size, 2]))]
    drawn += [few.draw_rows(key, 3, size).ravel() - 3]
    again = few.for_adaptation().subset(jnp.arange(32)[::-1] % few.count, jnp.int32(1))
    return few.rows_at(jnp.arange(32)), drawn, few.shuffle_rows(key), again.batch(key, 1)[1]


def test_a_whole_task_with_an_order_draws_what_it_draws_without() -> None:
    task, key = make_task(20), jax.random.key(0)
    same = task.subset(jnp.arange(32), task.count)
    np.testing.assert_array_equal(task.batch(key, 7)[1], same.batch(key, 7)[1])
    np.testing.assert_array_equal(task.draw_rows(key, 3, 4), same.draw_rows(key, 3, 4))
    np.testing.assert_array_equal(task.shuffle_rows(key), same.shuffle_rows(key))


ordered = jax.jit(order_examples)


@given(count=st.integers(1, 30), seed=st.integers(0, 9))
def test_a_clients_order_does_not_depend_on_padding(count: int, seed: int) -> None:
    """Evaluation, personalisation and a site pad differently and must choose alike."""
    key = jax.random.key(seed)
    short, long = (np.asarray(ordered(make_task(count, most), key)) for most in (32, 64))
    assert short[:count].tolist() == long[:count].tolist()
    assert sorted(short[:count].tolist()) == list(range(count))


@jax.jit
def rows_of_fold(task: Task, order: Any, fold: Any) -> list[tuple[Any, Any]]:
    """Rows and their number, of the fold and of the rest."""
    rest, own = split_fold(task, order, fold)
    return [(part.rows_at(jnp.arange(32)), part.count) for part in (own, rest)]


@given(count=st.integers(2, 30), seed=st.integers(0, 9))
def test_folds_are_a_partition_of_a_clients_rows(count: int, seed: int) -> None:
    task = make_task(count)
    order = ordered(task, jax.random.key(seed))
    scored = []
    for fold in range(FOLDS):
        fold_rows, rest_rows = (
            np.asarray(rows)[: int(size)] - 3 for rows, size in rows_of_fold(task, order, fold)
        )
        assert sorted([*fold_rows.tolist(), *rest_rows.tolist()]) == list(range(count))
        assert len(fold_rows) in (count // FOLDS, count // FOLDS + 1)
        scored += fold_rows.tolist()
    assert sorted(scored) == list(range(count))


def slow_comparison(
    engine: Simulation, progress: Progress, client: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Loss, right answers, examples better and worse after 0 … STEPS steps: loops and NumPy."""
    progress = jax.tree.map(np.asarray, progress)
    algorithm: Any = engine.algorithm
    known = client < engine.data.known_clients
    fresh = algorithm.init_memory(progress.state)
    memory = jax.tree.map(lambda m: m[client], progress.memory) if known else fresh
    own, key = engine.data.client(client), engine.keys.adaptation(client)
    count, root = len(own.y_train), example_order(key)
    draws = [int(jax.random.bits(jax.random.fold_in(root, place))) for place in range(count)]
    order = np.argsort(draws, kind="stable")
    table, take_step = np.zeros((4, STEPS + 1)), jax.jit(algorithm.personal_step)
    for fold in range(FOLDS):
        low, high = fold * count // FOLDS, (fold + 1) * count // FOLDS
        # Places count from the end of the fold on: a draw's number stands for the same row.
        rest, scored = np.roll(order, -high)[: count - (high - low)], order[low:high]
        x, y = jnp.asarray(own.x_train[rest]), jnp.asarray(own.y_train[rest])
        objective = engine.federation.objective
        task = Task(objective, (x, y), jnp.int32(0), jnp.int32(len(rest)), len(rest))
        fold_key = fold_adaptation(key, fold)
        personal = algorithm.personal_start(
            progress.state, memory, task, adaptation_start(fold_key)
        )
        first = None
        for step in range(STEPS + 1):
            params = algorithm.personal_model(personal)
            logits = np.asarray(tiny.MODEL.apply(params, jnp.asarray(own.x_train[scored])), float)
            right = logits.argmax(axis=1) == own.y_train[scored]
            first = right if first is None else first
            log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            table[0, step] -= log_p[np.arange(len(scored)), own.y_train[scored]].sum()
            table[1, step] += right.sum()
            table[2, step] += (right > first).sum()
            table[3, step] += (right < first).sum()
            personal = take_step(personal, task, adaptation_step(fold_key, step))
    return table[0], table[1], table[2], table[3]


def test_cross_validation_is_that_of_a_plain_loop(trained: tuple[Simulation, Progress]) -> None:
    engine, progress = trained
    own = engine.compare_steps(progress, STEPS).own
    for client in (0, 4, 6):
        loss, right, better, worse = slow_comparison(engine, progress, client)
        np.testing.assert_allclose(own.scores[client, :, 0], loss, rtol=2e-5)
        np.testing.assert_array_equal(own.outcome[client], right)
        np.testing.assert_array_equal(own.better[client], better)
        np.testing.assert_array_equal(own.worse[client], worse)


def test_one_client_alone_has_the_same_cross_validation(
    trained: tuple[Simulation, Progress],
) -> None:
    """As in personalisation and at a federation's site."""
    engine, progress = trained
    own, client = engine.compare_steps(progress, STEPS).own, 4
    state, memory = jax.tree.map(np.asarray, (progress.state, progress.memory))
    task = engine.federation.training_task(jnp.int32(client))
    table = jax.jit(partial(cross_validate, engine.algorithm, most=STEPS))(
        state, jax.tree.map(lambda m: m[client], memory), task, engine.keys.adaptation(client)
    )
    alone = StepSums.from_table(np.asarray(table)[None])
    for name, values in own._asdict().items():
        np.testing.assert_allclose(getattr(alone, name)[0], values[client], rtol=1e-5)


def test_held_out_sums_are_those_of_the_evaluation(trained: tuple[Simulation, Progress]) -> None:
    engine, progress = trained
    scores = engine.evaluate(progress, list(range(STEPS + 1)), most=STEPS)
    held_out = engine.compare_steps(progress, STEPS).held_out
    counts = np.asarray(engine.data.test_counts)[:, None]
    np.testing.assert_allclose(held_out.scores[..., 0] / counts, scores.loss, rtol=1e-6)
    np.testing.assert_allclose(held_out.outcome / counts, scores.primary, rtol=1e-6)
    # Right answers change by those gained minus those lost.
    change = held_out.outcome - held_out.outcome[:, :1]
    np.testing.assert_array_equal(held_out.better - held_out.worse, change)


def test_shots(trained: tuple[Simulation, Progress]) -> None:
    """As many shots as examples are the ordinary evaluation; one shot is one example."""
    engine, progress = trained
    steps = list(range(STEPS + 1))
    ordinary = engine.evaluate(progress, steps, most=STEPS)
    everything = engine.evaluate(progress, steps, most=STEPS, shots=18)
    np.testing.assert_array_equal(everything.loss, ordinary.loss)
    few = engine.evaluate(progress, steps, most=STEPS, shots=1)
    np.testing.assert_array_equal(few.loss[:, 0], ordinary.loss[:, 0])
    assert (few.loss[:, STEPS] != ordinary.loss[:, STEPS]).all()
    task = engine.federation.training_task(jnp.int32(0))
    one = take_first(task, jnp.int32(1), engine.keys.adaptation(0))
    assert int(one.count) == 1
    params = engine.algorithm.model(progress.state)
    batch = one.batch(jax.random.key(3), 1)
    loss = engine.federation.objective.loss(params, batch)
    assert float(sum_scores(one, params)[0]) == pytest.approx(float(loss), rel=1e-6)


def make_sums(loss: list[float], bad: list[float] | None = None) -> StepSums:
    """The cross-validation of one client, as far as the rule reads it."""
    columns = [loss, [0.0] * len(loss), bad or [0.0] * len(loss)]
    zeros = np.zeros((1, len(loss)))
    return StepSums(np.array(columns).T[None], zeros, zeros, zeros)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ([9, 1, 2, 3], 3),  # The configured number is better than 0: it stays.
        ([100, 50, 60, 104], 3),  # It is hardly worse: it stays.
        ([100, 99, 98, 106], 2),  # It is worse: the best of all.
        ([100, 101, 102, 106], 0),
        ([-100, -99, -98, -94], 0),  # A loss of the user's own may be negative.
        ([-100, -99, -98, -96], 3),
    ],
)
def test_the_rule(loss: list[float], expected: int) -> None:
    assert choose_steps(make_sums(loss), np.array([20])).tolist() == [expected]
    assert choose_steps(make_sums(loss), np.array([1])).tolist() == [3]


def test_every_client_has_its_own_choice() -> None:
    """Two examples suffice for a choice."""
    first, second = make_sums([100, 99, 98, 106]), make_sums([100, 101, 102, 106])
    both = StepSums(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
    assert choose_steps(both, np.array([2, 2])).tolist() == [2, 0]
    assert choose_steps(both, np.array([2, 1])).tolist() == [2, 3]


def test_steps_that_diverge_are_not_chosen() -> None:
    assert choose_steps(make_sums([3, 2, 1, 1], [0, 0, 1, 1]), np.array([20])).tolist() == [1]
    everywhere = make_sums([3, 2, 1, 1], [1, 1, 1, 1])
    assert choose_steps(everywhere, np.array([20])).tolist() == [0]


def test_a_client_that_adaptation_hurts_keeps_the_shared_model() -> None:
    """The shared model knows the true rule; half of one new client's training labels are noise."""
    rng, rule = np.random.default_rng(0), np.array([[3.0, 0, -3.0]] * tiny.FEATURES)
    parts = []
    for client in range(6):
        x = rng.normal(size=(80, tiny.FEATURES)).astype(np.float32)
        y = np.argmax(x @ rule, axis=1)
        if client == 5:
            y[:40:2] = rng.integers(0, tiny.CLASSES, 20)
        parts.append((x[:40], y[:40], x[40:], y[40:]))
    data = from_clients(parts, tiny.federation().schema, new_clients=1)
    engine = Simulation(data, tiny.MODEL, FedAvg(batch_size=5, local_lr=0.3, inner_lr=30.0))
    progress = engine.advance(engine.start(), 60)
    comparison = engine.compare_steps(progress, STEPS)
    choices = make_choices(comparison, engine.evaluated, np.asarray(data.train_counts))
    noisy, scores = 5, engine.evaluate(progress, list(range(STEPS + 1)), most=STEPS)
    assert scores.primary[noisy, 0] > scores.primary[noisy, STEPS]
    assert choices.steps[noisy] == 0
    assert choices.chosen[noisy].tolist() == [0, 0]
    better, worse = choices.fixed[noisy].tolist()
    assert worse > better
