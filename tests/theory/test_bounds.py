"""The papers' bounds: against values by hand, special cases, each other, and bad input."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.theory import Constants, bounds
from headstart.theory.bounds import one_step, sharpest

ONE = Constants(B=2, L=1, rho=3, sigma_G=4, sigma_H=5, kappa_G=6, kappa_H=7, gamma_G=8, gamma_H=9)
METHODS = ("exact", "first-order", "hessian-free")
ZERO = {field.name: 0.0 for field in dataclasses.fields(Constants)}


def constants(**values: float) -> Constants:
    return Constants(**{**ZERO, **values})


def step(method: str = "exact", alpha: float = 0.5, nu: int = 2, **more: Any) -> dict[str, Any]:
    sizes: dict[str, Any] = {"batch_sizes": 4, "hessian_batch_sizes": 4, "delta": 0.1}
    return {"method": method, "inner_lr": alpha, "inner_steps": nu, **sizes, **more}


def test_smoothness_by_hand() -> None:
    """a = 1.5: 1 · 1.5⁴ + 2 · 0.5 · 3 · 1.5 · (1 + 1.5)."""
    assert bounds.smoothness(ONE, inner_lr=0.5, inner_steps=2) == pytest.approx(5.0625 + 11.25)
    assert one_step.smoothness(ONE, inner_lr=0.5) == pytest.approx(4 + 3)


def test_errors_of_the_adapted_model_by_hand() -> None:
    """α = 1/2, σ_G = 4, D = (4, 16): α σ_G/√D = 1 and 1/2; q(4) = (6 + 9·256)/64."""
    h = bounds.adapted_model_error(ONE, inner_lr=0.5, batch_sizes=[4, 16])
    assert h.mean == pytest.approx((0, 1, 1.5 * 1 + 0.5))
    assert h.square == pytest.approx((0, 1, 2 * 1.25 * 1 + 2 * 0.25))
    q4, q16 = (6 + 3 * 3 * 256) / 64, (6 + 3 * 15 * 256) / 4096
    fourth = 0.0625 * q4
    assert h.fourth == pytest.approx((0, fourth, 8 * 1.5 * fourth + 64 * 0.0625 * q16))


def test_recursion_and_closed_form_of_the_adapted_models_error_agree() -> None:
    """h_l = ασ_G Σ_j a^j/√D_{l−1−j}, the form in which G states Lemma 5."""
    alpha, sizes = 0.3, [3, 5, 8, 13]
    h = bounds.adapted_model_error(ONE, inner_lr=alpha, batch_sizes=sizes).mean
    a = 1 + alpha * ONE.L
    for l in range(len(sizes) + 1):  # noqa: E741
        closed = sum(a**j / math.sqrt(sizes[l - 1 - j]) for j in range(l))
        assert h[l] == pytest.approx(alpha * ONE.sigma_G * closed)


def test_exact_bias_and_variance_by_hand_for_one_step() -> None:
    """α = 1/2, all batches 4: h = 1, h′ = 1, d = α²σ_H²/4 = 25/16, d′ = α⁴ q_H(4)."""
    q_G, q_H = (6 + 9 * 256) / 64, (7 + 9 * 625) / 64
    d, fourth, h_fourth = 25 / 16, q_H / 16, q_G / 16
    outer, second = 2 + 1, 4 + 1
    bias = 1.5 * outer + math.sqrt(d * second)
    assert bounds.gradient_bias(ONE, **step(nu=1)) == pytest.approx(bias)
    variance = 3 * 2.25 * second + 3 * 4 * d + 6 * math.sqrt(2 * fourth * (q_G + h_fourth))
    assert bounds.gradient_variance(ONE, **step(nu=1)) == pytest.approx(variance)


def test_exact_bias_by_hand_for_two_steps() -> None:
    """a = 1.5, all batches 4: h = (0, 1, 2.5), h′ = (0, 1, 4.5)."""
    d1 = 25 / 16
    d2 = 2 * d1 * (1.5 + 0.5 * 2.5) ** 2 + 2 * 0.25 * 1.5**2 * (25 / 4 + 9 * 1)
    bias = 2.25 * (2 + 2.5) + 2 * 0.5 * 3 * 1.5 * 1 + math.sqrt(d2 * (4 + 4.5))
    assert bounds.gradient_bias(ONE, **step()) == pytest.approx(bias)


def test_first_order_by_hand() -> None:
    bias = 2 + 2.5 + 2 * (2.25 + 1)
    assert bounds.gradient_bias(ONE, **step("first-order")) == pytest.approx(bias)
    variance = 2 * 4 + 2 * 4.5 + 2 * 4 * 3.25**2
    assert bounds.gradient_variance(ONE, **step("first-order")) == pytest.approx(variance)


def test_hessian_free_by_hand() -> None:
    """α/δ = 5, p_0 = 4.5; backwards with h_1 = 1 and h_0 = 0; q = αρδB²(a + a²)."""
    p = 1.5 * (1.5 * 4.5 + 5 * (2 + 1)) + 5 * 2
    q = 0.5 * 3 * 0.1 * 4 * (1.5 + 2.25)
    assert bounds.gradient_bias(ONE, **step("hessian-free")) == pytest.approx(p + q)
    p_square = 3 * 1.25 * 8.5 + 37.5 * (4 + 2 * 1)
    p_square = 3 * 1.25 * p_square + 37.5 * 4
    assert bounds.gradient_variance(ONE, **step("hessian-free")) == pytest.approx(
        2 * p_square + 2 * q**2
    )


def test_similarity_by_hand() -> None:
    """ν = 2: g = α²γ_H² a²(2 + 2)."""
    g = 0.25 * 81 * 2.25 * 4
    expected = 15 * 4 * g + 6 * 64 * 1.5**4 * 1.25
    assert bounds.meta_similarity(ONE, inner_lr=0.5, inner_steps=2) == pytest.approx(expected)
    assert one_step.meta_similarity(ONE, inner_lr=0.5) == pytest.approx(3 * 81 + 192 * 64)


def test_paper_p_by_hand() -> None:
    """D = 4, D′ = 16, D″ = 25; α = 1/2, L = 1."""
    p: dict[str, Any] = {"inner_lr": 0.5, "batch_sizes": [4, 16], "hessian_batch_sizes": [25]}
    assert one_step.gradient_bias(ONE, **p) == pytest.approx(2 * 0.5 * 2)
    assert one_step.gradient_bias(ONE, method="first-order", **p) == pytest.approx(0.5 * (2 + 2))
    free = one_step.gradient_bias(ONE, method="hessian-free", delta=0.1, **p)
    assert free == pytest.approx(0.5 * (2 * 2 + 1 + 3 * 0.1 * 4))
    noise = 16 * (1 / 16 + 0.25 / 4)
    exact = 12 * (4 + noise) * (1 + 25 * 0.25 / 100) - 12 * 4
    assert one_step.gradient_variance(ONE, **p) == pytest.approx(exact)
    first = one_step.gradient_variance(ONE, method="first-order", **p)
    assert first == pytest.approx(2 * noise + 2)
    free = one_step.gradient_variance(ONE, method="hessian-free", delta=0.1, **p)
    terms = 2 * 0.25 / 4 + 2 / 16 + 0.25 / (2 * 0.01 * 25)
    assert free == pytest.approx(6 * 16 * terms + 2 * (0.5 * 3 * 0.1) ** 2 * 16)


def test_theorem_by_hand() -> None:
    c = constants(B=1, L=1, sigma_G=1)
    found = bounds.stationarity(
        c, local_lr=0.01, local_steps=2, rounds=100, participation=0.5, clients=5, initial_gap=3,
        **step(alpha=0.0, nu=1, batch_sizes=1),
    )  # fmt: skip
    # α = 0: L_F = 1, σ_F² = 3, γ_F² = 0, μ_F = 1
    assert found.terms == pytest.approx(
        {"start": 6.0, "drift": 4 * 280 * 1e-4 * 2 * 6, "noise": 0.24, "bias": 4, "choice": 0}
    )
    assert found.total == pytest.approx(sum(found.terms.values()))
    assert found.largest_local_lr == pytest.approx(1 / 20) and found.dominant == "start"


def test_similar_clients_matter_only_when_not_all_are_chosen() -> None:
    c = constants(L=1, gamma_G=1)
    common = {"local_lr": 0.01, "local_steps": 1, "rounds": 10, "initial_gap": 0.0}
    adapted = step(alpha=0.0, nu=1)
    some = bounds.stationarity(c, **common, participation=0.5, clients=11, **adapted)
    everyone = bounds.stationarity(c, **common, participation=1.0, clients=11, **adapted)
    alone = bounds.stationarity(c, **common, participation=1.0, clients=1, **adapted)
    # γ_F² = 6, (1 − r)/(r(n − 1)) = 1/10
    assert some.noise == pytest.approx(4 * 0.01 * 6 / 10) and everyone.noise == alone.noise == 0


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_general_smoothness_is_at_most_paper_ps_for_one_step(alpha: float) -> None:
    general = bounds.smoothness(ONE, inner_lr=alpha, inner_steps=1)
    assert general <= one_step.smoothness(ONE, inner_lr=alpha) + 1e-12


def test_without_noise_the_exact_gradient_has_neither_bias_nor_variance() -> None:
    silent = dataclasses.replace(ONE, sigma_G=0, sigma_H=0, kappa_G=0, kappa_H=0)
    for nu in (1, 2, 5):
        assert bounds.gradient_variance(silent, **step(nu=nu)) == 0
        assert bounds.gradient_bias(silent, **step(nu=nu)) == 0
    assert one_step.gradient_variance(silent, **step(nu=1)) == 0


def test_equal_clients_have_equal_meta_gradients() -> None:
    equal = dataclasses.replace(ONE, gamma_G=0, gamma_H=0)
    assert bounds.meta_similarity(equal, inner_lr=0.5, inner_steps=3) == 0
    assert one_step.meta_similarity(equal, inner_lr=0.5) == 0


@pytest.mark.parametrize("method", METHODS)
def test_with_alpha_zero_this_is_fedavg(method: str) -> None:
    """L_F = L, no trace of ρ, σ_H, γ_H, δ; P's bias is then 0."""
    plain = constants(L=1, B=2, sigma_G=4, kappa_G=6, gamma_G=8)
    rich = dataclasses.replace(plain, rho=3, sigma_H=5, kappa_H=7, gamma_H=9)
    none = step(method, alpha=0.0, nu=1)
    assert bounds.smoothness(rich, inner_lr=0.0, inner_steps=3) == 1
    for bound in (bounds.gradient_bias, bounds.gradient_variance):
        assert bound(rich, **none) == bound(plain, **none)
    assert one_step.gradient_bias(rich, **none) == 0
    assert bounds.meta_similarity(rich, inner_lr=0.0, inner_steps=3) == pytest.approx(6 * 64)


@pytest.mark.parametrize("method", METHODS)
def test_sharpest_is_the_smaller_of_the_bounds_that_apply(method: str) -> None:
    for name in ("gradient_bias", "gradient_variance"):
        inside, outside = step(method, alpha=0.9, nu=1), step(method, alpha=1.1, nu=1)
        general, sharp, chosen = (getattr(m, name) for m in ((bounds, one_step, sharpest)))
        assert chosen(ONE, **inside) == min(general(ONE, **inside), sharp(ONE, **inside))
        assert chosen(ONE, **outside) == general(ONE, **outside)
        assert chosen(ONE, **step(method)) == general(ONE, **step(method))


@pytest.mark.parametrize("method", METHODS)
def test_bounds_grow_with_every_constant_and_shrink_with_batches(method: str) -> None:
    for field in dataclasses.fields(Constants):
        larger = dataclasses.replace(ONE, **{field.name: 2 * getattr(ONE, field.name)})
        for bound in (bounds.gradient_bias, bounds.gradient_variance):
            assert bound(larger, **step(method, nu=3)) >= bound(ONE, **step(method, nu=3))
    for bound in (bounds.gradient_bias, bounds.gradient_variance):
        sizes = {"batch_sizes": 40, "hessian_batch_sizes": 40}
        assert bound(ONE, **step(method, **sizes)) < bound(ONE, **step(method))


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"inner_lr": -0.1}, "inner_lr=-0.1"),
        ({"inner_lr": math.nan}, "inner_lr=nan"),
        ({"inner_steps": 0}, "inner_steps=0 must be at least 1"),
        ({"batch_sizes": [4, 4]}, r"batch_sizes has 2 numbers; give 3 \(D_0 … D_ν\)"),
        ({"batch_sizes": [4, 0, 4]}, r"batch_sizes=\[4, 0, 4\]"),
        ({"hessian_batch_sizes": [4]}, "hessian_batch_sizes has 1 numbers"),
        ({"batch_sizes": [4, 4, 4], "hessian_batch_sizes": None}, "hessian_batch_sizes is needed"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"method": "second-order"}, "method='second-order'"),
    ],
)
def test_impossible_arguments_get_one_clear_line(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        bounds.gradient_bias(ONE, **{**step(), **wrong})


def test_negative_constants_are_refused_by_name() -> None:
    for value in (-1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="sigma_H="):
            constants(sigma_H=value)


def test_outside_of_paper_ps_range_the_lemma_and_the_general_bound_are_named() -> None:
    with pytest.raises(ConfigError, match=r"above 1/L = 1,.*Lemma 4\.2.*bounds\.smoothness"):
        one_step.smoothness(ONE, inner_lr=1.5)
    with pytest.raises(ConfigError, match=r"Lemma H\.1 of paper P is for one step"):
        one_step.gradient_bias(ONE, **step("first-order"))


def test_a_step_size_above_the_theorems_is_refused_with_the_limit() -> None:
    common = {"local_steps": 2, "rounds": 10, "participation": 1.0, "clients": 5}
    with pytest.raises(ConfigError, match=r"at most 1/\(10τL_F\) = 0\.0125"):
        bounds.stationarity(
            constants(L=1), local_lr=0.1, initial_gap=1.0, **common, **step(alpha=1.0, nu=1)
        )


def test_our_similarity_is_below_both_papers_for_one_step() -> None:
    for alpha in (0.0, 0.2, 1.0):
        ours = sharpest.meta_similarity(ONE, inner_lr=alpha, inner_steps=1)
        assert ours <= one_step.meta_similarity(ONE, inner_lr=alpha)
        assert ours <= bounds.meta_similarity(ONE, inner_lr=alpha, inner_steps=1)
    assert sharpest.meta_similarity(ONE, inner_lr=0.0, inner_steps=4) == ONE.gamma_G**2


def test_our_similarity_by_hand() -> None:
    """ν = 2, α = 1/2, a = 1.5: ε_1 = αγ_G = 4; αa(2γ_H + ρε_1) = 0.75(18 + 12)."""
    expected = (2 * 0.75 * 30 + 1.5**4 * 8) ** 2
    assert sharpest.meta_similarity(ONE, inner_lr=0.5, inner_steps=2) == pytest.approx(expected)


def test_the_choice_of_clients_counts_only_with_several_steps_of_some() -> None:
    """φ = 1/10, L_F = γ_F = 1, σ_F = 0: 4 · 7.1 · φ · β√(τ(τ−1))."""
    c = constants(L=1, gamma_G=1)
    common = {"local_lr": 0.01, "rounds": 10, "initial_gap": 0.0, "clients": 11}
    adapted = step(alpha=0.0, nu=1)
    found = sharpest.stationarity(c, **common, local_steps=2, participation=0.5, **adapted)
    assert found.choice == pytest.approx(4 * 7.1 * 0.1 * 0.01 * math.sqrt(2))
    for steps, share in ((1, 0.5), (2, 1.0)):
        none = sharpest.stationarity(c, **common, local_steps=steps, participation=share, **adapted)
        assert none.choice == 0
    with pytest.raises(ConfigError, match="less than one client"):
        sharpest.stationarity(c, **common, local_steps=1, participation=0.01, **adapted)


def test_the_generalized_papers_lemma_7_fails_for_two_steps_and_ours_does_not() -> None:
    """Two clients with equal Hessians, f_± = R√(1+(x/R)²) + η²λ sin(x/η) ± cx, ν = 2, α = 1.

    They stand half a wave apart after one step, where their Hessians differ most: the spread of
    the meta-gradients comes from ρ, which the lemma does not contain.
    """
    R, eta, steep = 1e4, 0.01, 0.5
    c = eta * math.pi / 2

    def slope(x: np.ndarray, sign: int) -> np.ndarray:
        return x / R / np.sqrt(1 + (x / R) ** 2) + eta * steep * np.cos(x / eta) + sign * c

    def curvature(x: np.ndarray) -> np.ndarray:
        return (1 + (x / R) ** 2) ** -1.5 / R - steep * np.sin(x / eta)

    def meta_gradient(x: np.ndarray, sign: int) -> np.ndarray:
        after_one = x - slope(x, sign)
        after_two = after_one - slope(after_one, sign)
        return (1 - curvature(x)) * (1 - curvature(after_one)) * slope(after_two, sign)

    x = 3 * R + np.linspace(0, 2 * math.pi * eta, 2000)
    spread = float(np.max((meta_gradient(x, 1) - meta_gradient(x, -1)) ** 2 / 4))
    known = constants(B=1 + eta * steep + c, L=steep + 1 / R, rho=steep / eta + 1 / R, gamma_G=c)
    arguments: dict[str, Any] = {"inner_lr": 1.0, "inner_steps": 2}
    assert spread > 40 * bounds.meta_similarity(known, **arguments)
    assert spread <= sharpest.meta_similarity(known, **arguments)


def test_the_theorem_fails_for_some_clients_with_many_steps_and_ours_does_not() -> None:
    """Two clients, f_± = x²/2 ± x, one of them chosen in a round, α = 0, no noise, w_0 = 0 = w*.

    From w the chosen one is after t steps at q^t w ∓ (1 − q^t), q = 1 − β, so that E w² has a
    recursion over rounds. (Both losses may be flattened outside |x| ≤ 1, which is never left.)
    """
    beta, tau, rounds = 1e-7, 200, 10**7
    q = (1 - beta) ** tau
    limit = (1 - q) / (1 + q)
    mean_over_rounds = limit * (1 - 1 / (rounds * (1 - q**2)))  # starting at 0
    t = np.arange(tau)
    inside = (1 - beta) ** (2 * t) * mean_over_rounds + (1 - (1 - beta) ** t) ** 2
    true = float(np.mean(inside))
    assert true == pytest.approx(beta * tau / 2, rel=0.01)
    common: dict[str, Any] = {
        "local_lr": beta, "local_steps": tau, "rounds": rounds, "participation": 0.5,
        "clients": 2, "initial_gap": 0.0, **step(alpha=0.0, nu=1),
    }  # fmt: skip
    known = constants(B=2, L=1, gamma_G=1)
    assert bounds.stationarity(known, **common).total < 0.6 * true
    assert true <= sharpest.stationarity(known, **common).total
