"""Chains and rules by what defines them, and in both engines."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart._experiments import Experiment
from headstart._simulation import Simulation
from headstart._simulation.reference import run_rounds_slowly
from headstart.aggregation import (
    RULES,
    STEPS,
    AggregationRule,
    AggregationStep,
    Clip,
    GeometricMedian,
    Krum,
    Median,
    Noise,
    Quantise,
    TrimmedMean,
    with_aggregation,
)
from headstart.aggregation._chain import AT_CLIENT
from headstart.algorithms import Algorithm, FedAvg
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Cohort, Reply
from headstart.errors import ConfigError
from headstart.trees import norm, scale

KEY = jax.random.key(1)
TREE = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([[12.0]])}


def reply(update: Any, weight: float = 1.0) -> Reply:
    return Reply(update, jnp.asarray(weight))


def cohort(update: Any, answered: int = 1) -> Cohort:
    return Cohort(update, {}, jnp.int32(answered), answered, answered)


@pytest.mark.parametrize("bound", [0.5, 12.9, 13.0, 100.0])
def test_clipping_bounds_the_norm_and_keeps_the_direction(bound: float) -> None:
    """‖(3, −4, 12)‖ = 13."""
    clipped = Clip(norm=bound).at_client((), reply(TREE), KEY).update
    assert float(norm(clipped)) == pytest.approx(min(13.0, bound), rel=1e-6)
    assert tiny.distance(scale(clipped, 13.0 / norm(clipped)), TREE) < 1e-5


def test_quantised_numbers_are_few_integers_without_bias() -> None:
    step = Quantise(width=4, range=2.0)
    update = {"u": jnp.linspace(-2.0, 2.0, 9)}
    sent = jax.vmap(lambda k: step.at_client((), reply(update), k).update["u"])(
        jax.random.split(KEY, 4000)
    )
    assert step.levels == 7 and set(np.unique(np.asarray(sent))) <= set(range(-7, 8))
    back, _ = step.at_server((), cohort({"u": jnp.mean(sent, axis=0)}), KEY)
    # A level is 2/7 apart, so a mean of 4,000 has a deviation of at most 2/7/2/√4000 = 0.0023.
    np.testing.assert_allclose(back.update["u"], update["u"], atol=0.012)
    far = step.at_client((), reply({"u": jnp.array([-9.0, 9.0])}), KEY).update["u"]
    assert far.tolist() == [-7.0, 7.0]


def test_noise_has_the_stated_deviation() -> None:
    step = Noise(deviation=3.0)
    zero = {"u": jnp.zeros(40_000)}
    noisy, _ = step.at_server((), cohort(zero, answered=6), KEY)
    assert float(jnp.std(noisy.update["u"])) == pytest.approx(0.5, rel=0.02)
    again, _ = step.at_server((), cohort(zero, answered=6), KEY)
    assert tiny.identical(noisy.update, again.update)


def stacked(*rows: Any) -> Any:
    return {"u": jnp.asarray(rows, float)}


HONEST = [[1.0, 2.0], [1.2, 2.2], [0.8, 1.8], [1.1, 1.9]]
LIAR = [1e6, -1e6]


def test_rules_by_hand() -> None:
    weights = jnp.ones(5)
    rows = stacked(*HONEST, LIAR)
    assert Median().combine(rows, weights)["u"].tolist() == pytest.approx([1.1, 1.9])
    untrimmed = TrimmedMean(trim=0.0).combine(rows, weights)["u"]
    np.testing.assert_allclose(untrimmed, np.mean(rows["u"], axis=0), rtol=1e-6)
    trimmed = TrimmedMean(trim=0.2).combine(rows, weights)["u"].tolist()
    assert trimmed == pytest.approx([(1.0 + 1.1 + 1.2) / 3, (1.8 + 1.9 + 2.0) / 3])
    # Squared distances to the two nearest of the others: 0.03, 0.08 + …; [1.0, 2.0] is nearest.
    assert Krum(byzantine=1).combine(rows, weights)["u"].tolist() == pytest.approx([1.0, 2.0])
    two = Krum(byzantine=1, selected=2).combine(rows, weights)["u"].tolist()
    assert two == pytest.approx([1.05, 1.95])


def test_the_geometric_median_has_balanced_directions() -> None:
    """Where it is no data point, the weighted unit vectors to the points add up to zero."""
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(7, 3)), rng.uniform(0.5, 2.0, 7)
    found = GeometricMedian(iterations=200).combine({"u": jnp.asarray(rows)}, jnp.asarray(weights))[
        "u"
    ]
    away = rows - np.asarray(found)
    pull = (weights[:, None] * away / np.linalg.norm(away, axis=1, keepdims=True)).sum(axis=0)
    assert np.linalg.norm(pull) < 1e-3


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(trim=0.25), GeometricMedian()])
def test_a_rule_of_equal_replies_is_that_reply(rule: AggregationRule) -> None:
    rows = stacked(*[[1.0, -2.0]] * 4)
    np.testing.assert_allclose(rule.combine(rows, jnp.ones(4))["u"], [1.0, -2.0], rtol=1e-6)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(trim=0.2), Krum(), GeometricMedian()])
def test_one_liar_of_five_does_not_move_the_result_far(rule: AggregationRule) -> None:
    found = rule.combine(stacked(*HONEST, LIAR), jnp.ones(5))["u"]
    assert np.linalg.norm(np.asarray(found) - np.mean(HONEST, axis=0)) < 0.5


CHAINS: dict[str, tuple[tuple[AggregationStep, ...], AggregationRule | None]] = {
    "clip": ((Clip(norm=0.1),), None),
    "all steps": ((Clip(norm=0.5), Quantise(width=8, range=0.5), Noise(deviation=0.01)), None),
    "median": ((), Median()),
    "clip, trimmed mean": ((Clip(norm=0.1),), TrimmedMean(trim=0.3)),
    "krum": ((), Krum(byzantine=1)),
    "geometric median": ((), GeometricMedian(iterations=8)),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("name", ["per-fedavg-exact", "apfl", "aruba", "fedavg-weighted-adam"])
def test_engines_agree_and_cutting_changes_nothing(name: str, chain: Any) -> None:
    algorithm = with_aggregation(tiny.VARIANTS[name], *chain)
    engine = Simulation(tiny.federation(), tiny.MODEL, algorithm, seed=4)
    whole = engine.advance(engine.start(), 4)
    pieces = engine.advance(engine.advance(engine.start(), 1), 3)
    assert tiny.identical((whole.state, whole.memory), (pieces.state, pieces.memory))
    params = tiny.MODEL.init(engine.keys.init, engine.data.schema)
    state, memories = run_rounds_slowly(
        algorithm, params, engine.federation, engine.keys, rounds=4, active=engine.active
    )
    assert tiny.distance(state, whole.state) < 1e-4
    slow = jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories)
    assert tiny.distance(slow, whole.memory) < 1e-4


def test_nothing_selected_is_the_algorithm_itself() -> None:
    algorithm = FedAvg(**tiny.COMMON)
    assert with_aggregation(algorithm) is algorithm


def test_steps_that_do_nothing_change_nothing() -> None:
    """A chain whose bound is never reached: the same model to the bit."""
    plain = FedAvg(**tiny.COMMON)
    chained = with_aggregation(plain, [Clip(norm=1e6)])
    ends = []
    for algorithm in (plain, chained):
        engine = Simulation(tiny.federation(), tiny.MODEL, algorithm)
        ends.append(algorithm.model(engine.advance(engine.start(), 3).state))
    assert tiny.identical(*ends)


def test_the_wrapped_algorithm_still_answers() -> None:
    for algorithm in tiny.VARIANTS.values():
        chained: Algorithm = with_aggregation(algorithm, [Clip(), Quantise(width=6)])
        assert chained.name == algorithm.name and chained.label == algorithm.label
        assert chained.gradients_per_update(9) == algorithm.gradients_per_update(9)
        assert chained.needs_memory == algorithm.needs_memory
        assert (chained.bits_per_number, algorithm.bits_per_number) == (6, 32)


def test_scales_multiply_along_the_chain() -> None:
    """Also those of an algorithm that is a chain itself; a level of width 4 is range / 7."""
    once = with_aggregation(FedAvg(**tiny.COMMON), [Clip(), Quantise(width=4, range=2.0)])
    twice = with_aggregation(once, [Quantise(width=4, range=3.5)])
    assert once.update_scale == pytest.approx(2 / 7)
    assert twice.update_scale == pytest.approx(2 / 7 * 0.5)


def test_a_rule_that_cannot_be_paid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs 7 replies; a round has 5"):
        Simulation(
            tiny.federation(),
            tiny.MODEL,
            with_aggregation(FedAvg(**tiny.COMMON), (), Krum(byzantine=2)),
        )
    monkeypatch.setattr("headstart._simulation.simulation.MOST_FOR_RULE", 10)
    with pytest.raises(ConfigError, match="needs all 5 replies of a round at once"):
        Simulation(
            tiny.federation(), tiny.MODEL, with_aggregation(FedAvg(**tiny.COMMON), (), Median())
        )


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Clip, {"norm": 0.0}), (Quantise, {"width": 1}), (Quantise, {"range": -1.0}),
     (Noise, {"deviation": 0.0}), (TrimmedMean, {"trim": 0.5}), (Krum, {"byzantine": -1}),
     (Krum, {"selected": 0}), (GeometricMedian, {"iterations": 0})],
)  # fmt: skip
def test_impossible_options_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        kind(**options)


def test_the_least_possible_options_are_accepted() -> None:
    """Krum with no liar is the reply nearest to the others; one Weiszfeld step moves the mean."""
    rows, weights = stacked([0.0], [1.0], [2.0], [9.0]), jnp.ones(4)
    assert Krum(byzantine=0).needs() == 3
    assert Krum(byzantine=0).combine(rows, weights)["u"].tolist() == [1.0]
    # From the mean 3 the distances are 3, 2, 1 and 6, so the shares are 2 : 3 : 6 : 1.
    moved = GeometricMedian(iterations=1).combine(rows, weights)["u"].tolist()
    assert moved == pytest.approx([24 / 12])


def test_everything_has_a_name_for_experiment_files() -> None:
    assert set(STEPS) == {"clip", "quantise", "noise"}
    assert set(RULES) == {"median", "trimmed-mean", "krum", "geometric-median"}


def test_means_are_weighted_and_nobody_weighs_nothing() -> None:
    rows = [reply({"u": jnp.array([1.0])}, 1.0), reply({"u": jnp.array([4.0])}, 2.0)]
    assert build_cohort(rows, asked=2, exist=9).update["u"].tolist() == [3.0]
    none = [reply({"u": jnp.array([1.0])}, 0.0)]
    assert build_cohort(none, asked=1, exist=1).update["u"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rule": "mediann"}, r"aggregation\.rule='mediann' is not known; did you mean median"),
        ({"trim": 0.1}, r"aggregation\.trim is not an option"),
        ({"rule": "median", "trim": 0.1}, r"aggregation\.trim is not an option"),
        ({"rule": "trimmed-mean", "trim": 0.9}, r"aggregation\.trim=0\.9"),
        ({"steps": [{"name": "clipp"}]}, r"aggregation\.steps\.name='clipp' is not known"),
        ({"steps": "clip"}, r"aggregation\.steps='clip' does not fit"),
    ],
)
def test_mistakes_in_an_experiment_name_their_option(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.from_table({"aggregation": table})


def test_where_the_gradient_norm_is_measured_has_a_default() -> None:
    algorithm = tiny.VARIANTS["apfl"]
    state = algorithm.init(tiny.MODEL.init(KEY, tiny.federation().schema))
    assert not algorithm.measures_gradient_norm
    found = algorithm.gradient_norm_point(state)
    assert found.inner_steps == 0 and tiny.identical(found.params, algorithm.model(state))


def test_the_chains_keys_are_not_those_of_training() -> None:
    """Training folds in the numbers of local steps; the chain's number is beyond any of them."""
    assert 2**31 < AT_CLIENT < 2**32
