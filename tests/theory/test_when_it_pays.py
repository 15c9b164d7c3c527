"""Closed forms of when meta-learning pays, against the library's own algorithms and Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.algorithms import FedAvg, PerFedAvg, Task
from headstart.algorithms._contract import Cohort
from headstart.errors import ConfigError
from headstart.meta import MetaBatches, meta_value_and_gradients
from headstart.theory.when_it_pays import (
    QuadraticClients,
    best_rate,
    best_rates,
    excess_loss,
    fedavg_elasticity,
    fedavg_weights,
    largest_useful_examples,
    matching_local_steps,
    meta_elasticity,
    meta_weights,
    one_rate_contraction,
)

KEY = jax.random.key(3)
ALPHA, NU = 0.25, 3


def make_clients(clients: int = 4, d: int = 3, *, spread: float = 1.0) -> QuadraticClients:
    """Clients with curvatures between about 0.3 and 2; for a spread of 0 all are the same."""
    rng = np.random.default_rng(7)
    roots = np.linalg.qr(rng.normal(size=(clients, d, d)))[0]
    values = np.exp(rng.uniform(-1, 0.7, size=(clients, d)))
    own = np.einsum("nij,nj,nkj->nik", roots, values, roots)
    shared = np.broadcast_to(own.mean(axis=0), own.shape)
    optima = 3 * rng.normal(size=(clients, d))
    return QuadraticClients(shared + spread * (own - shared), optima)


class Quadratic(eqx.Module):
    """The loss of clients with one example each, (A, c)."""

    first_layer: None = None

    def loss(self, params: Any, batch: Any) -> jax.Array:
        a, c = batch
        u = params["w"][None, :] - c
        return 0.5 * jnp.mean(jnp.einsum("ni,nij,nj->n", u, a, u))


def train(algorithm: Any, clients: QuadraticClients, rounds: int = 4000) -> np.ndarray:
    """Run the algorithm's own rounds with all clients until nothing moves."""
    examples = (jnp.asarray(clients.curvatures), jnp.asarray(clients.optima))
    objective: Any = Quadratic()
    count = len(clients.optima)

    def reply(sent: Any, client: jax.Array) -> Any:
        task = Task(objective, examples, client, jnp.int32(1), 1)
        return algorithm.client_update(sent, (), task, KEY)[0].update

    def one_round(state: Any, _: Any) -> tuple[Any, None]:
        sent = algorithm.broadcast(state, KEY)
        updates = jax.vmap(lambda client: reply(sent, client))(jnp.arange(count))
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), updates)
        cohort = Cohort(mean, {}, jnp.int32(count), count, count)
        return algorithm.server_update(state, cohort, KEY)[0], None

    state = algorithm.init({"w": jnp.zeros(clients.optima.shape[1])})
    state = jax.jit(lambda s: jax.lax.scan(one_round, s, None, length=rounds)[0])(state)
    return np.asarray(state.params["w"])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("local_steps", [1, 5, 20])
def test_fedavg_ends_at_its_weighted_mean(local_steps: int) -> None:
    clients = make_clients()
    algorithm = FedAvg(
        local_steps=local_steps, local_lr=0.2, batch_size=1, max_gradient_norm=float("inf")
    )
    weights = fedavg_weights(clients.curvatures, local_lr=0.2, local_steps=local_steps)
    np.testing.assert_allclose(train(algorithm, clients), clients.start(weights), atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method", ["exact", "first-order"])
@pytest.mark.parametrize("earlier", [0.0, 0.3])
@pytest.mark.parametrize("local_steps", [1, 4])
def test_per_fedavg_ends_at_its_weighted_mean(
    method: Any, earlier: float, local_steps: int
) -> None:
    clients = make_clients()
    algorithm = PerFedAvg(
        method=method, inner_steps=NU, inner_lr=ALPHA, local_lr=0.3, local_steps=local_steps,
        earlier_losses=earlier, batch_size=1, max_gradient_norm=float("inf"),
    )  # fmt: skip
    directions = meta_weights(
        clients.curvatures, inner_lr=ALPHA, inner_steps=NU, method=method, earlier_losses=earlier
    )
    weights = fedavg_weights(directions, local_lr=0.3, local_steps=local_steps)
    np.testing.assert_allclose(train(algorithm, clients), clients.start(weights), atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method", ["exact", "first-order", "hessian-free"])
@pytest.mark.parametrize("earlier", [0.0, 0.7])
@pytest.mark.parametrize("rates", [0.25, (0.1, 0.3, 0.2)])
def test_weights_and_losses_are_those_of_the_meta_gradient(
    method: Any, earlier: float, rates: Any
) -> None:
    """Hessian-free differs by rounding, about 1e-16 / δ."""
    clients = make_clients()
    w = jnp.array([0.5, -1.0, 2.0])
    weights = meta_weights(
        clients.curvatures, inner_lr=rates, inner_steps=NU, method=method, earlier_losses=earlier
    )
    objective, losses = Quadratic(), []
    for a, c, weight in zip(clients.curvatures, clients.optima, weights, strict=True):
        batch = (jnp.asarray(a)[None], jnp.asarray(c)[None])
        tree = {"w": jnp.asarray(rates, float)}
        value, d, _ = meta_value_and_gradients(
            objective.loss, {"w": w}, MetaBatches([batch] * NU, batch, [batch] * NU),
            rates=[tree] * NU, method=method, earlier=earlier,
        )  # fmt: skip
        losses.append(float(value))
        np.testing.assert_allclose(d["w"], weight @ (np.asarray(w) - c), rtol=1e-9)
    found = clients.mean_loss(np.asarray(w), inner_lr=rates, inner_steps=NU)
    assert found == pytest.approx(np.mean(losses), rel=1e-12)


def starts(clients: QuadraticClients) -> dict[str, np.ndarray]:
    a = clients.curvatures
    return {
        "fedavg": clients.start(a),
        "fedavg-20": clients.start(fedavg_weights(a, local_lr=0.3, local_steps=20)),
        "first-order": clients.start(
            meta_weights(a, inner_lr=ALPHA, inner_steps=NU, method="first-order")
        ),
        "exact": clients.start(meta_weights(a, inner_lr=ALPHA, inner_steps=NU)),
    }


def losses_after(clients: QuadraticClients) -> dict[str, float]:
    return {
        name: clients.mean_loss(start, inner_lr=ALPHA, inner_steps=NU)
        for name, start in starts(clients).items()
    }


def test_with_equal_curvature_every_method_ends_at_the_mean_optimum() -> None:
    clients = make_clients(spread=0.0)
    for start in starts(clients).values():
        np.testing.assert_allclose(start, clients.optima.mean(axis=0), atol=1e-12)


def test_the_exact_start_is_the_best_and_its_gain_grows_with_the_spread_of_curvature() -> None:
    gains = []
    for spread in (0.0, 0.25, 0.5, 0.75, 1.0):
        found = losses_after(make_clients(spread=spread))
        assert found["exact"] <= min(found.values()) + 1e-12
        gains.append(found["fedavg"] - found["exact"])
    assert np.all(np.diff(gains) > 0)


def test_several_local_steps_and_first_order_lie_between_fedavg_and_exact() -> None:
    found = losses_after(make_clients())
    assert found["exact"] < found["first-order"] < found["fedavg"]
    assert found["exact"] < found["fedavg-20"] < found["fedavg"]


def small_spread(scale: float) -> tuple[QuadraticClients, float]:
    """One-dimensional clients around curvature 1, and Cov(s, c)."""
    s, c = np.array([-1.0, -0.5, 0.3, 1.2]), np.array([1.0, -2.0, 0.5, 3.0])
    covariance = float(np.mean(s * c) - s.mean() * c.mean())
    return QuadraticClients((1 + scale * s)[:, None, None], c[:, None]), covariance


@pytest.mark.parametrize("name", ["fedavg", "first-order", "exact"])
def test_elasticities_give_the_start_to_first_order(name: str) -> None:
    """The error of w* falls as ε²: a tenth of the spread leaves a hundredth."""
    errors = []
    for scale in (1e-2, 1e-3):
        clients, covariance = small_spread(scale)
        if name == "fedavg":
            weights = fedavg_weights(clients.curvatures, local_lr=0.1, local_steps=7)
            e = fedavg_elasticity(1.0, local_lr=0.1, local_steps=7)
        else:
            options: dict[str, Any] = {"inner_lr": ALPHA, "inner_steps": NU, "method": name}
            weights = meta_weights(clients.curvatures, **options)
            e = meta_elasticity(1.0, **options)
        shift = clients.start(weights)[0] - clients.optima.mean()
        errors.append(abs(shift - e * scale * covariance))
    assert errors[1] / errors[0] == pytest.approx(0.01, rel=0.1)


def test_the_gain_is_the_square_of_the_difference_in_elasticity() -> None:
    """½ V(a) (1 − e*)² ε² Cov², with V(1) = (1 − α)^{2ν}; relative error O(ε)."""
    scale = 1e-4
    clients, covariance = small_spread(scale)
    found = losses_after(clients)
    e = meta_elasticity(1.0, inner_lr=ALPHA, inner_steps=NU)
    value = (1 - ALPHA) ** (2 * NU)
    expected = 0.5 * value * ((1 - e) * scale * covariance) ** 2
    assert found["fedavg"] - found["exact"] == pytest.approx(expected, rel=1e-3)


def test_fedavg_forgets_curvature_with_many_local_steps() -> None:
    found = [fedavg_elasticity(1.0, local_lr=0.1, local_steps=n) for n in (1, 2, 5, 20, 100)]
    assert found[0] == pytest.approx(1) and np.all(np.diff(found) < 0) and found[-1] < 0.003
    clients = make_clients()
    many = clients.start(fedavg_weights(clients.curvatures, local_lr=0.3, local_steps=400))
    np.testing.assert_allclose(many, clients.optima.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("method", ["exact", "first-order"])
@pytest.mark.parametrize("earlier", [0.0, 0.5])
def test_matching_local_steps_leave_an_error_of_third_order(method: Any, earlier: float) -> None:
    """Weights per unit of curvature agree up to O((αA)²): halving α leaves a quarter.

    The number of local steps is the same for every α, because β is a fixed part of it.
    """
    errors = []
    a = make_clients().curvatures
    for alpha in (0.02, 0.01, 0.005):
        beta = alpha / 6  # makes τ a whole number in all four cases
        options: dict[str, Any] = {
            "inner_lr": alpha, "inner_steps": 2, "method": method, "earlier_losses": earlier,
        }  # fmt: skip
        tau = matching_local_steps(local_lr=beta, **options)
        assert tau == pytest.approx(round(tau))
        plain = fedavg_weights(a, local_lr=beta, local_steps=round(tau)) / (tau * beta)
        errors.append(np.abs(plain - meta_weights(a, **options)).max())
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.25, rtol=0.1)


@pytest.mark.usefixtures("x64")
def test_first_order_with_all_losses_is_fedavg_with_one_more_local_step() -> None:
    """For any loss: Σ_{l≤ν} ∇f(w_l) = (w_0 − w_{ν+1}) / α; here one with a changing Hessian."""

    def loss(w: jax.Array, batch: jax.Array) -> jax.Array:
        return jnp.sum(jnp.log(jnp.cosh(batch @ w))) + 0.1 * jnp.sum(w**4)

    batch = jax.random.normal(KEY, (5, 3))
    w = start = jnp.array([0.5, -1.0, 0.3])
    for _ in range(NU + 1):
        w = w - 0.1 * jax.grad(loss)(w, batch)
    _, d, _ = meta_value_and_gradients(
        loss, start, MetaBatches([batch] * NU, batch), rates=[jnp.array(0.1)] * NU,
        method="first-order", earlier=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(d * (NU + 1), (start - w) / 0.1, rtol=1e-12)


def test_rates_for_each_coordinate_adapt_in_one_step_and_one_rate_does_not() -> None:
    a = np.array([0.5, 1.0, 5.0])
    optima = np.array([[1.0, 2.0, 3.0], [-4.0, 0.0, 1.0]])
    clients = QuadraticClients(np.stack([np.diag(a)] * 2), optima)
    assert clients.mean_loss(np.zeros(3), inner_lr=1 / a, inner_steps=1) == pytest.approx(0)
    before = clients.mean_loss(np.zeros(3))
    best = min(
        clients.mean_loss(np.zeros(3), inner_lr=alpha, inner_steps=NU)
        for alpha in np.linspace(0, 0.5, 2001)
    )
    assert 0 < best / before <= one_rate_contraction(10.0, steps=NU)


@pytest.mark.parametrize("condition", [2.0, 10.0])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_one_rate_guarantees_no_more_than_the_formula(condition: float, steps: int) -> None:
    """The least maximum over the spectrum, from a grid of α, and from Chebyshev's nodes."""
    a = np.linspace(1, condition, 401)
    alphas = np.linspace(0, 1, 4001)
    worst = np.abs(1 - alphas[:, None] * a[None, :]).max(axis=1) ** (2 * steps)
    expected = one_rate_contraction(condition, steps=steps)
    assert worst.min() == pytest.approx(expected, rel=1e-2) and worst.min() >= expected - 1e-12
    own = one_rate_contraction(condition, steps=steps, rate_per_step=True)
    nodes = np.cos((2 * np.arange(1, steps + 1) - 1) * np.pi / (2 * steps))
    roots = (condition + 1) / 2 + (condition - 1) / 2 * nodes
    polynomial = np.prod(1 - a[:, None] / roots[None, :], axis=1)
    assert (polynomial**2).max() == pytest.approx(own, rel=1e-9)
    assert own <= expected * (1 + 1e-12)


DRAWS = 40_000


def adapt_once(rates: np.ndarray, u: np.ndarray, noise: float, n: int) -> np.ndarray:
    """Return ½‖w′ − θ‖² for many draws of n examples and of a client out of ``u``."""
    rng = np.random.default_rng(11)
    offsets = u[rng.integers(len(u), size=DRAWS)]
    total = np.zeros_like(offsets)
    for _ in range(n):
        x = rng.normal(size=offsets.shape)
        error = np.sum(x * offsets, axis=1) - math.sqrt(noise) * rng.normal(size=DRAWS)
        total += x * error[:, None] / n
    return 0.5 * np.sum((offsets - rates[None, :] * total) ** 2, axis=1)


U = np.array([[2.0, 0.5, 0.0, 0.0, 0.0], [-1.0, 1.5, 0.0, 0.0, 0.0], [0.3, -1.0, 0.2, 0.0, 0.0]])
SPREAD = np.mean(U**2, axis=0)


@pytest.mark.parametrize("n", [1, 4, 20])
@pytest.mark.parametrize("which", ["one", "subspace", "each"])
def test_the_loss_after_one_step_on_few_examples(n: int, which: str) -> None:
    """Within four standard errors of 40,000 draws."""
    noise = 0.7
    chosen = np.array([True, True, False, False, False])
    rates = {
        "one": np.full(5, best_rate(SPREAD, noise=noise, examples=n)),
        "subspace": best_rate(SPREAD, noise=noise, examples=n, coordinates=chosen.tolist())
        * chosen,
        "each": best_rates(SPREAD, noise=noise, examples=n),
    }[which]
    found = adapt_once(rates, U, noise, n)
    error = found.std() / math.sqrt(DRAWS)
    expected = excess_loss(rates, SPREAD, noise=noise, examples=n)
    assert abs(found.mean() - expected) < 4 * error and error < 0.03 * expected


spreads = st.lists(st.floats(0, 10), min_size=2, max_size=6).filter(lambda s: sum(s) > 0.1)


@settings(max_examples=50)
@given(spreads, st.floats(0, 5), st.integers(1, 200), st.integers(0, 5))
def test_no_other_rates_are_better(s: Sequence[float], noise: float, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    facts: dict[str, Any] = {"noise": noise, "examples": n}
    rates, one = best_rates(s, **facts), best_rate(s, **facts)
    chosen = rng.random(len(s)) < 0.5
    part = best_rate(s, **facts, coordinates=chosen.tolist())
    best = excess_loss(rates, s, **facts)
    for other in (one, part * chosen, rates + 0.1 * rng.normal(size=len(s))):
        assert best <= excess_loss(other, s, **facts) + 1e-12
    for other in np.clip([one - 0.01, one + 0.01], 0, 1):
        assert excess_loss(one, s, **facts) <= excess_loss(other, s, **facts) + 1e-12
    for other in np.clip([part - 0.01, part + 0.01], 0, 1):
        theirs = excess_loss(other * chosen, s, **facts)
        assert excess_loss(part * chosen, s, **facts) <= theirs + 1e-12


def remaining(d: int, k: int, share: float, ratio: float, n: int) -> tuple[float, float]:
    """Return the best loss with one α for all coordinates, and for the first k."""
    s = np.concatenate([np.full(k, share / k), np.full(d - k, (1 - share) / (d - k))])
    facts: dict[str, Any] = {"noise": ratio, "examples": n}
    chosen = np.arange(d) < k
    part = best_rate(s, **facts, coordinates=chosen.tolist()) * chosen
    return excess_loss(best_rate(s, **facts), s, **facts), excess_loss(part, s, **facts)


@pytest.mark.parametrize(("d", "k", "share", "ratio"), [
    (100, 5, 0.8, 0.0), (64, 10, 0.9, 1.0), (20, 2, 0.6, 0.3), (30, 20, 0.5, 0.5),
])  # fmt: skip
def test_the_subspace_pays_up_to_the_stated_number_of_examples(
    d: int, k: int, share: float, ratio: float
) -> None:
    most = largest_useful_examples(d, k, share=share, noise_ratio=ratio)
    for n in {1, max(1, int(0.5 * most)), math.floor(most) + 1, 2 * math.ceil(most) + 2}:
        everywhere, subspace = remaining(d, k, share, ratio, n)
        assert (subspace < everywhere) == (n < most), n


def test_the_true_subspace_always_pays_most_at_a_moderate_number_of_examples() -> None:
    """m/(n + m) remains with m = 1 + dimensions · (1 + ρ); the gap is largest at √(m_k m_d)."""
    d, k, ratio = 100, 4, 0.5
    assert largest_useful_examples(d, k, share=1.0, noise_ratio=ratio) == math.inf
    m_d, m_k = 1 + d * (1 + ratio), 1 + k * (1 + ratio)
    gaps = {}
    for n in (1, 5, 20, round(math.sqrt(m_d * m_k)), 100, 1000, 100_000):
        everywhere, subspace = remaining(d, k, 1.0, ratio, n)
        assert everywhere == pytest.approx(0.5 * m_d / (n + m_d))
        assert subspace == pytest.approx(0.5 * m_k / (n + m_k))
        gaps[n] = everywhere - subspace
    assert max(gaps, key=lambda n: gaps[n]) == round(math.sqrt(m_d * m_k))
    assert gaps[100_000] < 0.01 * max(gaps.values())


@pytest.mark.usefixtures("x64")
def test_at_the_best_rates_the_library_has_nothing_to_learn() -> None:
    """The mean gradient by log-rates vanishes, and points down from rates twice as large.

    Exact meta-gradients on independent batches: 5,000 draws, four standard errors.
    """
    n, noise, draws = 3, 0.4, 5000
    u = jnp.asarray(U[0])
    rates = jnp.asarray(best_rates(np.asarray(u) ** 2, noise=noise, examples=n))

    def loss(w: jax.Array, batch: Any) -> jax.Array:
        x, y = batch
        return 0.5 * jnp.mean((x @ w - y) ** 2)

    def draw(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        inputs, errors = jax.random.split(key)
        x = jax.random.normal(inputs, (size, 5))
        return x, math.sqrt(noise) * jax.random.normal(errors, (size,))

    def by_rates(r: jax.Array, key: jax.Array) -> jax.Array:
        inner, outer = jax.random.split(key)
        batch = draw(inner, n)
        batches = MetaBatches([batch], draw(outer, 20), [batch])
        return meta_value_and_gradients(loss, u, batches, rates=[r])[2][0]

    keys = jax.random.split(KEY, draws)
    many = jax.jit(jax.vmap(by_rates, in_axes=(None, 0)))
    for factor, at_best in ((1.0, True), (2.0, False)):
        found = np.asarray(many(factor * rates, keys))[:, :2]
        error = found.std(axis=0) / math.sqrt(draws)
        assert np.all(np.abs(found.mean(axis=0)) < 4 * error) == at_best
        assert at_best or np.all(found.mean(axis=0) > 0)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: QuadraticClients(np.ones((2, 3)), np.ones((2, 3))), "give (clients, d, d)"),
    (lambda: QuadraticClients(np.array([[[1, 2], [0, 1]]]), np.ones((1, 2))), "symmetric"),
    (lambda: QuadraticClients(np.ones((2, 1, 1)), np.ones((2, 1)), np.ones(2)), "with sum 1"),
    (lambda: make_clients().start(np.zeros((4, 3, 3))), "singular"),
    (lambda: one_rate_contraction(0.5, steps=1), "condition=0.5"),
    (lambda: best_rate([1.0, 2.0], noise=0.0, examples=1, coordinates=[True]), "spread has 2"),
    (lambda: best_rates([-1.0], noise=0.0, examples=1), "at least 0"),
    (lambda: largest_useful_examples(3, 4, share=0.5, noise_ratio=0.0), "larger than the space"),
])  # fmt: skip
def test_impossible_arguments_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)
