"""`headstart.trees`: a tree behaves as the vector of its leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from headstart import trees

pytestmark = pytest.mark.usefixtures("x64")

LEAVES = st.sampled_from([np.zeros(()), np.zeros(2), np.zeros((0,)), np.zeros((2, 3))])
TREES = st.recursive(
    LEAVES,
    lambda node: (
        st.lists(node, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), node, min_size=1)
        | st.tuples(node, st.none() | node)
    ),
    max_leaves=5,
)
TREE = {"b": [jnp.arange(3.0), (jnp.ones((2, 2)),)], "a": jnp.asarray(-2.0), "none": None}


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def draw_like(rng, tree):
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), tree)


@settings(max_examples=25)
@given(like=TREES, s=st.floats(-10, 10), seed=st.integers(0, 999))
def test_arithmetic_is_that_of_vectors(like, s, seed):
    rng = np.random.default_rng(seed)
    a, b = draw_like(rng, like), draw_like(rng, like)
    u, v = flat(a), flat(b)
    expected = {
        "add": (trees.add(a, b), u + v),
        "add scaled": (trees.add(a, b, s), u + s * v),
        "subtract": (trees.subtract(a, b), u - v),
        "scale": (trees.scale(a, s), s * u),
        "mix": (trees.mix(a, b, s), s * u + (1 - s) * v),
        "zeros_like": (trees.zeros_like(a), 0 * u),
        "where true": (trees.where(True, a, b), u),
        "where false": (trees.where(False, a, b), v),
    }
    for name, (tree, vector) in expected.items():
        assert jax.tree.map(jnp.shape, tree) == jax.tree.map(jnp.shape, a), name
        np.testing.assert_allclose(flat(tree), vector, rtol=1e-14, atol=1e-14, err_msg=name)
    np.testing.assert_allclose(trees.dot(a, b), u @ v, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trees.norm(a), np.linalg.norm(u), rtol=1e-12)
    assert trees.size(a) == u.size


def test_mix_ends_at_its_arguments():
    """share = 1 is a and share = 0 is b, to the bit."""
    a, b = TREE, trees.scale(TREE, 0.1)
    jax.tree.map(np.testing.assert_array_equal, trees.mix(a, b, 1), a)
    jax.tree.map(np.testing.assert_array_equal, trees.mix(a, b, 0), b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_every_leaf_keeps_its_dtype(dtype):
    """Also beside a leaf of another dtype, and with a traced Python number as factor."""
    a = {"narrow": jnp.ones(3, dtype), "other": jnp.ones(2, "float32")}

    def results(s):
        return (
            trees.add(a, a, s),
            trees.subtract(a, a),
            trees.scale(a, s),
            trees.mix(a, a, s),
            trees.zeros_like(a),
            trees.where(s > 0, a, a),
        )

    for made in (*results(0.5), *jax.jit(results)(0.5)):
        assert (made["narrow"].dtype, made["other"].dtype) == (dtype, "float32")


def test_where_hides_what_it_does_not_choose():
    """A diverged tree leaves no NaN behind when it is not taken, in a compiled program too."""
    bad = trees.scale(TREE, jnp.nan)
    chosen = jax.jit(trees.where)(jnp.asarray(True), TREE, bad)
    jax.tree.map(np.testing.assert_array_equal, chosen, TREE)


@pytest.mark.parametrize("weight", [0.25, 1.0, 3.0])
def test_weights_multiply_and_divide(weight):
    weighted = trees.apply_weight(TREE, jnp.asarray(weight))
    np.testing.assert_allclose(flat(weighted), weight * flat(TREE))
    np.testing.assert_allclose(flat(trees.divide_by_weight(weighted, weight)), flat(TREE))


def test_weight_zero_leaves_nothing():
    """Not even of a diverged tree."""
    zero = jnp.asarray(0.0)
    bad = trees.scale(TREE, jnp.nan)
    np.testing.assert_array_equal(flat(trees.apply_weight(bad, zero)), 0 * flat(TREE))
    np.testing.assert_array_equal(flat(trees.divide_by_weight(TREE, zero)), 0 * flat(TREE))


def test_leaves_are_chosen_by_their_place():
    a, b = {"x": jnp.ones(2), "y": jnp.ones(3)}, {"x": jnp.zeros(2), "y": jnp.zeros(3)}
    assert flat(trees.choose_leaves((True, False), a, b)).tolist() == [1, 1, 0, 0, 0]
    kept = trees.select_leaves(a, (False, True))
    assert kept["x"] is None and kept["y"] is a["y"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_sees_one_bad_number_in_any_leaf(bad):
    leaves, structure = jax.tree.flatten(TREE)
    assert jax.jit(trees.all_finite)(TREE)
    for i, leaf in enumerate(leaves):
        spoilt = [*leaves[:i], leaf.ravel().at[-1].set(bad).reshape(leaf.shape), *leaves[i + 1 :]]
        assert not jax.jit(trees.all_finite)(jax.tree.unflatten(structure, spoilt))


def test_nothing_is_a_vector_of_length_zero():
    assert trees.size({}) == 0
    assert trees.dot({}, {}) == 0
    assert trees.norm([]) == 0
    assert trees.all_finite(())
    assert trees.leaf_names({}) == []


def test_trees_that_do_not_fit_are_refused():
    """Silent broadcasting over ranks or structures would hide a wrong model."""
    for a, b in (({"a": jnp.ones(3)}, {"b": jnp.ones(3)}), ([jnp.ones(3)], [jnp.ones((2, 3))])):
        for operation in (trees.add, trees.subtract, trees.dot):
            with pytest.raises(ValueError, match=r"structure|broadcast"):
                operation(a, b)


def test_gradient_of_half_the_squared_norm_is_the_tree():
    gradient = jax.grad(lambda a: 0.5 * trees.dot(a, a))(TREE)
    jax.tree.map(np.testing.assert_array_equal, gradient, TREE)


def test_names_are_paths_in_the_order_of_the_leaves():
    assert trees.leaf_names(TREE) == ["a", "b.0", "b.1.0"]
    assert trees.leaf_names(jnp.ones(2)) == ["value"]
    assert trees.leaf_names({"layers": [{"weight": jnp.ones(1)}]}) == ["layers.0.weight"]


@settings(max_examples=50)
@given(like=TREES)
def test_names_are_unique(like):
    names = trees.leaf_names(like)
    assert len(set(names)) == len(jax.tree.leaves(like))


def test_names_are_unique_when_keys_hold_dots():
    assert len(set(trees.leaf_names({"a.b": jnp.ones(1), "a": {"b": jnp.ones(1)}}))) == 2


@pytest.mark.parametrize("longest", [0.5, 3.0])
def test_clipping_bounds_the_norm_and_keeps_the_direction(longest):
    clipped = trees.clip_norm(TREE, longest)  # ‖TREE‖ = √(5 + 4 + 4)
    assert float(trees.norm(clipped)) == pytest.approx(longest)
    np.testing.assert_allclose(flat(clipped) * np.sqrt(13.0), flat(TREE) * longest)


def test_clipping_leaves_what_is_short_alone():
    np.testing.assert_array_equal(flat(trees.clip_norm(TREE, 4.0)), flat(TREE))
