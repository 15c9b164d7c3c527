"""The experiment file: defaults, overrides, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart._experiments import Experiment, load_experiment
from headstart._experiments.configuration import DEFAULT, apply_setting, upgrade_stored_table
from headstart.algorithms import ALGORITHMS
from headstart.errors import ConfigError, HeadstartError
from headstart.models import MODELS


def test_a_config_written_out_gives_itself(tmp_path: Path) -> None:
    first = load_experiment(None)
    path = tmp_path / "config.toml"
    path.write_text(first.to_toml())
    assert load_experiment(path) == first
    assert load_experiment(path).fingerprint() == first.fingerprint()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_every_algorithm_and_model_can_be_named(name: str, model: str, tmp_path: Path) -> None:
    experiment = Experiment.from_table({"algorithm": {"name": name}, "model": {"name": model}})
    path = tmp_path / "config.toml"
    path.write_text(experiment.to_toml())
    again = load_experiment(path)
    assert again == experiment
    assert again.build_algorithm() == experiment.build_algorithm()
    assert type(again.build_model()) is MODELS[model]


def test_the_fingerprint_ignores_the_end_and_the_label_only() -> None:
    base = load_experiment(None)
    assert load_experiment(None, ["rounds=7", "label=x"]).fingerprint() == base.fingerprint()
    for setting in ("seed=1", "algorithm.inner_lr=0.2", "data.clients=10", "model.hidden=[3]"):
        assert load_experiment(None, [setting]).fingerprint() != base.fingerprint()


@pytest.mark.parametrize(
    "setting, message",
    [
        ("sed=1", "sed is not an option; did you mean seed?"),
        ("algorithm.inner_rl=1", "algorithm.inner_rl is not an option; did you mean inner_lr?"),
        ("algorithm.name=fedavgg", "did you mean fedavg?"),
        ("algorithm.inner_lr=0", "algorithm.inner_lr=0.0 must be a finite number above 0"),
        ("algorithm.local_lr=nan", "algorithm.local_lr=nan must be a finite number above 0"),
        ("algorithm.method=second", "algorithm.method='second'"),
        ("algorithm.batch_size=[1,2]", "algorithm.batch_size"),
        ("evaluation.every=0", "evaluation.every=0 must be at least 1"),
        ("evaluation.adapt_on=validation", "evaluation.adapt_on='validation'"),
        ("evaluation.often=1", "evaluation.often is not an option"),
        ("model.name=resnet", "model.name='resnet' is not known"),
        ("model.hiden=[3]", "model.hiden is not an option; did you mean hidden?"),
        ("data.source=imagenet", "data.source"),
        ("data.partition=random", "data.partition"),
        ("data.cleints=3", "data.cleints is not an option"),
        ("rounds=0", "rounds=0 must be at least 1"),
        ("rounds=many", "rounds='many' does not fit"),
        ("seed=-1", "seed=-1"),
        ("participation=lots", "participation='lots'"),
        ("algorithm=3", "algorithm must be a table"),
        ("rounds", "is not key=value"),
    ],
)
def test_a_mistake_is_named_in_one_line(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(None, [setting])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_experiments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_experiment(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_experiment(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"label = '\xff'")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_experiment(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_experiment(tmp_path)


def test_settings_are_toml_or_text() -> None:
    table: dict[str, Any] = {}
    for setting in ("a.b=[1, 2]", "a.c=text", "d=true", 'e="quoted = sign"'):
        apply_setting(table, setting)
    assert table == {"a": {"b": [1, 2], "c": "text"}, "d": True, "e": "quoted = sign"}


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-3, 50), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["exact", "uniform", "adam", "class-groups", "iid", "digits", "train", 1, 0.5]),
)
PLACES = [
    *("label", "seed", "rounds", "participation", "data", "model", "algorithm", "evaluation"),
    *("data.source", "data.path", "data.partition", "data.clients", "data.new_clients"),
    *("data.test_fraction", "data.a", "data.alpha", "data.min_examples"),
    *("model.name", "model.hidden", "model.activation"),
    *("algorithm.name", "algorithm.inner_lr", "algorithm.local_lr", "algorithm.local_steps"),
    *("algorithm.batch_size", "algorithm.method", "algorithm.inner_steps", "algorithm.delta"),
    *("algorithm.weights", "algorithm.server_optimizer", "algorithm.mixing", "algorithm.server_lr"),
    *("evaluation.every", "evaluation.adapt_steps", "evaluation.adapt_on", "evaluation.x"),
]


@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=4))
def test_any_table_is_accepted_or_refused_in_one_line(changes: list[tuple[str, Any]]) -> None:
    """1,500 random configurations: an experiment that survives its own file, or a clear line."""
    table = json.loads(json.dumps(DEFAULT))
    for place, value in changes:
        section, _, key = place.partition(".")
        if not key:
            table[section] = value
        elif isinstance(table.get(section), dict):
            table[section][key] = value
    try:
        experiment = Experiment.from_table(table)
    except HeadstartError as error:
        assert str(error) and "\n" not in str(error).strip()
        assert error.exit_code == 2
    else:
        assert Experiment.from_table(experiment.to_table()) == experiment


def test_options_that_came_later_do_not_change_the_fingerprint_unless_they_are_used() -> None:
    """The fingerprint that the version before learned rates computed for this experiment."""
    settings = ["algorithm.name=fedavg", "data.source=digits", "algorithm.max_gradient_norm=inf"]
    assert load_experiment(None, settings).fingerprint() == "a1e1f3aea0f0174e"
    learned = load_experiment(None, [*settings, "algorithm.rates=per-array"])
    assert learned.fingerprint() != "a1e1f3aea0f0174e"
    assert load_experiment(None, settings[:2]).fingerprint() != "a1e1f3aea0f0174e"


@pytest.mark.parametrize(
    "name, fingerprint",
    [("local", "f4352454fb520964"), ("apfl", "47d94db218eb3171"), ("aruba", "c82cf5c3fee8de1f")],
)
def test_options_that_other_algorithms_had_before_count_only_where_they_are_used(
    name: str, fingerprint: str
) -> None:
    """The fingerprints that were computed when only fedavg and per-fedavg had optimisers."""
    settings = [f"algorithm.name={name}", "data.source=digits", "algorithm.max_gradient_norm=inf"]
    assert load_experiment(None, settings).fingerprint() == fingerprint
    used = {
        "local": "local_lr_decay=inverse-sqrt",
        "apfl": "local_optimizer=adam",
        "aruba": "server_lr=0.5",
    }[name]
    assert load_experiment(None, [*settings, f"algorithm.{used}"]).fingerprint() != fingerprint


@pytest.mark.parametrize(
    "name, option, owners",
    [
        ("local", "server_lr=0.5", "apfl, aruba, fedavg, per-fedavg"),
        ("aruba", "local_optimizer=adam", "apfl, fedavg, local, per-fedavg"),
        ("fedavg", "mixing=0.5", "apfl"),
    ],
)
def test_an_option_of_another_algorithm_names_those_that_have_it(
    name: str, option: str, owners: str
) -> None:
    key = option.partition("=")[0]
    expected = f"algorithm.{key} is not an option of {name}; it belongs to {owners}"
    with pytest.raises(ConfigError, match=f"^{expected}$"):
        load_experiment(None, [f"algorithm.name={name}", f"algorithm.{option}"])


def test_another_algorithm_keeps_the_options_it_shares() -> None:
    first = load_experiment(None, ["algorithm.name=fedavg", "algorithm.server_optimizer=adam"])
    assert first.with_algorithm("apfl").algorithm["server_optimizer"] == "adam"
    assert "server_optimizer" not in first.with_algorithm("local").algorithm


def test_only_stored_tables_without_a_norm_are_read_as_never_clipped(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[algorithm]\nname = "aruba"\n')
    assert load_experiment(path).algorithm["max_gradient_norm"] == 5.0
    (tmp_path / "metrics.jsonl").write_text("")
    assert load_experiment(path).algorithm["max_gradient_norm"] == float("inf")
    path.write_text('[algorithm]\nname = "aruba"\nmax_gradient_norm = 2.0\n')
    assert load_experiment(path).algorithm["max_gradient_norm"] == 2.0


def test_stored_tables_of_components_without_the_option_stay_as_they_are() -> None:
    for algorithm in (
        {"name": "given", "description": "one of mine"},
        {"name": "nowhere.to_be:Found"},
    ):
        assert upgrade_stored_table({"algorithm": algorithm}) == {"algorithm": algorithm}
    assert upgrade_stored_table({})["algorithm"] == {"max_gradient_norm": float("inf")}
    assert upgrade_stored_table({"algorithm": 3}) == {"algorithm": 3}


def test_never_is_inf_in_a_file_and_on_the_command_line() -> None:
    never = load_experiment(None, ["algorithm.max_gradient_norm=inf"])
    assert "max_gradient_norm = inf" in never.to_toml()
    assert never.build_algorithm().max_gradient_norm == float("inf")  # type: ignore[attr-defined]
    for wrong in ("0", "-1", "nan"):
        with pytest.raises(ConfigError, match=r"algorithm\.max_gradient_norm="):
            load_experiment(None, [f"algorithm.max_gradient_norm={wrong}"])
