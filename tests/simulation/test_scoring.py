"""Evaluation against a loop over clients and examples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from headstart._simulation import Progress, Simulation, scoring
from headstart.algorithms import Algorithm, FedAvg, Task
from headstart.models import Classification

STEPS = 3


@pytest.fixture(scope="module", params=["per-fedavg-exact", "apfl"])
def trained(request: pytest.FixtureRequest) -> tuple[Simulation, Progress]:
    algorithm = tiny.VARIANTS[request.param]
    engine = Simulation(tiny.federation(), tiny.MODEL, algorithm, participation=0.6)
    return engine, engine.advance(engine.start(), 5)


def slow_scores(
    engine: Simulation, progress: Progress, client: int, steps: int, adapt_on: str
) -> tuple[float, float]:
    """One client, by the contract and NumPy, on one device."""
    progress = jax.tree.map(np.asarray, progress)
    algorithm: Algorithm = engine.algorithm
    known = client < engine.data.known_clients
    fresh = algorithm.init_memory(progress.state)
    memory = jax.tree.map(lambda m: m[client], progress.memory) if known else fresh
    clients = engine.federation
    pick = clients.held_out_task if adapt_on == "test" else clients.training_task
    key = engine.keys.adaptation(client)
    params = algorithm.personalize(progress.state, memory, pick(jnp.int32(client)), key, steps)
    held = engine.data.client(client)
    logits = np.asarray(tiny.MODEL.apply(params, jnp.asarray(held.x_test)), float)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = -log_p[np.arange(len(held.y_test)), held.y_test].mean()
    return float(loss), float(np.mean(logits.argmax(axis=1) == held.y_test))


@pytest.mark.parametrize("adapt_on", ["train", "test"])
def test_scores_are_those_of_a_plain_loop(
    trained: tuple[Simulation, Progress], adapt_on: str
) -> None:
    """Known and new clients, held-out splits of 3 to 63 examples (one block and a bit)."""
    engine, progress = trained
    scores = engine.evaluate(progress, [0, STEPS], adapt_on=adapt_on, most=4)  # type: ignore[arg-type]
    assert scores.loss.shape == (7, 5)
    for client in range(7):
        for step in (0, STEPS):
            loss, accuracy = slow_scores(engine, progress, client, step, adapt_on)
            assert scores.loss[client, step] == pytest.approx(loss, abs=2e-5)
            assert scores.primary[client, step] == pytest.approx(accuracy, abs=1e-6)
    assert np.isnan(scores.loss[:, [1, 2, 4]]).all()


def test_asking_for_more_steps_does_not_change_earlier_ones(
    trained: tuple[Simulation, Progress],
) -> None:
    engine, progress = trained
    few = engine.evaluate(progress, [0, 2], most=4)
    all_steps = engine.evaluate(progress, [0, 1, 2, 3, 4], most=4)
    np.testing.assert_array_equal(few.loss[:, [0, 2]], all_steps.loss[:, [0, 2]])
    assert not np.isnan(all_steps.loss).any()


def test_training_never_touches_held_out_rows() -> None:
    """Spoil every held-out row and every new client: the trained model stays the same."""
    engine = Simulation(tiny.federation(), tiny.MODEL, FedAvg(**tiny.COMMON))
    spoiled = tiny.federation()
    for client in range(spoiled.clients):
        cut = int(spoiled.offsets[client])
        cut += int(spoiled.train_counts[client]) if client < spoiled.known_clients else 0
        spoiled.x[cut : int(spoiled.offsets[client + 1])] = np.nan
    blind = Simulation(spoiled, tiny.MODEL, FedAvg(**tiny.COMMON))
    assert tiny.identical(
        engine.advance(engine.start(), 3).state, blind.advance(blind.start(), 3).state
    )


@pytest.mark.parametrize("examples, blocks", [(0, 0), (1, 1), (63, 1), (64, 1), (65, 2), (128, 2)])
def test_no_block_of_examples_is_empty(examples: int, blocks: int) -> None:
    data = tiny.federation()
    objective = Classification(tiny.MODEL, data.schema)
    task = Task(objective, (data.x, data.y), jnp.int32(0), jnp.int32(examples))
    assert int(scoring.count_blocks(task)) == blocks


def test_a_model_that_is_not_finite_has_no_accuracy() -> None:
    """Steps this large overflow for some clients: exactly these have no score."""
    engine = Simulation(tiny.federation(), tiny.MODEL, FedAvg(**{**tiny.COMMON, "inner_lr": 3e38}))
    scores = engine.evaluate(engine.start(), [0, 1, 2, 3], most=3)
    assert not scores.diverged[:, 0].any()
    assert scores.diverged[:, 3].any()
    np.testing.assert_array_equal(np.isnan(scores.primary), scores.diverged)


def test_outputs_and_loss_must_both_be_finite() -> None:
    """Four examples each: well; an output that is not finite; a sum of losses that overflows."""
    objective = Classification(tiny.MODEL, tiny.federation().schema)
    none = np.zeros(objective.width)
    rows = [[2.0, *none, 0.0], [2.0, *none, 1.0], [np.inf, *none, 0.0]]
    scores = scoring.scores_from_sums(
        objective, np.array(rows)[:, None], np.arange(3), np.full(3, 4), np.array([True])
    )
    assert scores.diverged[:, 0].tolist() == [False, True, True]
    np.testing.assert_array_equal(scores.loss[:, 0], [0.5, np.nan, np.nan])


def test_of_very_many_clients_a_random_choice_is_evaluated() -> None:
    """At most three known and one new, the same at the same seed; their scores are as ever."""
    data, algorithm = tiny.federation(), FedAvg(**tiny.COMMON)
    every = Simulation(data, tiny.MODEL, algorithm)
    some = [Simulation(data, tiny.MODEL, algorithm, evaluate_at_most=3, seed=s) for s in range(8)]
    assert every.evaluated.tolist() == list(range(7))
    for engine in some:
        assert sum(engine.evaluated < 5) == 3 and sum(engine.evaluated >= 5) == 2
        assert len(set(engine.evaluated.tolist())) == 5
    assert len({tuple(engine.evaluated) for engine in some}) > 1
    few, all_of_them = some[0].evaluate(some[0].start(), [1]), every.evaluate(every.start(), [1])
    assert few.clients.tolist() == some[0].evaluated.tolist()
    assert few.loss.shape == (5, 11)  # evaluations of up to ten steps share one program
    np.testing.assert_allclose(few.loss[:, 1], all_of_them.loss[few.clients, 1], atol=1e-6)


def test_clients_whose_sums_fill_the_memory_are_scored_one_by_one() -> None:
    clients = np.array([3, 1, 2])
    for width in (scoring.MOST_SUMS, 2 * scoring.MOST_SUMS):
        groups = scoring.split_clients(clients, 1, width)
        assert [group.tolist() for group in groups] == [[3], [1], [2]]
    [both, last] = scoring.split_clients(clients, 2, scoring.MOST_SUMS // 4)
    assert (both.tolist(), last.tolist()) == ([3, 1], [2])


def test_scoring_a_few_clients_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics with many sums are scored in pieces; AUC of three classes has 1,200 per client."""
    objective = {"metrics": ["accuracy", "auc", "macro-f1"]}
    engine = Simulation(tiny.federation(), tiny.MODEL, FedAvg(**tiny.COMMON), objective=objective)
    whole = engine.evaluate(engine.start(), [0, 1], most=1)
    monkeypatch.setattr(scoring, "MOST_SUMS", 3 * 2 * (engine.objective.width + 2))
    parts = engine.evaluate(engine.start(), [0, 1], most=1)
    assert whole.clients.tolist() == parts.clients.tolist() == list(range(7))
    np.testing.assert_allclose(whole.loss, parts.loss, rtol=1e-6)
    assert list(whole.values) == objective["metrics"]
    for name, values in whole.values.items():
        np.testing.assert_allclose(values, parts.values[name], rtol=1e-6)
    plain = Simulation(tiny.federation(), tiny.MODEL, FedAvg(**tiny.COMMON))
    alone = plain.evaluate(plain.start(), [0, 1], most=1)
    np.testing.assert_array_equal(alone.primary, whole.primary)
