"""Estimated constants against problems whose constants are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart import heterogeneity
from headstart.errors import ConfigError
from headstart.models import Classification, mlp
from headstart.theory._estimation import (
    Sample,
    compute_mean_loss,
    estimate_at_points,
    estimate_constants,
    estimate_sensitivity,
    sample_clients,
)

D = 5


def quadratic(seed: int = 0, clients: int = 4, examples: int = 12) -> tuple[Any, Sample]:
    """l(w; A, b) = ½ wᵀAw − bᵀw with an A and b of its own for every example."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(clients, examples, D, D))
    a = (root + root.swapaxes(-1, -2)) / 2 + rng.normal(size=(clients, 1, 1, 1)) * np.eye(D)
    b = rng.normal(size=(clients, examples, D)) + rng.normal(size=(clients, 1, D))
    weights = np.full((clients, examples), 1 / examples)
    sample = Sample((jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)),
                    jnp.asarray(weights, jnp.float32))  # fmt: skip
    return losses, sample


def losses(w: jax.Array, batch: Any) -> jax.Array:
    a, b = batch
    return 0.5 * jnp.einsum("i,nij,j->n", w, a, w) - b @ w


def by_hand(sample: Sample, points: list[np.ndarray]) -> dict[str, Any]:
    a, b = (np.asarray(part, float) for part in sample.batch)
    spectral = lambda m: np.linalg.norm(m, 2)  # noqa: E731
    mean_a, mean_b = a.mean(axis=1), b.mean(axis=1)
    found: dict[str, Any] = {"rho": 0.0}
    gradients = [[ai @ w - bi for ai, bi in zip(mean_a, mean_b, strict=True)] for w in points]
    found["B"] = max(np.linalg.norm(g) for point in gradients for g in point)
    found["L"] = max(map(spectral, mean_a))
    errors = [
        [
            [np.linalg.norm((a[i, j] - mean_a[i]) @ w - (b[i, j] - mean_b[i])) for j in range(12)]
            for i in range(4)
        ]
        for w in points
    ]
    hessian = [[spectral(a[i, j] - mean_a[i]) for j in range(12)] for i in range(4)]
    for name, table in (("G", np.array(errors)), ("H", np.array([hessian]))):
        found[f"sigma_{name}"] = np.sqrt(np.max(np.mean(table**2, axis=-1)))
        found[f"kappa_{name}"] = np.max(np.mean(table**4, axis=-1))
    found["gamma_G"] = np.sqrt(
        max(np.mean([np.sum((g - np.mean(p, axis=0)) ** 2) for g in p]) for p in gradients)
    )
    found["gamma_H"] = np.sqrt(np.mean([spectral(m - mean_a.mean(axis=0)) ** 2 for m in mean_a]))
    return found


def test_on_quadratics_all_nine_constants_are_found() -> None:
    loss, sample = quadratic()
    points = [np.zeros(D), np.linspace(-1, 1, D)]
    models = [jnp.asarray(w, jnp.float32) for w in points]
    found = estimate_at_points(loss, sample, models, inner_lr=0.1, iterations=300, probes=12)
    expected = by_hand(sample, points)
    for name, value in expected.items():
        ours = getattr(found.constants, name)
        assert ours == pytest.approx(value, rel=2e-3, abs=1e-3), name
        assert found.ranges[name].low <= ours <= found.ranges[name].high


def test_fewer_iterations_and_probes_only_ever_find_less() -> None:
    loss, sample = quadratic()
    expected = by_hand(sample, [np.zeros(D)])
    for iterations in (1, 3, 10):
        found = estimate_at_points(
            loss, sample, [jnp.zeros(D)], inner_lr=0.1, iterations=iterations
        )
        rough = found.constants
        assert expected["L"] * 1.00001 >= rough.L
        assert rough.gamma_H <= expected["gamma_H"] * 1.00001


def test_the_change_of_the_hessian_is_found_on_a_cubic() -> None:
    """l = t·w³/6 in one dimension: ∇²l = t·w, so that ρ = max |t|."""
    t = jnp.array([[1.0, 3.0], [-4.0, -4.0]])
    cubic = lambda w, batch: batch * w[0] ** 3 / 6  # noqa: E731
    sample = Sample(t, jnp.full((2, 2), 0.5))
    found = estimate_at_points(cubic, sample, [jnp.array([1.0])], inner_lr=0.1).constants
    assert found.rho == pytest.approx(4.0, rel=1e-3)
    assert pytest.approx(4.0, rel=1e-5) == found.L
    assert found.sigma_H == pytest.approx(1.0, rel=1e-5)


def test_a_sample_holds_training_examples_of_known_clients_with_weights() -> None:
    data = tiny.federation()
    sample = sample_clients(data, clients=100, examples=9, seed=3)
    assert sample.weights.shape == (data.known_clients, 9)
    np.testing.assert_allclose(np.sum(sample.weights, axis=1), 1, rtol=1e-6)
    for place in range(data.known_clients):
        start, count = int(data.offsets[place]), int(data.train_counts[place])
        own = data.x[start : start + count]
        used = np.asarray(sample.batch[0][place])[np.asarray(sample.weights[place]) > 0]
        assert len(used) == min(9, count)
        assert all((own == row).all(axis=1).any() for row in used)


def test_a_networks_estimate_says_what_it_is() -> None:
    data = tiny.federation()
    model = mlp([6])
    w = model.init(jax.random.key(0), data.schema)
    seen: list[tuple[int, int]] = []
    found = estimate_constants(
        data, model, [w, w], inner_lr=0.1, examples=8, progress=lambda *at: seen.append(at)
    )
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert "lower estimates" in found.describe() and "2 points" in found.describe()
    assert found.gradients > 0 and found.constants.L > 0 and found.constants.rho > 0


def test_no_point_and_impossible_numbers_are_refused() -> None:
    loss, sample = quadratic()
    with pytest.raises(ConfigError, match="points is empty"):
        estimate_at_points(loss, sample, [], inner_lr=0.1)
    with pytest.raises(ConfigError, match="iterations=0"):
        estimate_at_points(loss, sample, [jnp.zeros(D)], inner_lr=0.1, iterations=0)
    with pytest.raises(ConfigError, match="examples=1"):
        sample_clients(tiny.federation(), clients=3, examples=1)


def test_the_mean_loss_is_the_mean_over_clients_of_their_means() -> None:
    data = tiny.federation()
    w = tiny.MODEL.init(jax.random.key(0), data.schema)
    objective = Classification(tiny.MODEL, data.schema)
    each = []
    for client in range(data.known_clients):
        start, count = int(data.offsets[client]), int(data.train_counts[client])
        rows = slice(start, start + count)
        each.append(
            float(objective.loss(w, (jnp.asarray(data.x[rows]), jnp.asarray(data.y[rows]))))
        )
    assert compute_mean_loss(data, tiny.MODEL, w, examples=1000) == pytest.approx(
        np.mean(each), rel=1e-5
    )


def test_the_part_of_gamma_that_few_examples_explain() -> None:
    """mean_i σ_i²/D_i at the point where γ_G is largest."""
    each, sample = quadratic()
    points = [np.zeros(D), np.full(D, 2.0)]
    found = estimate_at_points(
        each, sample, [jnp.asarray(p, jnp.float32) for p in points], inner_lr=0.1
    )
    a, b = (np.asarray(part, float) for part in sample.batch)
    gradients = [np.einsum("cnij,j->cni", a, w) - b for w in points]
    spread = [np.mean(np.sum((g.mean(1) - g.mean((0, 1))) ** 2, -1)) for g in gradients]
    g = gradients[int(np.argmax(spread))]
    noise = np.mean(np.sum((g - g.mean(1, keepdims=True)) ** 2, -1), axis=1) / 12
    assert found.chance_G == pytest.approx(np.sqrt(np.mean(noise)), rel=1e-4)


def test_sensitivity_to_the_example_against_all_derivatives_written_out() -> None:
    data, model = tiny.federation(), tiny.MODEL
    w = model.init(jax.random.key(3), data.schema)
    found = estimate_sensitivity(data, model, [w], pairs=20, iterations=60, seed=5)
    flat, back = jax.flatten_util.ravel_pytree(w)
    objective = Classification(model, data.schema)
    rng = np.random.default_rng(5)
    rows = [heterogeneity.draw_training_rows(data, rng, 20) for _ in range(2)]
    z = [heterogeneity.as_points(data, some, seed=5) for some in rows]
    slopes, curvatures = [], []
    for i, j, apart in zip(*rows, np.linalg.norm(z[0] - z[1], axis=1), strict=True):
        if i == j:
            continue

        def loss(v: jax.Array, row: int) -> jax.Array:
            batch = (jnp.asarray(data.x[row : row + 1]), jnp.asarray(data.y[row : row + 1]))
            return objective.losses(back(v), batch)[0]

        g = jax.grad(loss)(flat, i) - jax.grad(loss)(flat, j)
        h = jax.hessian(loss)(flat, i) - jax.hessian(loss)(flat, j)
        slopes.append(float(jnp.linalg.norm(g)) / apart)
        curvatures.append(float(np.linalg.norm(np.asarray(h), 2)) / apart)
    assert found.L_z == pytest.approx(max(slopes), rel=1e-4)
    assert found.rho_z == pytest.approx(max(curvatures), rel=1e-2)
