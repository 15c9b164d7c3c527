"""Every built-in network: shapes, first weights, gradients, options and refusals."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart import models, options
from headstart.data._schema import Schema
from headstart.errors import ConfigError
from headstart.models import MODELS, Classification
from headstart.models import _layers as layers
from headstart.trees import add, dot, leaf_names, size

TABLE = Schema(shape=(5,), classes=3)
DIGITS = Schema(shape=(8, 8, 1), classes=10)
MNIST = Schema(shape=(28, 28, 1), classes=10)
CIFAR = Schema(shape=(32, 32, 3), classes=100)
TEXT = Schema(shape=(7,), classes=11, vocabulary=13)

GRID = [
    *[(models.mlp([6, 4]), schema) for schema in (TABLE, DIGITS, MNIST, CIFAR)],
    *[(models.logistic(), schema) for schema in (TABLE, DIGITS, MNIST, CIFAR)],
    *[(models.cnn([3, 4], hidden=[5]), schema) for schema in (DIGITS, MNIST, CIFAR)],
    (models.char_lstm(embedding=3, hidden=4), TEXT),
    (models.char_lstm(embedding=3, hidden=4, layers=2), TEXT),
    (models.squares_mlp([6, 4]), DIGITS),
]
# One of each kind, for what must be compiled.
SMALL = [
    (models.mlp([6, 4]), TABLE),
    (models.logistic(), TABLE),
    (models.cnn([3, 4], hidden=[5]), DIGITS),
    (models.char_lstm(embedding=3, hidden=4, layers=2), TEXT),
    (models.squares_mlp([6, 4]), TABLE),
]


def batch_of(schema: Schema, size: int, seed: int = 0) -> tuple[Any, Any]:
    """Inputs as stored, bytes for tokens and numbers otherwise, and labels."""
    draw = np.random.default_rng(seed)
    if schema.vocabulary:
        x = draw.integers(schema.vocabulary, size=(size, *schema.shape), dtype=np.uint8)
        return x, draw.integers(schema.classes, size=x.shape)
    x = draw.uniform(size=(size, *schema.shape)).astype(jnp.result_type(float))
    return x, draw.integers(schema.classes, size=size)


def drawn(model: Any, schema: Schema, seed: int = 0) -> Any:
    """Parameters of the right shapes, none of them zero as some first weights are."""
    draw = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: model.init(key, schema), jax.random.key(0))
    return jax.tree.map(lambda p: draw.normal(size=p.shape).astype(p.dtype) / 2, shapes)


@pytest.mark.parametrize(("model", "schema"), GRID)
def test_gives_one_logit_per_class(model: Any, schema: Schema) -> None:
    params = jax.eval_shape(lambda key: model.init(key, schema), jax.random.key(0))
    logits = jax.eval_shape(model.apply, params, batch_of(schema, 4)[0])
    positions = schema.shape if schema.vocabulary else ()
    assert logits.shape == (4, *positions, schema.classes)
    assert logits.dtype == jnp.float32


@pytest.mark.parametrize(("model", "schema"), GRID)
def test_parameters_are_named_arrays_of_numbers(model: Any, schema: Schema) -> None:
    params = jax.eval_shape(lambda key: model.init(key, schema), jax.random.key(0))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    assert len(set(leaf_names(params))) == len(jax.tree.leaves(params))
    assert not any("[" in name or "'" in name for name in leaf_names(params))


@pytest.mark.parametrize(("model", "schema"), SMALL)
def test_vmap_over_clients_equals_one_client_after_the_other(model: Any, schema: Schema) -> None:
    each = [drawn(model, schema, seed) for seed in range(3)]
    x = np.stack([batch_of(schema, 4, seed)[0] for seed in range(3)])
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    together = jax.jit(jax.vmap(model.apply))(stacked, x)
    apply = jax.jit(model.apply)
    alone = np.stack([apply(p, batch) for p, batch in zip(each, x, strict=True)])
    assert np.all(np.isfinite(alone))
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("model", "schema"), SMALL)
def test_gradient_agrees_with_finite_differences(model: Any, schema: Schema) -> None:
    loss = Classification(model, schema).loss
    w, v, batch = drawn(model, schema, 1), drawn(model, schema, 2), batch_of(schema, 6)

    @jax.jit
    def value_and_slope(w: Any) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(w, batch)
        return value, dot(gradient, v)

    h = 1e-5
    (ahead, _), (behind, _) = (value_and_slope(add(w, v, step)) for step in (h, -h))
    central = (ahead - behind) / (2 * h)
    np.testing.assert_allclose(value_and_slope(w)[1], central, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("model", "schema"), SMALL)
def test_same_key_same_weights(model: Any, schema: Schema) -> None:
    first, again, other = (model.init(jax.random.key(k), schema) for k in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), first, again))
    same = jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), first, other))
    assert same == isinstance(model, models.Logistic)


def test_equal_descriptions_share_one_compiled_program() -> None:
    traced = []

    def forward(model: Any, params: Any, x: jax.Array) -> jax.Array:
        traced.append(model)
        return model.apply(params, x)

    compiled = jax.jit(forward, static_argnums=0)
    for model in (models.mlp([6, 4]), models.mlp((6, 4)), models.MLP(hidden=[6, 4])):  # type: ignore[arg-type]
        compiled(model, drawn(model, TABLE), batch_of(TABLE, 2)[0])
    assert len(traced) == 1
    assert models.mlp([6, 4]) != models.mlp([6, 4], activation="relu")


def assert_glorot(weights: jax.Array, fans: int) -> None:
    """U(−b, b) with b² = 6 / fans: bound, mean and variance, within four standard errors."""
    bound, n = math.sqrt(6 / fans), weights.size
    w = np.asarray(weights, np.float64)
    assert np.abs(w).max() <= bound * (1 + 1e-6)
    assert np.abs(w).max() > bound * (1 - 20 / n)
    assert abs(w.mean()) < 4 * math.sqrt(2 / fans / n)
    # A uniform variable has kurtosis 9/5, so its sample variance has relative error √(0.8 / n).
    assert abs(np.mean(w**2) / (2 / fans) - 1) < 4 * math.sqrt(0.8 / n)


def test_weights_begin_glorot_uniform_and_biases_zero() -> None:
    dense = models.mlp([300]).init(jax.random.key(0), DIGITS).layers
    assert_glorot(dense[0].weight, 64 + 300)
    assert_glorot(dense[1].weight, 300 + 10)
    convolution = models.cnn([16, 32]).init(jax.random.key(0), CIFAR).convolutions[1]
    assert convolution.weight.shape == (32, 3, 3, 16)
    assert_glorot(convolution.weight, 9 * (16 + 32))
    assert not any(np.any(bias) for bias in (dense[0].bias, dense[1].bias, convolution.bias))


def test_every_gate_begins_glorot_uniform_and_the_forget_gate_open() -> None:
    lstm = models.char_lstm(embedding=20, hidden=64).init(jax.random.key(0), TEXT).recurrent[0]
    for gate in range(4):
        rows = slice(64 * gate, 64 * (gate + 1))
        assert_glorot(lstm.input[rows], 20 + 64)
        assert_glorot(lstm.recurrent[rows], 64 + 64)
        assert bool(jnp.all(lstm.bias[rows] == (1.0 if gate == 1 else 0.0)))


def test_papers_network_has_the_papers_size() -> None:
    params = jax.eval_shape(lambda key: models.mlp().init(key, MNIST), jax.random.key(0))
    assert size(params) == 784 * 80 + 80 + 80 * 60 + 60 + 60 * 10 + 10


def test_logistic_begins_with_every_class_equally_likely() -> None:
    params = models.logistic().init(jax.random.key(0), TABLE)
    loss = Classification(models.logistic(), TABLE).loss(params, batch_of(TABLE, 4))
    np.testing.assert_allclose(loss, math.log(3), rtol=1e-6)


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
def test_mlp_is_its_formula(activation: str) -> None:
    model = models.mlp([6, 4], activation)
    params, (x, _) = drawn(model, TABLE), batch_of(TABLE, 4)
    h, last = x, params.layers[-1]
    for layer in params.layers[:-1]:
        h = np.asarray(layers.ACTIVATIONS[activation](h @ layer.weight.T + layer.bias[None]))
    expected = h @ last.weight.T + last.bias[None]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_options_round_trip_through_a_table(name: str) -> None:
    model = MODELS[name]()
    assert options.build_from_table(MODELS[name], options.to_table(model), "model") == model


def test_lists_in_a_table_become_tuples() -> None:
    model = options.build_from_table(
        models.CNN, {"channels": [4], "hidden": [], "kernel": 5}, "model"
    )
    assert model == models.cnn([4], kernel=5, hidden=[])
    assert hash(model) == hash(models.cnn([4], kernel=5, hidden=[]))


@pytest.mark.parametrize(
    ("name", "table", "line"),
    [
        ("mlp", {"hidden": [80, 0]}, "model.hidden=[80, 0] has a layer without units"),
        ("mlp", {"hidden": 80}, "model.hidden=80 does not fit"),
        ("mlp", {"hidden": ["x"]}, "model.hidden=['x'] does not fit"),
        ("mlp", {"hiden": [80]}, "model.hiden is not an option; did you mean hidden?"),
        ("mlp", {"activation": "elo"}, "model.activation='elo' is not known; use one of elu, relu"),
        ("logistic", {"hidden": [3]}, "model.hidden is not an option"),
        ("cnn", {"channels": [0]}, "model.channels=[0] has a layer without units"),
        ("cnn", {"channels": []}, "model.channels=[] leaves no convolution"),
        ("cnn", {"kernel": 0}, "model.kernel=0 must be at least 1"),
        ("cnn", {"activation": "x"}, "model.activation='x' is not known"),
        ("char-lstm", {"hidden": 0}, "model.hidden=0 must be at least 1"),
        ("char-lstm", {"embedding": -1}, "model.embedding=-1 must be at least 1"),
        ("char-lstm", {"layers": 0}, "model.layers=0 must be at least 1"),
    ],
)
def test_bad_options_get_one_clear_line(name: str, table: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options.build_from_table(MODELS[name], table, "model")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hidden", [80, [True], ["80"], [1.5], None])
def test_factories_refuse_what_is_not_a_list_of_whole_numbers(hidden: Any) -> None:
    with pytest.raises(ConfigError, match=r"^model\.hidden=.* must be a list of whole numbers$"):
        models.mlp(hidden)
    with pytest.raises(ConfigError, match=r"^model\.hidden=.* must be a list of whole numbers$"):
        models.cnn(hidden=hidden)


def test_char_lstm_refuses_sizes_that_are_not_whole() -> None:
    with pytest.raises(ConfigError, match=r"^model\.hidden=1\.5 must be a whole number$"):
        models.char_lstm(hidden=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "schema", "line"),
    [
        ("mlp", TEXT, "model.name='mlp' takes numbers, but the inputs are tokens"),
        ("logistic", TEXT, "model.name='logistic' takes numbers, but the inputs are tokens"),
        ("cnn", TEXT, "model.name='cnn' takes numbers, but the inputs are tokens"),
        ("cnn", TABLE, "model.name='cnn' takes images (height, width, channels), but"),
        ("char-lstm", TABLE, "model.name='char-lstm' takes tokens, but the inputs are numbers"),
        (
            "char-lstm",
            Schema((2, 3), 4, vocabulary=4),
            "model.name='char-lstm' takes sequences (length,), but examples have shape (2, 3)",
        ),
    ],
)
def test_data_that_do_not_fit_get_one_clear_line(name: str, schema: Schema, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MODELS[name]().init(jax.random.key(0), schema)
    assert str(caught.value).startswith(line)


def test_elu_and_its_derivatives_are_those_of_the_definition(x64: None) -> None:
    # Up to the third derivative, which a bound of the theory looks at; at 0 the left-hand ones.
    def defined(x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x, jnp.expm1(jnp.where(x > 0, 0.0, x)))

    x = jnp.array([-1e3, -30.0, -1.0, -1e-9, 0.0, 1e-9, 2.0, 800.0])
    ours: Any = layers.elu
    theirs: Any = defined
    for _ in range(4):
        found = jax.vmap(ours)(x)
        np.testing.assert_allclose(found, jax.vmap(theirs)(x), rtol=1e-12, atol=2e-16)
        ours, theirs = jax.grad(ours), jax.grad(theirs)


def test_elu_may_be_differentiated_forward_and_backward() -> None:
    x, v = jnp.linspace(-2.0, 2.0, 9), jnp.ones(9)
    total = lambda x: jnp.sum(layers.elu(x))  # noqa: E731
    forward = jax.jvp(jax.grad(total), (x,), (v,))[1]
    backward = jax.grad(lambda x: jnp.vdot(jax.grad(total)(x), v))(x)
    np.testing.assert_array_equal(forward, backward)
