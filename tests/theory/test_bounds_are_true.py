"""Monte-Carlo estimates of what the lemmas bound, on problems whose constants are known.

Every test also says how loose a bound is: the ratios are in docs/theory.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.theory import bounds
from headstart.theory.bounds import one_step
from theory import measurements
from theory.measurements import DELTA, METHODS, constants, draw, exact_meta_gradient
from theory.problems import CLIENTS, EXAMPLES, PROBLEMS, Problem

DRAWS = 4000
each = pytest.mark.parametrize("name", PROBLEMS)


@each
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nu", [1, 2])
def test_bias_and_variance_stay_below_their_bounds(name: str, method: Any, nu: int) -> None:
    problem, c = PROBLEMS[name], constants(name)
    alpha = 0.5 / c.L
    for size in (3,):
        arguments: dict[str, Any] = {
            "method": method, "inner_lr": alpha, "inner_steps": nu, "batch_sizes": size,
            "delta": DELTA,
        }  # fmt: skip
        bias_bound = bounds.sharpest.gradient_bias(c, **arguments)
        variance_bound = bounds.sharpest.gradient_variance(c, **arguments)
        for number, start in enumerate(problem.starts):
            w = jnp.array(start)
            client = number % CLIENTS
            key = jax.random.key(number)
            found = draw(
                name, w, key, alpha, method=method, nu=nu, size=size, client=client, draws=DRAWS
            )
            truth = exact_meta_gradient(problem, client, w, alpha, nu)
            errors = np.asarray(found, float) - np.asarray(truth, float)
            bias = float(np.linalg.norm(errors.mean(axis=0)))
            doubt = 3 * float(np.linalg.norm(errors.std(axis=0))) / np.sqrt(DRAWS)
            assert bias - doubt <= bias_bound
            assert float(np.mean(np.sum(errors**2, axis=1))) * (1 - 3 / np.sqrt(DRAWS)) <= (
                variance_bound
            )


@each
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_meta_gradients_of_clients_are_as_close_as_promised(name: str, nu: int) -> None:
    problem, c = PROBLEMS[name], constants(name)
    alpha = 0.5 / c.L
    bound = bounds.sharpest.meta_similarity(c, inner_lr=alpha, inner_steps=nu)
    for start in problem.starts:
        w = jnp.array(start)
        each_client = np.array(
            [exact_meta_gradient(problem, i, w, alpha, nu) for i in range(CLIENTS)], float
        )
        spread = np.mean(np.sum((each_client - each_client.mean(axis=0)) ** 2, axis=1))
        assert spread <= bound


@each
@pytest.mark.parametrize("nu", [1, 2])
def test_meta_gradients_change_no_faster_than_promised(name: str, nu: int) -> None:
    problem, c = PROBLEMS[name], constants(name)
    alpha = 0.5 / c.L
    bound = bounds.sharpest.smoothness(c, inner_lr=alpha, inner_steps=nu)
    hessian = jax.jit(jax.jacfwd(partial(_gradient_of_client_0, problem, alpha, nu)))
    for start in problem.starts:
        assert float(jnp.linalg.norm(hessian(jnp.array(start)), 2)) <= bound


def _gradient_of_client_0(problem: Problem, alpha: float, nu: int, w: jax.Array) -> Any:
    return exact_meta_gradient(problem, 0, w, alpha, nu)


@each
def test_the_adapted_model_is_as_close_as_promised(name: str) -> None:
    problem, c = PROBLEMS[name], constants(name)
    alpha, nu, size = 0.5 / c.L, 3, 3
    h = bounds.adapted_model_error(c, inner_lr=alpha, batch_sizes=[size] * nu)
    whole, start = problem.client(1), jnp.array(problem.starts[0])
    gradient = jax.grad(problem.loss)

    @jax.jit
    def errors(key: Any) -> jax.Array:
        w, u, found = start, start, []
        for k in jax.random.split(key, nu):
            rows = jax.random.randint(k, (size,), 0, EXAMPLES)
            batch = jax.tree.map(lambda leaf, r=rows: leaf[r], whole)
            w, u = w - alpha * gradient(w, whole), u - alpha * gradient(u, batch)
            found.append(jnp.linalg.norm(w - u))
        return jnp.stack(found)

    measured = np.asarray(jax.vmap(errors)(jax.random.split(jax.random.key(0), DRAWS)), float)
    for power, promised in ((1, h.mean), (2, h.square), (4, h.fourth)):
        for step in range(nu):
            assert np.mean(measured[:, step] ** power) <= promised[step + 1]


@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_run_stays_below_the_theorem(local_steps: int) -> None:
    """Per-FedAvg on logistic regression, all clients; the mean of ‖∇F(w̄)‖² over all iterates."""
    name, nu, size, rounds = "logistic", 1, 4, 60
    problem, c = PROBLEMS[name], constants("logistic")
    alpha = 0.5 / c.L
    step: dict[str, Any] = {"inner_lr": alpha, "inner_steps": nu}
    beta = 1 / (10 * local_steps * one_step.smoothness(c, **step))

    @jax.jit
    def F(w: jax.Array) -> jax.Array:
        return jnp.mean(jnp.stack([_meta_loss(problem, i, alpha, w) for i in range(CLIENTS)]))

    gradient = jax.jit(jax.grad(F))
    w = jnp.array([2.0, -2.0])
    first, seen = float(F(w)), []
    for k in range(rounds):
        models = [w] * CLIENTS
        for t in range(local_steps):
            mean = jnp.mean(jnp.stack(models), axis=0)
            seen.append(float(jnp.sum(gradient(mean) ** 2)))
            for i in range(CLIENTS):
                key = jax.random.fold_in(jax.random.key(k), 100 * t + i)
                d = draw(
                    name, models[i], key, alpha, method="exact", nu=nu, size=size, client=i, draws=1
                )[0]
                models[i] = models[i] - beta * d
        w = jnp.mean(jnp.stack(models), axis=0)
    promised = bounds.one_step.stationarity(
        c, local_lr=beta, local_steps=local_steps, rounds=rounds, participation=1.0,
        clients=CLIENTS, initial_gap=first, batch_sizes=size, **step,
    )  # fmt: skip
    assert np.mean(seen) <= promised.total
    assert np.mean(seen[-local_steps:]) < np.mean(seen[:local_steps])  # and it does converge


def _meta_loss(problem: Problem, i: int, alpha: float, w: jax.Array) -> jax.Array:
    whole = problem.client(i)
    return problem.loss(w - alpha * jax.grad(problem.loss)(w, whole), whole)


def test_the_error_of_hessian_free_falls_with_delta() -> None:
    """Lemma H.2 promises ∝ δ; the difference is central, so it is ∝ δ² where f is smooth."""
    errors = measurements.hessian_free_errors(measurements.DELTAS)
    assert measurements.slope(measurements.DELTAS, errors) == pytest.approx(2.0, abs=0.05)


@pytest.mark.slow
def test_the_bias_falls_with_the_batch_size() -> None:
    """Lemma 4.3 promises ∝ 1/√D; it is ∝ 1/D, since only curvature makes noise a bias."""
    sizes = [1, 2, 4]
    biases = measurements.biases(sizes, draws=400_000)
    assert measurements.slope([float(s) for s in sizes], biases) == pytest.approx(-1.0, abs=0.15)


def test_more_rounds_bring_a_run_closer_and_all_of_it_stays_below_the_theorem() -> None:
    for local_steps in measurements.LOCAL_STEPS:
        seen, promised = measurements.stationarity(local_steps, [10, 100, 1000])
        assert all(s < p for s, p in zip(seen, promised, strict=True))
        assert seen[2] < 0.5 * seen[0] and promised[2] < promised[0]
