"""The server's step is the same for every algorithm that has one, and follows its formula."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import tiny

from headstart.algorithms import ALGORITHMS, APFL, ARUBA, FedAvg, PerFedAvg, ServerStep
from headstart.algorithms._aruba import Rates
from headstart.algorithms._contract import Cohort
from headstart.errors import ConfigError
from headstart.options import to_table
from headstart.records._tensor_files import named_arrays
from headstart.trees import scale

KEY = jax.random.key(0)
START = 2.0
PARAMS = {"bias": jnp.full(3, START), "weight": jnp.full((2, 3), START)}
METHODS: list[Any] = [FedAvg, PerFedAvg, APFL, ARUBA]
each_method = pytest.mark.parametrize("method", METHODS)


def rounds(algorithm: Any, updates: Sequence[float], first: int = 0) -> tuple[list[float], Any]:
    """Return the model after each round with these mean updates, and the last state.

    All entries of the model are equal, and stay equal.
    """
    state = algorithm.init(PARAMS)._replace(round=jnp.int32(first))
    path = []
    for u in updates:
        update = jax.tree.map(lambda leaf, u=u: jnp.full_like(leaf, u), PARAMS)
        parts = {"rates": Rates(scale(update, 0.5), update)} if method_learns(algorithm) else {}
        state, info = algorithm.server_update(state, Cohort(update, parts, jnp.int32(1), 1, 1), KEY)
        values = {float(x) for leaf in jax.tree.leaves(state.params) for x in leaf.ravel()}
        assert len(values) == 1 and math.isfinite(info["update_norm"])
        path.append(values.pop())
    return path, state


def method_learns(algorithm: Any) -> bool:
    return isinstance(algorithm, ARUBA)


def test_every_algorithm_with_a_shared_model_has_the_servers_options() -> None:
    with_step = {name for name, cls in ALGORITHMS.items() if issubclass(cls, ServerStep)}
    assert with_step == set(ALGORITHMS) - {"local"}


@each_method
def test_without_options_the_mean_update_is_added(method: Any) -> None:
    path, state = rounds(method(), [0.5, -0.25])
    assert path == [2.5, 2.25]
    assert state.optimizer == () and int(state.round) == 2


@each_method
def test_two_rounds_of_momentum_by_hand(method: Any) -> None:
    """m ← u + 0.9 m, w ← w + ηm: 2 + 0.1 · 0.5, then + 0.1 (−0.25 + 0.45)."""
    path, _ = rounds(method(server_optimizer="momentum", server_lr=0.1), [0.5, -0.25])
    assert path == pytest.approx([2.05, 2.07], abs=1e-6)


@each_method
def test_two_rounds_of_adam_by_hand(method: Any) -> None:
    """Kingma and Ba (2015), Algorithm 1, with the gradient −u."""
    path, _ = rounds(method(server_optimizer="adam", server_lr=0.1), [0.5, -0.25])
    m, v, w, expected = 0.0, 0.0, START, []
    for t, u in enumerate([0.5, -0.25], start=1):
        m, v = 0.9 * m + 0.1 * u, 0.999 * v + 0.001 * u**2
        w += 0.1 * m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        expected.append(w)
    assert path == pytest.approx(expected, abs=1e-5)
    assert path[1] - path[0] == pytest.approx(0.0266337, abs=1e-5)  # 0.1 · 0.10526 / √0.15620


@each_method
def test_warm_up_and_decay_scale_the_step(method: Any) -> None:
    """s_k = min((k+1)/4, 1), times 1/√(k+1) or (1 + cos(πk/10))/2, at least 0.01."""

    def share(k: int, **options: Any) -> float:
        return rounds(method(**options), [1.0], first=k)[0][0] - START

    near = pytest.approx
    assert [share(k, warmup_rounds=4) for k in (0, 1, 9)] == near([0.25, 0.5, 1.0])
    assert share(3, server_lr_decay="inverse-sqrt", server_lr=0.6) == near(0.3)
    cosine: dict[str, Any] = {"server_lr_decay": "cosine", "decay_rounds": 10}
    assert [share(k, **cosine) for k in (0, 5, 50)] == near([1.0, 0.5, 0.01], abs=1e-6)
    assert share(2, warmup_rounds=6, server_lr_decay="inverse-sqrt") == near(0.5 / math.sqrt(3))


@each_method
def test_weight_decay_takes_a_share_of_the_model(method: Any) -> None:
    path, _ = rounds(method(weight_decay=0.1), [0.0, 1.0])
    assert path == pytest.approx([1.8, 0.9 * 1.8 + 1.0])
    path, _ = rounds(method(weight_decay=0.1, warmup_rounds=2), [0.0, 0.0])
    assert path == pytest.approx([0.95 * 2, 0.9 * 0.95 * 2])


@pytest.mark.parametrize("method", [APFL, ARUBA])
def test_without_options_the_program_only_adds(method: Any) -> None:
    """So it rounds as it did before there were options; other values share one program."""

    def program(algorithm: Any) -> str:
        arguments = PARAMS, (), jnp.int32(0), PARAMS
        step = jax.jit(lambda made, *rest: made.server_step(*rest)[0])
        return str(step.lower(algorithm, *arguments).compile().as_text())

    assert "multiply" not in program(method())
    assert "multiply" in program(method(server_lr=0.5))
    assert "multiply" in program(method(weight_decay=0.5))
    one, two, plain = (
        str(jax.tree.structure(method(server_lr=lr, weight_decay=decay)))
        for lr, decay in ((0.5, 0.1), (0.7, 0.2), (1.0, 0.0))
    )
    assert one == two != plain
    given = method(server_lr=1, weight_decay=0)
    assert given == method() and to_table(given) == to_table(method())
    assert json.dumps(given.server_lr) == "1.0" and 2 * given.server_lr == 2.0


def test_what_aruba_learns_does_not_depend_on_the_servers_step() -> None:
    """b and g are about the clients' movement and gradients, and φ alone takes the step."""
    stepping = ARUBA(server_optimizer="adam", server_lr=0.1, weight_decay=0.1)
    plain, adam = (rounds(made, [0.5, -0.25])[1] for made in (ARUBA(), stepping))
    assert tiny.identical(plain.rates, adam.rates)
    assert tiny.distance(plain.params, adam.params) > 0.1


@each_method
def test_without_an_optimiser_a_checkpoint_has_the_arrays_it_always_had(method: Any) -> None:
    """So runs of earlier versions, which had no such field, can be resumed."""
    names = set(named_arrays({"state": method().init(PARAMS)}))
    assert not any("optimizer" in name for name in names)
    more = named_arrays({"state": method(server_optimizer="momentum").init(PARAMS)})
    assert names < set(more) and len(more) == len(names) + len(PARAMS)


@each_method
@pytest.mark.parametrize("optimizer", [None, "none", "adam"])
def test_a_smaller_step_of_the_server_is_advised_only_with_an_optimiser(
    method: Any, optimizer: str | None
) -> None:
    advice = method(server_optimizer=optimizer).smaller_steps
    assert ("algorithm.server_lr" in advice) == (optimizer == "adam")
    assert advice.startswith("algorithm.local_lr=0.005 (now 0.05)")


@each_method
@pytest.mark.parametrize(
    "options, message",
    [
        ({"server_optimizer": "adm"}, "server_optimizer='adm' is not known; use one of sgd"),
        ({"server_lr": 0.0}, "server_lr=0.0 must be a finite number above 0"),
        ({"warmup_rounds": -1}, "warmup_rounds=-1 must be at least 0"),
        ({"server_lr_decay": "linear"}, "server_lr_decay='linear' is not known"),
        ({"server_lr_decay": "cosine"}, "a cosine needs decay_rounds, and only a cosine"),
        ({"decay_rounds": 5}, "a cosine needs decay_rounds, and only a cosine"),
        ({"server_lr_decay": "cosine", "decay_rounds": 0}, "decay_rounds=0 must be at least 1"),
        ({"weight_decay": 1.0}, "weight_decay=1.0 must lie between 0 and 1"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must lie between 0 and 1"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    method: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        method(**options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
