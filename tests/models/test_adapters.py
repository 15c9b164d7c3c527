"""Other people's networks: that they train, and what is refused."""

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from headstart import models
from headstart.data._schema import Schema
from headstart.errors import ConfigError
from headstart.meta import MetaBatches, meta_gradient
from headstart.models import Classification, Examples
from headstart.trees import all_finite, leaf_names, norm

IMAGES = Schema(shape=(2, 3, 1), classes=4)
TEXT = Schema(shape=(5,), classes=4, vocabulary=6)


def init_linear(key: Any, examples: Examples) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(key, (6, examples.classes)), "b": jnp.zeros(examples.classes)}


def apply_linear(params: Any, x: jax.Array) -> jax.Array:
    return x.reshape(len(x), -1) @ params["w"] + params["b"][None]


class OwnMLP(eqx.Module):
    """An eqx.nn.MLP, with an activation among its leaves, on a flattened image."""

    inner: eqx.nn.MLP

    def __init__(self, key: Any, examples: Examples):
        self.inner = eqx.nn.MLP(6, examples.classes, 5, 1, activation=jnp.tanh, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.inner(x.ravel())


class Batched(eqx.Module):
    """A module on single examples, made to take a batch."""

    inner: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.vmap(self.inner)(x)


class LinenMLP(linen.Module):
    classes: int

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return linen.Dense(self.classes)(linen.tanh(linen.Dense(5)(x.reshape(len(x), -1))))


class NNXMLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, examples: Examples):
        self.hidden = nnx.Linear(6, 5, rngs=rngs)
        self.out = nnx.Linear(5, examples.classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(nnx.tanh(self.hidden(x.reshape(len(x), -1))))


ADAPTERS: dict[str, Callable[[], Any]] = {
    "functions": lambda: models.from_functions(init_linear, apply_linear),
    "equinox": lambda: models.from_equinox(OwnMLP),
    "linen": lambda: models.from_flax(LinenMLP(4)),
    "nnx": lambda: models.from_flax(NNXMLP),
}


def batches(schema: Schema, steps: int) -> MetaBatches:
    draw = np.random.default_rng(0)
    each = [
        (draw.uniform(size=(8, *schema.shape)).astype(np.float32), draw.integers(4, size=8))
        for _ in range(2 * steps + 1)
    ]
    return MetaBatches(each[:steps], each[steps], each[steps + 1 :])


@pytest.mark.parametrize("name", ADAPTERS)
def test_gives_a_finite_exact_meta_gradient(name: str) -> None:
    model = ADAPTERS[name]()
    params = model.init(jax.random.key(0), IMAGES)
    loss = Classification(model, IMAGES).loss
    step = jax.jit(lambda p, b: meta_gradient(loss, p, b, inner_lr=0.1, method="exact"))
    gradient = step(params, batches(IMAGES, 2))
    assert jax.tree.all(jax.tree.map(lambda g, p: g.shape == p.shape, gradient, params))
    assert bool(all_finite(gradient))
    assert float(norm(gradient)) > 1e-3


@pytest.mark.parametrize("name", ADAPTERS)
def test_only_floating_point_arrays_are_leaves(name: str) -> None:
    params = ADAPTERS[name]().init(jax.random.key(0), IMAGES)
    leaves = jax.tree.leaves(params)
    assert len(leaves) == len(set(leaf_names(params))) == (2 if name == "functions" else 4)
    assert all(isinstance(v, jax.Array) and v.dtype == jnp.float32 for v in leaves)


@pytest.mark.parametrize("name", ADAPTERS)
def test_equal_adapters_share_one_compiled_program(name: str) -> None:
    traced = []

    def forward(model: Any, params: Any, x: jax.Array) -> jax.Array:
        traced.append(model)
        return model.apply(params, x)

    compiled = jax.jit(forward, static_argnums=0)
    for seed in range(2):
        model = ADAPTERS[name]()
        compiled(model, model.init(jax.random.key(seed), IMAGES), jnp.ones((3, 2, 3, 1)))
    assert len(traced) == 1


@pytest.mark.parametrize("name", ADAPTERS)
def test_clients_with_their_own_weights(name: str) -> None:
    model = ADAPTERS[name]()
    each = [model.init(jax.random.key(seed), IMAGES) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    x = np.random.default_rng(0).uniform(size=(2, 3, 2, 3, 1)).astype(np.float32)
    together = jax.jit(jax.vmap(model.apply))(stacked, x)
    alone = [jax.jit(model.apply)(p, batch) for p, batch in zip(each, x, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5, atol=1e-6)


def test_equinox_gives_what_the_module_gives() -> None:
    key, x = jax.random.key(0), jnp.ones((3, 2, 3, 1))
    model = models.from_equinox(OwnMLP)
    expected = OwnMLP(key, IMAGES)(x[0])
    np.testing.assert_allclose(model.apply(model.init(key, IMAGES), x)[0], expected, rtol=1e-6)


def test_equinox_module_may_take_the_whole_batch() -> None:
    def make(key: Any) -> eqx.Module:
        return eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(6, 4, key=key)])

    x = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 2, 3, 1)), jnp.float32)
    single = models.from_equinox(make)
    params = single.init(jax.random.key(0), IMAGES)
    assert leaf_names(params) == ["layers.1.weight", "layers.1.bias"]
    whole = models.from_equinox(lambda key: Batched(make(key)), batched=True)
    same = whole.init(jax.random.key(0), IMAGES)
    np.testing.assert_allclose(whole.apply(same, x), single.apply(params, x), rtol=1e-6)


def test_flax_gives_what_the_modules_give() -> None:
    key, x = jax.random.key(0), jnp.ones((3, 2, 3, 1))
    model = models.from_flax(LinenMLP(4))
    expected: Any = LinenMLP(4).apply(LinenMLP(4).init(key, x), x)
    np.testing.assert_allclose(model.apply(model.init(key, IMAGES), x), expected, rtol=1e-6)
    graph = models.from_flax(NNXMLP)
    same = NNXMLP(nnx.Rngs(key), IMAGES)(x)
    np.testing.assert_allclose(graph.apply(graph.init(key, IMAGES), x), same, rtol=1e-6)


def test_linen_modules_with_lists_are_hashable() -> None:
    one, other = (
        models.from_flax(linen.Sequential([linen.Dense(3), linen.elu, linen.Dense(4)]))
        for _ in range(2)
    )
    assert one == other
    assert hash(one) == hash(other)


def test_tokens_reach_the_model_as_whole_numbers() -> None:
    class Tokens(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            assert x.dtype == jnp.uint8
            return linen.Dense(4)(linen.Embed(6, 2)(x))

    params = models.from_flax(Tokens()).init(jax.random.key(0), TEXT)
    assert leaf_names(params) == ["Dense_0.bias", "Dense_0.kernel", "Embed_0.embedding"]


def test_init_may_take_the_key_alone_or_options_of_its_own() -> None:
    def alone(key: Any) -> jax.Array:
        return jnp.zeros((6, 4))

    def with_option(key: Any, scale: float = 2.0) -> jax.Array:
        return scale * jnp.ones((6, 4))

    def by_name(key: Any, examples: Any = None) -> jax.Array:
        return jnp.zeros((6, examples.classes))

    for init in (alone, with_option, by_name):
        model = models.from_functions(init, lambda w, x: x.reshape(len(x), -1) @ w)
        assert model.init(jax.random.key(0), IMAGES).shape == (6, 4)


class Normalised(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return linen.BatchNorm(use_running_average=True)(linen.Dense(4)(x.reshape(len(x), -1)))


class NNXDropout(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.out = nnx.Linear(6, 4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)


class NNXNormalised(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(6, rngs=rngs)


class Holding(eqx.Module):
    """A module with something beside its weights."""

    weight: jax.Array
    thing: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        return x.ravel() @ self.weight


def holding(thing: Any) -> Any:
    return models.from_equinox(lambda key: Holding(jnp.ones((6, 4)), thing))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "batch normalisation (equinox)": (
        lambda: models.from_equinox(lambda key: eqx.nn.BatchNorm(6, "batch", mode="ema")),
        "from_equinox: the module keeps state (as eqx.nn.BatchNorm does)",
    ),
    "a module and its state": (
        lambda: models.from_equinox(
            lambda key: eqx.nn.make_with_state(eqx.nn.BatchNorm)(6, "batch", mode="ema")  # type: ignore
        ),
        "from_equinox: the module keeps state (as eqx.nn.BatchNorm does)",
    ),
    "not a module": (
        lambda: models.from_equinox(lambda key: jnp.zeros(3)),  # type: ignore
        "from_equinox: make gave an array of float32 and shape (3,), not an Equinox module",
    ),
    "an array of whole numbers (equinox)": (
        lambda: holding(jnp.arange(3)),
        "from_equinox: what the module holds besides its parameters must be hashable, "
        "but is an array of int32 and shape (3,)",
    ),
    "batch normalisation (linen)": (
        lambda: models.from_flax(Normalised()),
        "from_flax: the module keeps batch_stats besides its parameters",
    ),
    "batch normalisation (nnx)": (
        lambda: models.from_flax(NNXNormalised),
        "from_flax: the module keeps BatchStat besides its parameters",
    ),
    "dropout (nnx)": (
        lambda: models.from_flax(NNXDropout),
        "from_flax: the module keeps RngCount, RngKey besides its parameters",
    ),
    "whole numbers": (
        lambda: models.from_functions(lambda key: {"n": jnp.arange(3)}, apply_linear),
        "from_functions: parameter n is an array of int32 and shape (3,)",
    ),
    "complex numbers": (
        lambda: models.from_functions(lambda key: {"n": jnp.ones(3, complex)}, apply_linear),
        "from_functions: parameter n is an array of complex64 and shape (3,)",
    ),
    "words": (
        lambda: models.from_functions(lambda key: ["word"], apply_linear),
        "from_functions: parameter 0 is a str",
    ),
    "no parameters": (
        lambda: models.from_functions(lambda key: {}, lambda params, x: x),
        "from_functions: the model has no parameters",
    ),
    "too few classes": (
        lambda: models.from_functions(
            lambda key: jnp.ones((6, 3)), lambda w, x: x.reshape(2, 6) @ w
        ),
        "from_functions: 2 examples of shape (2, 3, 1) give an output of shape (2, 3); "
        "it must be (2, 4)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_trained_gets_one_clear_line(what: str) -> None:
    make, line = REFUSED[what]
    with pytest.raises(ConfigError) as caught:
        make().init(jax.random.key(0), IMAGES)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_numbers_beside_the_weights_are_fixed() -> None:
    params = holding((0.5, True, "name", None)).init(jax.random.key(0), IMAGES)
    assert leaf_names(params) == ["weight"]


def test_what_is_not_a_function_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="init must be a function, not a dict"):
        models.from_functions({}, apply_linear)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="make must be a function, not a int"):
        models.from_equinox(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"takes a flax\.linen module or a function of rngs"):
        models.from_flax(NNXMLP(nnx.Rngs(0), IMAGES))


def test_functions_without_a_hash_are_refused() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, params: Any, x: jax.Array) -> jax.Array:
            return x

    with pytest.raises(ConfigError, match="apply must be hashable, but is a Unhashable"):
        models.from_functions(init_linear, Unhashable())


def test_without_flax_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(
        ConfigError, match=r"^from_flax needs flax; install it with headstart\[flax"
    ):
        models.from_flax(LinenMLP(4))
