"""Learned rates: frozen they are α, and they move towards what adaptation needs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart._experiments.training import train
from headstart._keys import adaptation_step
from headstart._simulation import Federation
from headstart._simulation.simulation import Simulation
from headstart.aggregation import Clip, with_aggregation
from headstart.algorithms import ARUBA, FedAvg, PerFedAvg, Task
from headstart.algorithms._contract import Cohort, ModelParts
from headstart.algorithms._rates import (
    Adapting,
    adapt,
    descend_log_rates,
    gradient_by_log_rates,
    init_log_rates,
    rates_of_step,
)
from headstart.errors import ConfigError
from headstart.models import Classification
from headstart.trees import zeros_like

KEY = jax.random.key(5)
LEARNED = ("per-array", "per-coordinate")
each_kind = pytest.mark.parametrize("rates", LEARNED)


@pytest.fixture(scope="module")
def task() -> Task:
    data = tiny.federation()
    federation = Federation.from_dataset(data, Classification(tiny.MODEL, data.schema))
    return federation.training_task(jnp.int32(3))


@pytest.fixture(scope="module")
def params() -> Any:
    w = tiny.MODEL.init(KEY, tiny.federation().schema)
    return jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(KEY, leaf.shape), w)


def reply_of(algorithm: Any, params: Any, task: Task) -> Any:
    return _reply_of(algorithm, algorithm.broadcast(algorithm.init(params), KEY), task)


@jax.jit
def _reply_of(algorithm: Any, sent: Any, task: Task) -> Any:
    return algorithm.client_update(sent, (), task, KEY)[0]


@jax.jit
def personalize(algorithm: Any, state: Any, task: Task, steps: Any) -> Any:
    return algorithm.personalize(state, (), task, KEY, steps)


@each_kind
@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("method", ["exact", "first-order", "hessian-free"])
def test_frozen_rates_are_per_fedavg(
    task: Task, params: Any, rates: Any, per_step: bool, method: str
) -> None:
    """Hessian-free takes its difference along r ∘ d instead of d: in float32 about 1e-4."""
    options: dict[str, Any] = {**tiny.COMMON, "inner_steps": 3, "method": method}
    near = 1e-3 if method == "hessian-free" else 1e-6
    fixed = PerFedAvg(**options)
    frozen = PerFedAvg(**options, rates=rates, rates_per_step=per_step, rates_lr=0.0)
    ours, theirs = reply_of(frozen, params, task), reply_of(fixed, params, task)
    assert tiny.distance(ours.update, theirs.update) <= near
    assert (
        tiny.distance(ours.parts["log_rates"].value, zeros_like(frozen.init(params).log_rates)) == 0
    )
    adapted = [personalize(a, a.init(params), task, 4) for a in (frozen, fixed)]
    assert tiny.distance(*adapted) <= 1e-6


@each_kind
def test_rates_that_are_learned_once_a_round_leave_the_local_steps_alone(
    task: Task, params: Any, rates: Any
) -> None:
    plain, learned = FedAvg(**tiny.COMMON), FedAvg(**tiny.COMMON, rates=rates)
    ours, theirs = reply_of(learned, params, task), reply_of(plain, params, task)
    assert tiny.identical(ours.update, theirs.update)
    assert any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(ours.parts["log_rates"].value))
    nothing = PerFedAvg(**tiny.COMMON, inner_steps=0, rates=rates)
    assert tiny.identical(reply_of(nothing, params, task), ours)


@pytest.mark.parametrize("method", ["exact", "first-order"])
def test_fedavg_follows_the_gradient_of_the_loss_after_adaptation(
    task: Task, params: Any, method: Any
) -> None:
    """The change of the log-rates from a gradient by jax.grad of the written-out adaptation."""
    algorithm = FedAvg(
        **tiny.COMMON, rates="per-array", rates_per_step=True, rates_steps=2,
        rates_method=method, rates_lr=0.5,
    )  # fmt: skip
    state = algorithm.init(params)
    sizes = [5] * (5 if method == "exact" else 3)
    outer, first, second, *hessian = task.batches(jax.random.fold_in(KEY, 2**31 - 1), sizes)
    inner = [first, second]

    def loss(log_rates: Any) -> Any:
        w = params
        for step, batch in enumerate(inner):
            d = jax.grad(task.loss)(w, batch)
            if method == "first-order":
                d = jax.lax.stop_gradient(d)
            rates = rates_of_step(log_rates, step)
            w = jax.tree.map(lambda u, r, v: u - r * v, w, rates, d)
        return task.loss(w, outer)

    change = reply_of(algorithm, params, task).parts["log_rates"].value
    expected = jax.tree.map(lambda d: -0.5 * d, jax.jit(jax.grad(loss))(state.log_rates))
    if method == "first-order":
        assert tiny.distance(change, expected) <= 1e-6
    else:  # independent batches for the Hessian: equal only in the last step
        last = jax.tree.map(lambda a: a[1], (change, expected))
        assert tiny.distance(*last) <= 1e-6
        assert len(hessian) == 2


def test_the_server_adds_the_mean_change_and_later_steps_use_the_last_rates(params: Any) -> None:
    algorithm = FedAvg(**tiny.COMMON, rates="per-array", rates_per_step=True, rates_steps=2)
    state = algorithm.init(params)
    change = jax.tree.map(lambda rho: jnp.asarray([0.1, 0.2], rho.dtype), state.log_rates)
    cohort = Cohort(zeros_like(params), {"log_rates": change}, jnp.int32(1), 1, 1)
    after, _ = algorithm.server_update(state, cohort, KEY)
    for step, e_folds in ((0, 0.1), (1, 0.2), (5, 0.2)):
        for rate in jax.tree.leaves(rates_of_step(after.log_rates, step)):
            np.testing.assert_allclose(rate, 0.2 * np.exp(e_folds), rtol=1e-5)


def test_shared_rates_get_the_sum_over_steps_and_huge_gradients_are_cut() -> None:
    shared, separate = {"w": jnp.zeros(1)}, {"w": jnp.zeros(3)}
    by_step = [{"w": jnp.asarray(x)} for x in (1.0, 2.0, 30.0)]
    assert gradient_by_log_rates(shared, by_step)["w"].tolist() == [33.0]
    assert gradient_by_log_rates(separate, by_step)["w"].tolist() == [1.0, 2.0, 30.0]
    gradients = [{"w": jnp.asarray(x)} for x in (0.5, -30.0, 30.0)]
    moved = descend_log_rates(separate, gradients, 0.1)
    np.testing.assert_allclose(moved["w"], [-0.05, 0.1, -0.1], rtol=1e-6)


def test_an_adaptation_step_moves_each_array_by_its_rate() -> None:
    params = {"a": jnp.ones(2), "b": jnp.ones(())}
    log_rates = {"a": jnp.log(jnp.asarray([0.1, 0.2])), "b": jnp.log(jnp.asarray([1.0, 2.0]))}
    one = adapt(Adapting(params, log_rates, jnp.int32(0)), {"a": jnp.ones(2), "b": jnp.ones(())})
    np.testing.assert_allclose(one.params["a"], 0.9, rtol=1e-6)
    np.testing.assert_allclose(one.params["b"], 0.0, atol=1e-6)
    two = adapt(one, {"a": jnp.ones(2), "b": jnp.ones(())})
    np.testing.assert_allclose(two.params["a"], 0.7, rtol=1e-6)
    np.testing.assert_allclose(two.params["b"], -2.0, rtol=1e-6)
    assert int(two.step) == 2


@pytest.mark.parametrize("per_step, steps", [(False, 1), (True, 3)])
def test_steps_share_their_rates_unless_told_otherwise(
    params: Any, per_step: bool, steps: int
) -> None:
    algorithm = FedAvg(**tiny.COMMON, rates="per-array", rates_per_step=per_step)
    state = algorithm.init(params)
    assert {leaf.shape for leaf in jax.tree.leaves(state.log_rates)} == {(steps,)}
    assert len(algorithm.adaptation_rates(state)) == steps


def test_every_adaptation_step_takes_its_own_rates(task: Task, params: Any) -> None:
    """Rates 0.1, 0.2, 0.4 for both arrays; the fourth step takes those of the third."""
    algorithm = FedAvg(
        **{**tiny.COMMON, "batch_size": (4, 5, 6)}, rates="per-array", rates_per_step=True
    )
    log_rates = jax.tree.map(lambda _: jnp.log(jnp.asarray([0.1, 0.2, 0.4])), params)
    state, w = algorithm.init(params)._replace(log_rates=log_rates), params
    gradient = jax.jit(lambda w, t: jax.grad(task.loss)(w, task.batch(adaptation_step(KEY, t), 4)))
    for t, rate in enumerate((0.1, 0.2, 0.4, 0.4)):
        w = jax.tree.map(lambda u, v, r=rate: u - r * v, w, gradient(w, t))
    assert tiny.distance(personalize(algorithm, state, task, 4), w) < 1e-6


@each_kind
@pytest.mark.parametrize("algorithm", [FedAvg, PerFedAvg])
def test_rates_of_what_is_not_adapted_stay(
    task: Task, params: Any, algorithm: Any, rates: Any
) -> None:
    parts = ModelParts(jax.tree.map(lambda leaf: None, params), (True, False))
    part = Task(task.objective, task.examples, task.start, task.count, task.most, parts)
    change = reply_of(algorithm(**tiny.COMMON, rates=rates), params, part).parts["log_rates"].value
    assert change.weight.any() and not change.bias.any()


@each_kind
def test_log_rates_begin_with_alpha(rates: str) -> None:
    start = init_log_rates({"w": jnp.zeros((2, 3))}, rates, 0.3, 2)["w"]
    assert start.shape == ((2,) if rates == "per-array" else (2, 2, 3))
    np.testing.assert_allclose(jnp.exp(start), 0.3, rtol=1e-6)


def test_rates_find_the_array_that_clients_must_move() -> None:
    """Clients f(w) = ½‖a − a_i‖² + ½‖b‖² with own a_i and b* = 0 for all.

    From a = 0, b = 0 adaptation should set a to a_i, rate 1, and b has no gradient. With noisy
    gradients of b, its rate should fall. Both follow from ∂F/∂log r, computed here directly.
    """
    from headstart.meta import MetaBatches, meta_value_and_gradients

    def loss(w: Any, batch: Any) -> Any:
        target, noise = batch
        pulled = jnp.sum((w["a"] - target) ** 2) / 2 + jnp.sum((w["b"] - noise) ** 2) / 2
        return pulled

    rng = np.random.default_rng(0)
    log_rates = {"a": jnp.full(1, jnp.log(0.3)), "b": jnp.full(1, jnp.log(0.3))}
    params = {"a": jnp.zeros(2), "b": jnp.zeros(2)}
    gradient = jax.jit(
        lambda rho, batches: meta_value_and_gradients(
            loss, params, batches, rates=[rates_of_step(rho, 0)]
        )[2]
    )
    for _ in range(1000):
        target = jnp.asarray(rng.normal(size=2), jnp.float32)
        draw = lambda: (target, jnp.asarray(rng.normal(size=2), jnp.float32))  # noqa: B023, E731
        batches = MetaBatches([draw()], draw(), [draw()])
        log_rates = descend_log_rates(log_rates, gradient(log_rates, batches), 0.05)
    assert 0.9 < float(jnp.exp(log_rates["a"][0])) < 1.1
    assert float(jnp.exp(log_rates["b"][0])) < 0.1


@pytest.mark.parametrize("algorithm", [
    FedAvg(**tiny.COMMON, rates="per-array", rates_method="first-order"),
    PerFedAvg(**tiny.COMMON, inner_steps=2, rates="per-coordinate", rates_per_step=True),
])  # fmt: skip
def test_a_run_learns_positive_rates_and_resumes_to_the_bit(algorithm: Any) -> None:
    data = tiny.federation()
    simulation = Simulation(data, tiny.MODEL, algorithm, participation=0.6, seed=1)
    whole = simulation.advance(simulation.start(), 6)
    half = simulation.advance(simulation.start(), 3)
    again = Simulation(data, tiny.MODEL, algorithm, participation=0.6, seed=1).advance(half, 3)
    assert tiny.identical(whole.state, again.state)
    start = simulation.start().state
    assert not tiny.identical(start.log_rates, whole.state.log_rates)
    rates = jax.tree.leaves(rates_of_step(whole.state.log_rates, 0))
    assert all(jnp.all(rate > 0) for rate in rates)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (FedAvg, {"rates": "per-layer"}, "rates='per-layer' is not known; use one of fixed"),
    (FedAvg, {"rates": "per-array", "rates_lr": -1.0}, "rates_lr=-1.0"),
    (FedAvg, {"rates": "per-array", "rates_lr": float("inf")}, "rates_lr=inf"),
    (FedAvg, {"rates": "per-array", "rates_steps": 0}, "rates_steps=0"),
    (FedAvg, {"rates": "per-array", "rates_method": "magic"}, "rates_method='magic'"),
    (FedAvg, {"rates": "per-array", "random_iterate": True}, "random_iterate"),
    (PerFedAvg, {"inner_steps": 2, "rates": "per-array", "rates_steps": 3}, "rates_steps=3"),
    (PerFedAvg, {"earlier_losses": -0.1}, "earlier_losses=-0.1"),
]


@pytest.mark.parametrize("kind, options, words", REFUSED)
def test_options_that_no_run_could_use_are_refused(
    kind: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        kind(**options)


def test_the_least_that_a_run_could_use_is_accepted() -> None:
    FedAvg(rates="per-array", rates_steps=1, rates_lr=0.0)
    PerFedAvg(rates="per-array", inner_steps=0, rates_steps=2)
    PerFedAvg(rates="per-array", inner_steps=2, rates_steps=2)


@pytest.mark.parametrize("aggregated", [False, True])
def test_the_rates_of_every_step_are_told_by_name(aggregated: bool) -> None:
    """Also through a wrapper; without learned rates there are none."""
    data = tiny.federation()
    learned: Any = FedAvg(**tiny.COMMON, rates="per-coordinate", rates_per_step=True)
    algorithm = with_aggregation(learned, [Clip(norm=10.0)], None) if aggregated else learned
    run = train(data, tiny.MODEL, algorithm, rounds=3)
    rates = run.summary.rates
    assert rates is not None and list(rates) == ["weight", "bias"]
    state = run.state.inner if aggregated else run.state
    expected = np.exp(np.mean(np.asarray(state.log_rates.weight), axis=(1, 2)))
    np.testing.assert_allclose(rates["weight"], expected, rtol=1e-5)
    assert train(data, tiny.MODEL, FedAvg(**tiny.COMMON), rounds=1).summary.rates is None
    aruba = train(data, tiny.MODEL, ARUBA(**tiny.NO_ALPHA), rounds=1).summary.rates
    assert aruba is not None and len(aruba["bias"]) == 1
