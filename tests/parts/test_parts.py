"""Parts of a model: frozen, adapted apart, kept at the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.flatten_util import ravel_pytree

from headstart._simulation import Simulation
from headstart._simulation.reference import run_rounds_slowly
from headstart.aggregation import Quantise, with_aggregation
from headstart.algorithms import APFL, FedAvg, Local, PerFedAvg
from headstart.algorithms._local_training import descend
from headstart.errors import ConfigError
from headstart.meta import MetaBatches, meta_value_and_gradient
from headstart.models import MODELS, cnn, logistic, mlp
from headstart.models._model import find_head
from headstart.parts import Parts, prepare_training
from headstart.trees import leaf_names, norm, size, subtract

MODEL = mlp([6, 5])
KEY = jax.random.key(2)
SCHEMA = tiny.federation().schema
HEAD = ["layers.2.weight", "layers.2.bias"]


def engine(parts: Parts, algorithm: Any = None) -> Simulation:
    algorithm = algorithm or FedAvg(**tiny.COMMON)
    return Simulation(tiny.federation(), MODEL, algorithm, parts=parts, seed=3)


def moved(before: Any, after: Any) -> set[str]:
    """Names of the leaves that differ."""
    pairs = zip(leaf_names(before), jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return {name for name, a, b in pairs if not np.array_equal(a, b)}


@pytest.mark.parametrize("name", MODELS)
def test_every_built_in_model_names_its_head(name: str) -> None:
    assert find_head(MODELS[name]())


def test_patterns_select_by_name() -> None:
    shapes = prepare_training(Parts(trained=("layers.0.*", "head")), MODEL, FedAvg(), KEY, SCHEMA)
    assert leaf_names(shapes.params) == ["layers.0.weight", "layers.0.bias", *HEAD]
    with pytest.raises(ConfigError, match=r"parts.trained: 'layer.9' selects nothing; there are"):
        prepare_training(Parts(trained=("layer.9",)), MODEL, FedAvg(), KEY, SCHEMA)
    with pytest.raises(ConfigError, match="keeps everything that is trained"):
        prepare_training(Parts(kept=("*",)), MODEL, FedAvg(), KEY, SCHEMA)


@pytest.mark.parametrize("algorithm", tiny.variants())
def test_what_is_frozen_is_in_no_state_and_never_moves(algorithm: Any) -> None:
    run = engine(Parts(trained=("head",)), algorithm)
    start = run.start()
    end = run.advance(start, 2)
    assert leaf_names(run.algorithm.model(end.state)) == HEAD
    assert size(run.algorithm.model(end.state)) == 5 * 3 + 3
    scores = run.evaluate(end, [0, 1], most=1)
    assert not scores.diverged.any()


def test_training_a_part_equals_training_all_with_the_rest_held() -> None:
    """FedAvg on the head alone, by hand on the full parameters."""
    algorithm = FedAvg(**tiny.COMMON)
    run = engine(Parts(trained=("head",)), algorithm)
    start = run.start()
    client = jnp.int32(1)
    sent = algorithm.broadcast(start.state, KEY)
    task = run.federation.training_task(client)
    reply, _, _ = jax.jit(algorithm.client_update)(sent, (), task, KEY)
    full = MODEL.init(run.keys.init, SCHEMA)
    plain = engine(Parts(), algorithm).federation.training_task(client)
    w, step = full, head_step(plain, algorithm.local_lr)
    for t in range(algorithm.local_steps):
        w = step(w, t)
    expected = ravel_pytree(subtract(w.layers[2], full.layers[2]))[0]
    np.testing.assert_allclose(ravel_pytree(reply.update)[0], expected, atol=1e-6)


def head_step(task: Any, step_size: float) -> Callable[[Any, int], Any]:
    """A step on batch t of which only the head's part is taken."""

    @jax.jit
    def step(w: Any, t: Any) -> Any:
        gradient = jax.grad(task.loss)(w, task.batch(jax.random.fold_in(KEY, t), 5))
        moved = descend(w, gradient, step_size)
        return eqx.tree_at(lambda p: p.layers[2], w, moved.layers[2])

    return step


def test_head_only_adaptation_equals_full_adaptation_with_the_bodys_step_zero() -> None:
    algorithm = FedAvg(**tiny.COMMON)
    run = engine(Parts(adapted=("head",)), algorithm)
    end = run.advance(run.start(), 1)
    task = run.federation.training_task(jnp.int32(2))
    own = jax.jit(algorithm.personalize)(end.state, (), task, KEY, 3)
    plain = engine(Parts(), algorithm).federation.training_task(jnp.int32(2))
    w, step = end.state.params, head_step(plain, algorithm.inner_lr)
    for t in range(3):
        w = step(w, t)
    assert tiny.identical(own, w) or tiny.distance(own, w) < 1e-7
    assert moved(end.state.params, own) == set(HEAD)


@pytest.mark.parametrize("method", ["exact", "hessian-free", "first-order"])
def test_the_meta_gradient_goes_through_head_steps_only(method: Any) -> None:
    """Against automatic differentiation of f(w − αM∇f(w)), in float64."""
    with jax.enable_x64(True):
        task = engine(Parts()).federation.training_task(jnp.int32(3))
        rows = task.start + jnp.arange(8)
        (x, y) = task.take(rows, [8])[0]
        batch = (jnp.asarray(x, float), y)
        w = jax.tree.map(lambda leaf: leaf.astype(float), MODEL.init(KEY, SCHEMA))
        adapted = [False] * 4 + [True] * 2
        batches = MetaBatches([batch, batch], batch, [batch, batch])
        d = jax.jit(
            lambda w: meta_value_and_gradient(
                task.loss, w, batches, inner_lr=0.2, method=method, delta=1e-4, adapted=adapted
            )[1]
        )(w)

        def adapt(w: Any) -> Any:
            for _ in range(2):
                gradient = jax.grad(task.loss)(w, batch)
                stepped = descend(w, gradient, 0.2)
                w = eqx.tree_at(lambda p: p.layers[2], w, stepped.layers[2])
            return w

        if method == "first-order":
            expected = jax.jit(lambda w: jax.grad(task.loss)(adapt(w), batch))(w)
        else:
            expected = jax.jit(jax.grad(lambda w: task.loss(adapt(w), batch)))(w)
        limit = 1e-6 if method == "hessian-free" else 1e-12
        assert float(norm(subtract(d, expected))) < limit * float(norm(expected))


@pytest.mark.parametrize(
    "algorithm", [FedAvg(**tiny.COMMON), PerFedAvg(**tiny.COMMON), APFL(**tiny.COMMON)]
)
def test_what_is_kept_never_leaves_a_client(algorithm: Any) -> None:
    run = engine(Parts(kept=("head",)), algorithm)
    start = run.start()
    sent = run.algorithm.broadcast(start.state, KEY)
    memory = jax.tree.map(lambda leaf: leaf[0], start.memory)
    task = run.federation.training_task(jnp.int32(0))
    reply, after, _ = jax.jit(run.algorithm.client_update)(sent, memory, task, KEY)
    body = [name for name in leaf_names(run.algorithm.model(start.state)) if name not in HEAD]
    assert leaf_names(reply.update) == leaf_names(sent.params) == body
    assert moved(memory.own, after.own) == set(HEAD)
    end = run.advance(start, 3)
    heads = [run.algorithm.model(p.state).layers[2] for p in (start, end)]
    assert tiny.identical(*heads), "the server's head stays where it was"
    own = np.asarray(end.memory.own.layers[2].weight)
    assert np.max(np.std(own, axis=0)) > 0, "every client has its own"


def test_keeping_a_part_in_both_engines_and_cut_into_pieces() -> None:
    run = engine(Parts(kept=("head",), adapted=("head",)))
    whole = run.advance(run.start(), 4)
    pieces = run.advance(run.advance(run.start(), 1), 3)
    assert tiny.identical((whole.state, whole.memory), (pieces.state, pieces.memory))
    params = MODEL.init(run.keys.init, SCHEMA)
    state, memories = run_rounds_slowly(
        run.algorithm, params, run.federation, run.keys, rounds=4, active=run.active
    )
    assert tiny.distance(state, whole.state) < 1e-5
    assert tiny.distance(memories[2], jax.tree.map(lambda m: m[2], whole.memory)) < 1e-5


def test_parts_cannot_be_kept_where_nothing_is_shared() -> None:
    with pytest.raises(ConfigError, match="shares no model"):
        run = engine(Parts(kept=("head",)), Local(**tiny.COMMON))
        run.advance(run.start(), 1)
    with pytest.raises(ConfigError, match="replies with iterate beside the update"):
        run = engine(Parts(kept=("head",)), FedAvg(**tiny.COMMON, random_iterate=True))
        run.advance(run.start(), 1)


def gradients_in(text: str) -> int:
    return text.count("dot_general")


def test_no_gradient_of_a_frozen_part_is_computed() -> None:
    """A step on the head needs no product for the body's weights: fewer products are compiled."""
    counts = []
    for parts in (Parts(), Parts(adapted=("head",)), Parts(trained=("head",))):
        run = engine(parts)
        state, task = run.start().state, run.federation.training_task(jnp.int32(0))
        task = task.for_adaptation()
        step = jax.jit(run.algorithm.personal_step)
        counts.append(gradients_in(step.lower(run.algorithm.model(state), task, KEY).as_text()))
    assert counts[1] == counts[2] < counts[0]


def test_the_head_of_a_convolutional_network_is_its_last_layer() -> None:
    model = cnn([4], hidden=[7])
    schema = type(SCHEMA)(shape=(8, 8, 1), classes=3)
    made = prepare_training(Parts(trained=("head",)), model, FedAvg(), KEY, schema)
    assert size(made.params) == 7 * 3 + 3
    assert find_head(logistic()) == ("*",)


def test_bytes_are_counted_by_what_travels() -> None:
    """6·4 + 6 + 5·6 + 5 = 65 numbers of the body, 18 of the head; β_k and a weight are one each."""
    everything = engine(Parts()).traffic
    assert (everything.down, everything.up) == (4 * (65 + 18 + 1), 4 * (65 + 18 + 1))
    head = engine(Parts(trained=("head",))).traffic
    assert (head.down, head.up) == (4 * (18 + 1), 4 * (18 + 1))
    kept = engine(Parts(kept=("head",))).traffic
    assert (kept.down, kept.up) == (4 * (65 + 1), 4 * (65 + 1))
    small = engine(Parts(), with_aggregation(FedAvg(**tiny.COMMON), [Quantise(width=8)])).traffic
    assert (small.down, small.up) == (everything.down, 83 + 4)
    assert engine(Parts(), Local(**tiny.COMMON)).traffic == (0, 4)
