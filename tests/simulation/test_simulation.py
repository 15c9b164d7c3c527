"""What a simulation refuses, and which clients it looks at."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

from headstart._simulation import Simulation, simulation
from headstart._simulation.constant import score_constant_answer
from headstart.aggregation import Krum, Median, with_aggregation
from headstart.algorithms import FedAvg
from headstart.errors import ConfigError

PLAIN = FedAvg(**tiny.COMMON)


def test_a_rule_may_use_all_the_memory_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five replies of 15 numbers with four bytes each, on two devices."""
    algorithm = with_aggregation(PLAIN, (), Median())
    monkeypatch.setattr(simulation, "MOST_FOR_RULE", 5 * 15 * 4 * 2)
    Simulation(tiny.federation(), tiny.MODEL, algorithm)
    monkeypatch.setattr(simulation, "MOST_FOR_RULE", 5 * 15 * 4 * 2 - 1)
    with pytest.raises(ConfigError, match="lower participation"):
        Simulation(tiny.federation(), tiny.MODEL, algorithm)


def test_a_rule_that_needs_too_much_memory_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five replies of 10⁹ numbers with four bytes each, on two devices; 4 GiB are 4.3 GB."""
    monkeypatch.setattr(simulation, "size", lambda tree: 10**9)
    with pytest.raises(ConfigError, match=r"40\.0 GB of at most 4\.3"):
        Simulation(tiny.federation(), tiny.MODEL, with_aggregation(PLAIN, (), Median()))


def test_a_rule_may_need_every_reply_of_a_round() -> None:
    algorithm = with_aggregation(PLAIN, (), Krum(byzantine=1))
    assert Simulation(tiny.federation(), tiny.MODEL, algorithm).active == algorithm.rule.needs()


def test_the_constant_answer_is_that_of_known_clients() -> None:
    engine = Simulation(tiny.federation(), tiny.MODEL, PLAIN)
    known = score_constant_answer(engine.objective, engine.data, range(5))
    one_more = score_constant_answer(engine.objective, engine.data, range(6))
    assert engine.constant_answer() == known != one_more


def test_a_run_begins_before_the_first_round_with_an_empty_log() -> None:
    engine = Simulation(tiny.federation(), tiny.MODEL, PLAIN)
    assert engine.start().round == engine.shapes().round == 0
    assert engine.start().losses.shape == (0,)
    assert np.array_equal(engine.evaluated, np.arange(7))
