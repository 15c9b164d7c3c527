"""FedAvg and Per-FedAvg against loops written from the papers, and the papers' options."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from jax.flatten_util import ravel_pytree

from headstart._simulation import Federation
from headstart.algorithms import FedAvg, PerFedAvg, Task
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Cohort
from headstart.errors import ConfigError
from headstart.models import Classification
from headstart.trees import add, scale, subtract, zeros_like

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(3))


@pytest.fixture(scope="module")
def params() -> Any:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(KEY, leaf.shape), w)


def cohort(update: Any) -> Cohort:
    return Cohort(update, {}, jnp.int32(1), 1, 1)


def local_steps_with_matrices(algorithm: PerFedAvg, params: Any, task: Task) -> np.ndarray:
    """P Algorithm 1 / G Algorithm 2 with explicit Hessians, in NumPy, always from w."""
    flat, back = ravel_pytree(params)
    gradient = jax.jit(jax.grad(lambda v, batch: task.loss(back(v), batch)))
    hessian = jax.jit(jax.hessian(lambda v, batch: task.loss(back(v), batch)))
    w = np.asarray(flat, float)
    for t in range(algorithm.local_steps):
        batches = algorithm.arrange_batches(
            task.batches(jax.random.fold_in(KEY, t), algorithm.step_batches)
        )
        path = [w]
        for batch in batches.inner:
            path.append(path[-1] - algorithm.inner_lr * np.asarray(gradient(path[-1], batch)))
        d = np.asarray(gradient(path[-1], batches.outer))
        for u, batch in reversed(list(zip(path[:-1], batches.hessian, strict=True))):
            d = d - algorithm.inner_lr * np.asarray(hessian(u, batch)) @ d
        w = w - algorithm.local_lr * d
    return w


@pytest.mark.parametrize("inner_steps", [1, 2, 3])
def test_per_fedavg_is_the_papers_algorithm(task: Task, params: Any, inner_steps: int) -> None:
    """The tolerance is float32's: 3 steps of numbers near 1."""
    algorithm = PerFedAvg(**tiny.COMMON, inner_steps=inner_steps)
    sent = algorithm.broadcast(algorithm.init(params), KEY)
    reply, _, _ = jax.jit(algorithm.client_update)(sent, (), task, KEY)
    expected = local_steps_with_matrices(algorithm, params, task)
    result = ravel_pytree(add(params, reply.update))[0]
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_hessian_free_follows_exact_and_first_order_does_not(task: Task, params: Any) -> None:
    replies = {}
    for method in ("exact", "hessian-free", "first-order"):
        algorithm = PerFedAvg(**tiny.COMMON, method=method)
        sent = algorithm.broadcast(algorithm.init(params), KEY)
        replies[method] = jax.jit(algorithm.client_update)(sent, (), task, KEY)[0]
    near = tiny.distance(replies["exact"], replies["hessian-free"])
    far = tiny.distance(replies["exact"], replies["first-order"])
    assert near < 1e-5 < 100 * near < far


@pytest.mark.parametrize("longest", [np.inf, 0.05])
def test_no_inner_step_is_fedavg_to_the_bit(task: Task, params: Any, longest: float) -> None:
    options = {**tiny.COMMON, "max_gradient_norm": longest}
    plain, meta = FedAvg(**options), PerFedAvg(**options, inner_steps=0)
    one = plain.client_update(plain.broadcast(plain.init(params), KEY), (), task, KEY)
    two = meta.client_update(meta.broadcast(meta.init(params), KEY), (), task, KEY)
    assert tiny.identical(one, two)
    assert plain.gradients_per_update(9) == meta.gradients_per_update(9)


def test_batches_of_a_local_step_are_independent_draws(task: Task) -> None:
    algorithm = PerFedAvg(**{**tiny.COMMON, "batch_size": (4, 5, 6)}, inner_steps=2)
    batches = algorithm.arrange_batches(task.batches(KEY, algorithm.step_batches))
    sizes = [len(b[1]) for b in (*batches.inner, batches.outer, *batches.hessian)]
    assert sizes == [4, 4, 5, 6, 6]
    drawn = [np.asarray(b[0])[:4].tobytes() for b in (*batches.inner, *batches.hessian)]
    assert len(set(drawn)) == len(drawn)


def test_one_batch_serves_all_of_a_local_step_if_asked_for(task: Task, params: Any) -> None:
    """Then the meta-gradient is autodiff of f(w − α∇f(w)) on the batch FedAvg would draw."""
    options = {**tiny.COMMON, "local_steps": 1}
    algorithm = PerFedAvg(**options, same_batch=True)
    (batch,) = task.batches(jax.random.fold_in(KEY, 0), FedAvg(**options).step_batches)

    def composed(w: Any) -> jax.Array:
        adapted = add(w, jax.grad(task.loss)(w, batch), -algorithm.inner_lr)
        return task.loss(adapted, batch)

    expected = add(params, jax.grad(composed)(params), -algorithm.local_lr)
    sent = algorithm.broadcast(algorithm.init(params), KEY)
    reply, _, _ = algorithm.client_update(sent, (), task, KEY)
    result = add(params, reply.update)
    assert tiny.distance(result, expected) < 1e-6 < tiny.distance(params, expected)
    with pytest.raises(ConfigError, match="same_batch=true draws one batch"):
        PerFedAvg(**{**tiny.COMMON, "batch_size": (4, 5, 6)}, same_batch=True)
    with pytest.raises(ConfigError, match="same_batch=true draws one batch"):
        PerFedAvg(**{**tiny.COMMON, "batch_size": (4, 4, 6)}, same_batch=True)


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_smaller_server_steps_are_advised_only_with_a_server_optimiser(
    optimizer: str | None,
) -> None:
    advice = FedAvg(**tiny.COMMON, server_optimizer=optimizer).smaller_steps
    assert ("server_lr" in advice) == (optimizer is not None)


def test_smaller_adaptation_steps_are_advised_where_they_move_the_model() -> None:
    assert "inner_lr" not in FedAvg(**tiny.COMMON).smaller_steps
    for method in ("exact", "first-order"):
        advice = PerFedAvg(**tiny.COMMON, method=method).smaller_steps
        assert advice.startswith("algorithm.local_lr=0.01 (now 0.1) or algorithm.inner_lr=0.02 or")


def test_random_iterate_is_the_iterate_the_server_asked_for(task: Task, params: Any) -> None:
    """P Remark 4.7: t_k is the server's, one for all clients, and may be 0."""
    algorithm = PerFedAvg(**tiny.COMMON, random_iterate=True)
    short = PerFedAvg(**{**tiny.COMMON, "local_steps": 1})
    update, seen = jax.jit(algorithm.client_update), set()
    for number in range(12):
        sent = algorithm.broadcast(algorithm.init(params), jax.random.key(number))
        reply, _, _ = update(sent, (), task, KEY)
        chosen = int(sent.extra.iterate)
        seen.add(chosen)
        moved = reply.parts["iterate"].value
        if chosen == 0:
            assert tiny.distance(moved, zeros_like(params)) == 0
        if chosen == 1:
            first = short.client_update(short.broadcast(short.init(params), KEY), (), task, KEY)[0]
            assert tiny.distance(moved, first.update) < 1e-6
        cohort = build_cohort([reply], asked=1, exist=1)
        state, _ = algorithm.server_update(algorithm.init(params), cohort, KEY)
        assert tiny.distance(state.iterate, add(params, moved)) < 1e-6
    assert seen == {0, 1, 2}


def test_diminishing_step_is_inverse_square_root_of_the_round(params: Any) -> None:
    algorithm = FedAvg(**tiny.COMMON, local_lr_decay="inverse-sqrt")
    state = algorithm.init(params)
    for k in range(5):
        sent = algorithm.broadcast(state, KEY)
        assert float(sent.extra.local_lr) == pytest.approx(0.1 / np.sqrt(k + 1))
        state, _ = algorithm.server_update(state, cohort(zeros_like(params)), KEY)


def test_server_sgd_with_step_one_is_plain_averaging(params: Any) -> None:
    plain, sgd = FedAvg(), FedAvg(server_optimizer="sgd", server_lr=1.0)
    half = cohort(scale(params, -0.5))
    one = plain.server_update(plain.init(params), half, KEY)[0].params
    two = sgd.server_update(sgd.init(params), half, KEY)[0].params
    assert tiny.distance(one, two) < 1e-7


@pytest.mark.parametrize(
    "optimizer, transform",
    [
        ("adam", optax.adam(0.01)),
        ("yogi", optax.yogi(0.01)),
        ("adagrad", optax.adagrad(0.01)),
        ("momentum", optax.sgd(0.01, momentum=0.9)),
        (optax.rmsprop, optax.rmsprop(0.01)),
    ],
)
def test_server_optimizer_treats_the_mean_move_as_a_gradient(
    params: Any, optimizer: Any, transform: Any
) -> None:
    algorithm = FedAvg(server_optimizer=optimizer, server_lr=0.01)
    state = algorithm.init(params)
    moved, info = algorithm.server_update(state, cohort(scale(params, -0.5)), KEY)
    updates, _ = transform.update(scale(params, 0.5), transform.init(params), params)
    assert tiny.distance(moved.params, optax.apply_updates(params, updates)) < 1e-7
    assert info["update_norm"] > 0


@pytest.mark.parametrize(
    "options",
    [
        {"server_optimizer": "adm"},
        {"local_optimizer": "adm"},
        {"max_gradient_norm": 0.0},
        {"weights": "size"},
        {"local_lr_decay": "linear"},
        {"method": "second-order"},
        {"inner_steps": -1},
        {"delta": 0.0},
        {"server_lr": 0.0},
        {"batch_size": (4, 0, 4)},
        {"local_epochs": 0},
    ],
)
def test_wrong_options_name_themselves(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        PerFedAvg(**options)


def test_one_epoch_uses_every_example_once_in_a_new_order_each_time(task: Task) -> None:
    """Twelve examples in batches of five: three steps, the last one filled up from the first."""
    seen: list[np.ndarray] = []
    algorithm = FedAvg(**tiny.COMMON, local_epochs=2)
    count = int(task.count)

    def step(carry: Any, batches: list[Any], t: Any) -> tuple[Any, Any]:
        seen.append(np.asarray(batches[0][0]))
        return carry, jnp.zeros(())

    with jax.disable_jit():
        algorithm.train(step, jnp.zeros(()), task, KEY, [5])
    rows = np.concatenate(seen)
    mine = np.asarray(task.examples[0])[int(task.start) : int(task.start) + count]
    assert len(seen) == algorithm.gradients_per_update(count) == 2 * -(-count // 5)
    first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    for epoch in (first, second):
        assert sorted(map(bytes, epoch[:count])) == sorted(map(bytes, mine))
        np.testing.assert_array_equal(epoch[count:], epoch[: len(epoch) - count])
    assert not np.array_equal(first, second)


def test_a_full_batch_epoch_is_one_gradient_step(task: Task, params: Any) -> None:
    count = int(task.count)
    algorithm = FedAvg(local_lr=0.3, local_epochs=1, batch_size=count)
    sent = algorithm.broadcast(algorithm.init(params), KEY)
    reply, _, _ = jax.jit(algorithm.client_update)(sent, (), task, KEY)
    rows = task.start + jnp.arange(count)
    expected = scale(jax.grad(task.loss)(params, task.take(rows, [count])[0]), -0.3)
    assert tiny.distance(reply.update, expected) < 1e-6


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_a_local_optimizer_takes_the_local_steps(task: Task, params: Any, name: str) -> None:
    algorithm = FedAvg(**tiny.COMMON, local_optimizer=name)
    sent = algorithm.broadcast(algorithm.init(params), KEY)
    reply, _, _ = jax.jit(algorithm.client_update)(sent, (), task, KEY)
    transform = {"adam": optax.adam(0.1), "momentum": optax.sgd(0.1, momentum=0.9)}[name]
    w, state = params, transform.init(params)
    for t in range(algorithm.local_steps):
        batch = task.batch(jax.random.fold_in(KEY, t), 5)
        updates, state = transform.update(jax.grad(task.loss)(w, batch), state, w)
        w = optax.apply_updates(w, updates)
    assert tiny.distance(reply.update, subtract(w, params)) < 1e-5


def test_random_iterates_need_a_fixed_number_of_steps() -> None:
    with pytest.raises(ConfigError, match="local_epochs=2"):
        FedAvg(random_iterate=True, local_epochs=2)


def test_the_servers_step_follows_warm_up_and_decay(params: Any) -> None:
    """η_k = η · (k+1)/warm-up, then 1/√(k+1) or (1 + cos(πk/K))/2, but at least 1 % of η."""
    update = jax.tree.map(jnp.ones_like, params)

    def share(k: int, **options: Any) -> float:
        algorithm = FedAvg(**tiny.COMMON, **options)
        state = algorithm.init(params)._replace(round=jnp.int32(k))
        after, _ = algorithm.server_update(state, cohort(update), KEY)
        moved = jax.tree.leaves(subtract(after.params, params))
        return float(moved[0].ravel()[0])

    near = partial(pytest.approx, rel=1e-4)
    assert share(3) == near(1.0)
    assert share(3, server_lr=0.5) == near(0.5)
    assert share(3, server_lr_decay="inverse-sqrt") == near(0.5)
    cosine: dict[str, Any] = {"server_lr_decay": "cosine", "decay_rounds": 10}
    assert [share(k, **cosine) for k in (0, 5)] == [near(1.0), near(0.5)]
    assert share(1, server_lr_decay="cosine", decay_rounds=1) == near(0.01)
    assert share(10, **cosine) == share(1000, **cosine) == near(0.01)
    assert [share(k, warmup_rounds=4) for k in (0, 1, 3, 9)] == [near(x) for x in (0.25, 0.5, 1, 1)]
    start = float(jax.tree.leaves(params)[0].ravel()[0])
    assert share(3, weight_decay=0.1) == near(1 - 0.1 * start)
    assert share(5, weight_decay=0.1, **cosine) == near(0.5 * (1 - 0.1 * start))
    adam: dict[str, Any] = {"server_optimizer": "adam", "server_lr": 0.1}
    assert share(3, **adam, server_lr_decay="inverse-sqrt") == near(share(3, **adam) / 2)


@pytest.mark.parametrize(
    "options",
    [{"server_lr_decay": "cosine"}, {"decay_rounds": 5}, {"warmup_rounds": -1},
     {"weight_decay": 1.0}, {"weight_decay": -0.1},
     {"decay_rounds": 0, "server_lr_decay": "cosine"}, {"server_lr_decay": "linear"}],
)  # fmt: skip
def test_schedules_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        FedAvg(**options)
