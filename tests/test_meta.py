"""`headstart.meta` against SPEC §2: closed form, finite differences, slow references, slopes."""

import re
from collections import Counter
from functools import partial
from itertools import accumulate
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from optax import softmax_cross_entropy

from headstart import meta
from headstart.errors import ConfigError
from headstart.meta import METHODS, MetaBatches, meta_gradient

α = 0.3
pytestmark = pytest.mark.usefixtures("x64")
each_method = pytest.mark.parametrize("method", METHODS)


def flat(tree):
    return ravel_pytree(tree)[0]


def distance(a, b):
    """‖a − b‖ / ‖b‖ of trees as vectors."""
    assert flat(a).shape == flat(b).shape
    return float(jnp.linalg.norm(flat(a) - flat(b)) / jnp.linalg.norm(flat(b)))


def draw_batches(draw, ν):
    """2ν+1 different batches."""
    return MetaBatches([draw() for _ in range(ν)], draw(), [draw() for _ in range(ν)])


def repeat(batch, ν):
    """One batch at all 2ν+1 places, so that the answer is the gradient of one function."""
    return MetaBatches([batch] * ν, batch, [batch] * ν)


def adapt(gradient, w, inner, α):
    """The path w_0 … w_ν of a flat vector."""
    return [*accumulate(inner, lambda w, batch: w - α * gradient(w, batch), initial=w)]


def product(hessian, points, batches, d, α):
    """(I − α∇²f(w_0, D′_0)) ⋯ (I − α∇²f(w_{ν−1}, D′_{ν−1})) d as a product of matrices."""
    factors = [np.eye(len(d)) - α * hessian(*at) for at in zip(points, batches, strict=True)]
    return np.linalg.multi_dot([np.eye(len(d)), *factors, d])


def reference(gradient, hessian, w, batches, α, method="exact", δ=None):
    """The meta-gradient from explicit derivatives; first-order is ∇f at the adapted point."""
    *path, adapted = adapt(gradient, w, batches.inner, α)
    d = gradient(adapted, batches.outer)
    if method == "exact":
        return product(hessian, path, batches.hessian, d, α)
    if method == "hessian-free":
        for p, batch in reversed(list(zip(path, batches.hessian, strict=True))):
            d = d - α * (gradient(p + δ * d, batch) - gradient(p - δ * d, batch)) / (2 * δ)
    return d


def quadratic(w, batch):
    return 0.5 * w @ batch[0] @ w - batch[1] @ w


QUADRATIC = (lambda w, batch: batch[0] @ w - batch[1]), (lambda w, batch: batch[0])


def log_cosh(w, batch):
    """Mean of log 2cosh(xᵀw − y) over rows x, for any tree w."""
    z = batch[0] @ flat(w) - batch[1]
    return jnp.mean(jnp.logaddexp(z, -z))


LOG_COSH = (
    lambda w, b: b[0].T @ np.tanh(b[0] @ w - b[1]) / len(b[1]),
    lambda w, b: (b[0].T / np.cosh(b[0] @ w - b[1]) ** 2) @ b[0] / len(b[1]),
)


def draw_log_cosh(rng, size=5, rows=4):
    return rng.normal(size=(rows, size)), rng.normal(size=rows)


def mlp(params, batch):
    """ELU between layers; with one layer this is logistic regression."""
    x, (*hidden, last) = batch[0], params
    for layer in hidden:
        x = jax.nn.elu(x @ layer["weight"] + layer["bias"][None])
    return softmax_cross_entropy(x @ last["weight"] + last["bias"][None], batch[1]).mean()


def rnn(params, batch):
    """tanh recurrence over the columns of x."""
    h = jnp.zeros((len(batch[0]), 4))
    for column in batch[0].T:
        h = jnp.tanh(h @ params["again"] + column[:, None] * params["in"][None])
    return softmax_cross_entropy(h @ params["out"], batch[1]).mean()


LAYERS = [{"weight": np.zeros((n, 3)), "bias": np.zeros(3)} for n in (5, 3)]
CELL = {"in": np.zeros(4), "again": np.zeros((4, 4)), "out": np.zeros((4, 3))}
MODELS = {"logistic": (mlp, LAYERS[:1]), "mlp": (mlp, LAYERS), "rnn": (rnn, CELL)}


def draw_like(rng, tree):
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), tree)


def draw_examples(rng):
    return jnp.asarray(rng.normal(size=(6, 5))), jnp.eye(3)[rng.integers(3, size=6)]


def mlp_problem(ν):
    rng = np.random.default_rng(ν)
    return draw_like(rng, LAYERS), draw_batches(partial(draw_examples, rng), ν)


def flat_mlp(w, batch):
    return mlp(ravel_pytree(LAYERS)[1](w), batch)


MLP = jax.jit(jax.grad(flat_mlp)), jax.jit(jax.hessian(flat_mlp))


@each_method
@pytest.mark.parametrize("ν", range(6))
def test_quadratic_closed_form(ν, method):
    """∇f = Aw − b, ∇²f = A; central differences are exact on it, so δ may be large."""
    rng = np.random.default_rng(ν)
    batches = draw_batches(lambda: (np.cov(rng.normal(size=(6, 12))), rng.normal(size=6)), ν)
    w, options = rng.normal(size=6), {"inner_lr": α, "method": method, "delta": 0.5}
    value, actual = meta.meta_value_and_gradient(quadratic, jnp.asarray(w), batches, **options)
    assert distance(actual, reference(*QUADRATIC, w, batches, α, method, 0.5)) <= 1e-12
    adapted = adapt(QUADRATIC[0], w, batches.inner, α)[-1]
    assert distance(value, quadratic(adapted, batches.outer)) <= 1e-12


@pytest.mark.parametrize(("model", "like"), MODELS.values(), ids=MODELS)
def test_exact_is_the_measured_slope_of_the_meta_loss(model, like):
    """[F(w + he_i) − F(w − he_i)] / 2h; at h = 1e-5 both h²F‴ and rounding/h are about 1e-10."""
    rng = np.random.default_rng(10)
    params, batch, h = draw_like(rng, like), draw_examples(rng), 1e-5
    w, unravel = ravel_pytree(params)
    evaluate = jax.jit(jax.vmap(jax.value_and_grad(lambda w: model(unravel(w), batch))))
    points = w[None] + h * jnp.concatenate([jnp.eye(w.size), -jnp.eye(w.size)])
    for ν in range(6):
        values, gradients = evaluate(points)
        slope = (values[: w.size] - values[w.size :]) / (2 * h)
        assert distance(meta_gradient(model, params, repeat(batch, ν), inner_lr=α), slope) <= 1e-6
        points = points - α * gradients


@each_method
@pytest.mark.parametrize("ν", [1, 2, 3])
def test_independent_batches_match_explicit_hessians(ν, method):
    params, batches = mlp_problem(ν)
    actual = meta_gradient(mlp, params, batches, inner_lr=α, method=method, delta=1e-3)
    assert distance(actual, reference(*MLP, flat(params), batches, α, method, 1e-3)) <= 1e-11


@pytest.mark.parametrize("ν", [2, 3, 4])
def test_wrong_orders_and_wrong_batches_would_be_seen(ν):
    """The comparisons have power: every plausible mistake moves the answer by 1e-3 or more."""
    params, batches = mlp_problem(ν)
    inner, outer, hessian = batches
    path = adapt(MLP[0], flat(params), inner, α)
    wrong = partial(product, MLP[1], d=MLP[0](path[-1], outer), α=α)
    mistakes = {
        "factors in the opposite order": wrong(path[-2::-1], hessian[::-1]),
        "D′ at the wrong points": wrong(path[:-1], hessian[::-1]),
        "Hessians one step late": wrong(path[1:], hessian),
        "all Hessians at w_0": wrong(path[:1] * ν, hessian),
        "Hessians on the inner batches": wrong(path[:-1], inner),
        "Hessians on the outer batch": wrong(path[:-1], [outer] * ν),
        "inner batches reversed": reference(*MLP, path[0], batches._replace(inner=inner[::-1]), α),
    }
    actual = meta_gradient(mlp, params, batches, inner_lr=α)
    assert {name for name, answer in mistakes.items() if distance(answer, actual) < 1e-3} == set()


TREES = st.recursive(
    st.sampled_from([np.zeros(()), np.zeros(1), np.zeros((3, 1)), np.zeros((2, 2))]),
    lambda node: (
        st.lists(node, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from("abc"), node, min_size=1, max_size=2)
        | st.tuples(node, st.none() | node)
    ),
    max_leaves=4,
)
SEEDS = st.integers(0, 999)


@each_method
@settings(max_examples=10)
@given(like=TREES, ν=st.integers(0, 4), α=st.floats(0, 1), δ=st.floats(1e-3, 1), seed=SEEDS)
def test_fast_equals_slow_on_random_trees(method, like, ν, α, δ, seed):
    rng = np.random.default_rng(seed)
    params = draw_like(rng, like)
    w = np.asarray(flat(params))
    batches = draw_batches(partial(draw_log_cosh, rng, w.size), ν)
    actual = meta_gradient(log_cosh, params, batches, inner_lr=α, method=method, delta=δ)
    assert jax.tree.map(jnp.shape, actual) == jax.tree.map(jnp.shape, params)
    expected = reference(*LOG_COSH, w, batches, α, method, δ)
    np.testing.assert_allclose(flat(actual), expected, rtol=1e-9, atol=1e-11)


@settings(max_examples=8)
@given(like=TREES, ν=st.integers(1, 3), seed=SEEDS)
def test_exact_is_autodiff_of_the_composed_loss_on_any_tree(like, ν, seed):
    rng = np.random.default_rng(seed)
    params = draw_like(rng, like)
    batch = draw_log_cosh(rng, flat(params).size)

    def composed(w):
        for _ in range(ν):
            w = jax.tree.map(lambda u, g: u - α * g, w, jax.grad(log_cosh)(w, batch))
        return log_cosh(w, batch)

    actual = meta_gradient(log_cosh, params, repeat(batch, ν), inner_lr=α)
    assert jax.tree.map(jnp.shape, actual) == jax.tree.map(jnp.shape, params)
    assert distance(actual, jax.grad(composed)(params)) <= 1e-11


def hessian_free_errors(loss, w, batches, δs):
    gradient = partial(meta_gradient, loss, jnp.asarray(w), batches, inner_lr=α)
    exact, free = gradient(), partial(gradient, method="hessian-free")
    return np.array([np.linalg.norm(free(delta=δ) - exact) for δ in δs])


@pytest.mark.parametrize("ν", [1, 3])
def test_hessian_free_error_of_a_smooth_loss_is_of_second_order_and_within_the_bound(ν):
    """‖HF − exact‖ ≤ αρδ‖d‖² Σ_{i<ν} (1+αL)^{ν−1+i}, d = ∇f(w_ν); ν = 1: SPEC §2, else q_ν of §6.2.

    [∇f(w+δd) − ∇f(w−δd)]/2δ = ∇²f d + (δ²/6) ∇⁴f[d,d,d] + O(δ⁴): odd terms cancel, slope 2.
    With t = tanh, |(log cosh)‴| = 2|t|(1−t²) ≤ 4/(3√3) and (log cosh)″ = 1−t² ≤ 1, hence
    ρ ≤ 4/(3√3) max‖x‖³ and L ≤ max‖x‖² over the rows of all batches.
    """
    rng, δs = np.random.default_rng(1), np.logspace(-3, -1, 9)
    w, batches = rng.normal(size=5), draw_batches(partial(draw_log_cosh, rng), ν)
    errors = hessian_free_errors(log_cosh, w, batches, δs)
    longest = max(np.linalg.norm(x, axis=1).max() for x, _ in batches.hessian)
    ρ, L = 4 / (3 * np.sqrt(3)) * longest**3, longest**2
    d = reference(*LOG_COSH, w, batches, α, "first-order")
    growth = sum((1 + α * L) ** (ν - 1 + i) for i in range(ν))
    assert np.all(errors <= α * ρ * δs * (d @ d) * growth)
    assert abs(np.polyfit(np.log(δs), np.log(errors), 1)[0] - 2) < 0.02


def test_hessian_free_error_where_the_hessian_is_only_lipschitz_is_of_first_order():
    """f = Σ|w|³/6 − bᵀw has ∇²f = diag|w|, ρ = 1, and its third derivative jumps at 0.

    At w = 0 the quotient is δd|d|/2 and the truth 0: slope 1, and half the bound αρδ‖d‖² if d has
    one entry. Away from 0, f is a cubic: central differences are exact, one-sided off by αδ‖d²‖/2.
    """
    b, δs = np.array([0.0, 2.0]), np.logspace(-3, -1, 9)
    errors = partial(hessian_free_errors, lambda w, b: jnp.sum(jnp.abs(w) ** 3) / 6 - b @ w)
    d = α * b * np.abs(α * b) / 2 - b
    np.testing.assert_allclose(errors(0 * b, repeat(b, 1), δs), α * δs * (d @ d) / 2, rtol=1e-9)
    assert max(errors(3 + b, repeat(b, 1), δs)) < 1e-12


@each_method
def test_without_adaptation_it_is_the_plain_gradient(method):
    params, batches = mlp_problem(2)
    plain = jax.grad(mlp)(params, batches.outer)
    for inner_lr, chosen in ((α, MetaBatches([], batches.outer)), (0.0, batches)):
        actual = meta_gradient(mlp, params, chosen, inner_lr=inner_lr, method=method)
        jax.tree.map(np.testing.assert_array_equal, actual, plain)


@each_method
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-12)])
def test_dtype_jit_vmap_and_traced_step_sizes(dtype, tolerance, method):
    """Two clients with their own α and δ in one compiled program, against one by one."""
    with jax.enable_x64(dtype == "float64"):
        cast = partial(jax.tree.map, partial(jnp.asarray, dtype=dtype))
        w, (inner, outer, hessian) = cast(mlp_problem(3))
        step = partial(meta_gradient, mlp, w, method=method)
        clients = [MetaBatches(inner[i : i + 2], outer, hessian[i : i + 2]) for i in range(2)]
        steps = np.array([[0.1, 0.3], [0.01, 0.03]], dtype)
        stack = partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
        fast = jax.jit(jax.vmap(step))(stack(*clients), inner_lr=steps[0], delta=steps[1])
        each = zip(clients, *steps.tolist(), strict=True)
        slow = [step(batches, inner_lr=lr, delta=δ) for batches, lr, δ in each]
        assert {leaf.dtype.name for leaf in jax.tree.leaves((fast, slow))} == {dtype}
        assert distance(fast, stack(*slow)) <= tolerance


def sizes(jaxpr):
    """Elements of every intermediate, inner programs included."""
    for equation in jaxpr.eqns:
        yield from (out.aval.size for out in equation.outvars)
        for program in jax.tree.leaves(list(equation.params.values())):
            yield from sizes(program) if hasattr(program, "eqns") else ()


@each_method
def test_never_a_hessian(method):
    params, batches = mlp_problem(3)
    program = jax.make_jaxpr(partial(meta_gradient, mlp, inner_lr=α, method=method))
    assert max(sizes(program(params, batches))) < flat(params).size ** 2
    hessian = jax.make_jaxpr(MLP[1])(flat(params), batches.outer)
    assert max(sizes(hessian)) >= flat(params).size ** 2


@each_method
@pytest.mark.parametrize("ν", [0, 1, 3])
def test_every_batch_is_used_where_it_belongs_and_gradients_are_counted(ν, method):
    """Python sees one call of the loss per gradient and one per exact product, which counts 2."""
    seen: Counter[int] = Counter()

    def loss(w, batch):
        seen[batch[0]] += 1
        return log_cosh(w, batch[1:])

    drawn = [(p, *draw_log_cosh(np.random.default_rng(p))) for p in range(2 * ν + 1)]
    gradient = partial(meta_gradient, loss, jnp.ones(5), inner_lr=α, method=method)
    base = gradient(draw_batches(iter(drawn).__next__, ν))
    uses = {"exact": 1, "first-order": 0, "hessian-free": 2}[method]
    assert seen == Counter({p: 1 if p <= ν else uses for p in range(2 * ν + 1)})
    assert meta.gradient_evaluations(method, ν) == seen.total() + ν * (method == "exact")
    for p, x, y in drawn:
        changed = iter([*drawn[:p], (p, x, y + 1), *drawn[p + 1 :]])
        moved = distance(gradient(draw_batches(changed.__next__, ν)), base)
        assert moved > 1e-3 if p <= ν or uses else moved == 0


@pytest.mark.parametrize(
    ("hessian", "options", "words"),
    [
        (2, {"method": "maml"}, ["'maml'", *METHODS]),
        (1, {"method": "exact"}, ["'exact'", "2 inner batches", "got 1"]),
        (3, {"method": "hessian-free"}, ["'hessian-free'", "2 inner batches", "got 3"]),
        *((2, {"delta": δ}, [f"delta={δ} ", "positive"]) for δ in (0, -0.1, np.nan, np.inf)),
    ],
)
def test_bad_input_is_explained(hessian, options, words):
    batches = MetaBatches([1.0] * 2, 1.0, [1.0] * hessian)
    options = {"method": "hessian-free", "inner_lr": α} | options
    with pytest.raises(ConfigError) as error:
        meta_gradient(lambda w, b: b * w**2, jnp.ones(()), batches, **options)
    assert all(word in str(error.value) for word in words)


def test_the_default_difference_step_is_the_measured_one():
    """docs/notation.md measures it in float32 and names the choice."""
    text = (Path(__file__).parent.parent / "docs" / "notation.md").read_text()
    [documented] = re.findall(r"The default is \*\*(\S+)\*\*", text)
    assert float(documented) == meta.DEFAULT_DELTA


def draw_rates(rng, tree, ν, per_coordinate):
    """A tree of positive rates for each of ν steps."""
    shape = (lambda leaf: leaf.shape) if per_coordinate else (lambda leaf: ())
    draw = partial(
        jax.tree.map, lambda leaf: jnp.asarray(rng.uniform(0.1, 0.6, size=shape(leaf))), tree
    )
    return [draw() for _ in range(ν)]


def loss_after(model, params, log_rates, batch):
    """F as a function of w and the logarithms of the rates, written out."""
    w = params
    for rho in log_rates:
        step = jax.grad(model)(w, batch)
        w = jax.tree.map(lambda u, r, d: u - jnp.exp(r) * d, w, rho, step)
    return model(w, batch)


@pytest.mark.parametrize("per_coordinate", [False, True])
@pytest.mark.parametrize("ν", [1, 2, 3])
def test_gradients_with_rates_are_those_of_the_composed_loss(ν, per_coordinate):
    rng = np.random.default_rng(ν)
    params, batch = draw_like(rng, LAYERS), draw_examples(rng)
    rates = draw_rates(rng, LAYERS, ν, per_coordinate)
    value, by_w, by_rates = meta.meta_value_and_gradients(
        mlp, params, repeat(batch, ν), rates=rates
    )
    composed = jax.value_and_grad(partial(loss_after, mlp), argnums=(0, 1))
    expected, (slope_w, slope_rates) = composed(params, jax.tree.map(jnp.log, rates), batch)
    assert abs(value - expected) <= 1e-12
    assert distance(by_w, slope_w) <= 1e-11
    assert distance(by_rates, slope_rates) <= 1e-11


def test_gradient_by_the_rates_is_the_measured_slope():
    """[F(ρ + h) − F(ρ − h)] / 2h for every rate; h = 1e-5 as above."""
    rng = np.random.default_rng(3)
    params, batch, h = draw_like(rng, LAYERS), draw_examples(rng), 1e-5
    rates = draw_rates(rng, LAYERS, 2, per_coordinate=False)
    _, _, by_rates = meta.meta_value_and_gradients(mlp, params, repeat(batch, 2), rates=rates)
    rho, unravel = ravel_pytree(jax.tree.map(jnp.log, rates))
    after = jax.jit(lambda at: loss_after(mlp, params, unravel(at), batch))
    slopes = [(after(rho + h * e) - after(rho - h * e)) / (2 * h) for e in jnp.eye(rho.size)]
    assert distance(by_rates, jnp.stack(slopes)) <= 1e-6


def test_rates_of_a_quadratic_in_closed_form():
    """One step on ½w²: w₁ = (1 − r)w, so F = ½(1 − r)²w² and ∂F/∂log r = −r(1 − r)w².

    First-order leaves out the factor 1 − r of ∂F/∂w and keeps ∂F/∂log r.
    """
    w, r = jnp.asarray(2.0), jnp.asarray(0.3)
    batches, loss = MetaBatches([()], (), [()]), lambda w, batch: w**2 / 2
    factors: dict[meta.Method, float] = {"exact": 0.7, "hessian-free": 0.7, "first-order": 1.0}
    for method, factor in factors.items():
        value, by_w, (by_rate,) = meta.meta_value_and_gradients(
            loss, w, batches, rates=[r], method=method
        )
        np.testing.assert_allclose(value, 0.5 * 0.7**2 * 4)
        np.testing.assert_allclose(by_w, factor * 0.7 * 2, rtol=1e-9)
        np.testing.assert_allclose(by_rate, -0.3 * 0.7 * 4)


@each_method
@pytest.mark.parametrize("adapted", [None, (True, False, False, True)])
def test_equal_rates_are_one_step_size(method, adapted):
    """Hessian-free takes its difference along r ∘ d instead of d: another error of order δ²."""
    params, batches = mlp_problem(3)
    rates = [jax.tree.map(lambda leaf: jnp.asarray(α), params)] * 3
    options = {"method": method, "adapted": adapted}
    value, d = meta.meta_value_and_gradient(mlp, params, batches, inner_lr=α, **options)
    same, by_w, _ = meta.meta_value_and_gradients(mlp, params, batches, rates=rates, **options)
    assert abs(value - same) <= 1e-13
    assert distance(by_w, d) <= (1e-5 if method == "hessian-free" else 1e-12)


def test_each_step_needs_rates():
    params, batches = mlp_problem(2)
    with pytest.raises(ConfigError, match="2 inner steps need as many rates, got 1"):
        meta.meta_value_and_gradients(mlp, params, batches, rates=[params])


@pytest.mark.parametrize("adapted", [None, (True, False, False, True)])
@pytest.mark.parametrize("ν", [1, 3])
def test_losses_before_the_last_step_can_count(ν, adapted):
    """F = [f(w_ν) + c Σ_{l<ν} f(w_l)] / (1 + cν), by automatic differentiation of the whole."""
    rng, c = np.random.default_rng(ν), 0.4
    params, batch = draw_like(rng, LAYERS), draw_examples(rng)
    rates = draw_rates(rng, LAYERS, ν, per_coordinate=False)
    moves = jax.tree.unflatten(jax.tree.structure(params), adapted or (True,) * 4)

    def whole(w, log_rates):
        losses = []
        for rho in log_rates:
            losses.append(mlp(w, batch))
            step = jax.grad(mlp)(w, batch)
            w = jax.tree.map(
                lambda u, r, d, moved: u - jnp.exp(r) * d if moved else u, w, rho, step, moves
            )
        return (mlp(w, batch) + c * sum(losses)) / (1 + c * ν), mlp(w, batch)

    gradient = jax.grad(whole, argnums=(0, 1), has_aux=True)
    (slope_w, slope_rates), after = gradient(params, jax.tree.map(jnp.log, rates))
    value, by_w, by_rates = meta.meta_value_and_gradients(
        mlp, params, repeat(batch, ν), rates=rates, adapted=adapted, earlier=c
    )
    assert abs(value - after) <= 1e-12
    assert distance(by_w, slope_w) <= 1e-11
    assert distance(by_rates, slope_rates) <= 1e-11
