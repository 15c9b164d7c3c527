"""The worked example of four hospitals: files, choices, intervals; real patients where marked."""

from __future__ import annotations

import doctest
import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower.local_grid import LocalGrid
from scipy.stats import t

from headstart._experiments.configuration import Experiment, load_experiment
from headstart._experiments.personalization import split_rows
from headstart.data._example_pool import Pool
from headstart.data.sources._heart_disease import FEATURES, HOSPITALS, parse
from headstart.errors import ConfigError, DataError, OutputError
from headstart.flower._federation_config import FederationConfig, SiteConfig
from headstart.flower.deploy._federation_folder import write_federation
from headstart.flower.server import conduct
from headstart.flower.site._site_data import read_site_data
from headstart.flower.site._site_personalization import personalize_site
from headstart.flower.site.client_app import app

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "four_hospitals"))
federated, hospitals, trials, run, result_tables = (
    import_module(name) for name in ("federated", "hospitals", "trials", "run", "result_tables")
)

LINES = b"""63,1,1,145,233,1,2,150,0,2.3,3,0,6,0
67,0,4,0,?,0,2,108,1,1.5,?,3,3,2
"""


@pytest.fixture
def pool() -> Pool:
    """Patients that never were: four hospitals of 40, 36, 32 and 30."""
    rng = np.random.default_rng(7)
    owner = np.repeat(np.arange(4), [40, 36, 32, 30])
    x = rng.normal(size=(len(owner), len(FEATURES))).astype(np.float32)
    y = (x[:, 0] + 0.5 * owner + rng.normal(size=len(owner)) > 0.5).astype(np.int32)
    schema = hospitals.Schema(
        shape=(len(FEATURES),), classes=2, feature_names=FEATURES, class_names=("absent", "present")
    )
    return Pool("made up", x, y, schema, owner=owner, owner_names=HOSPITALS)


@pytest.fixture
def plan() -> Experiment:
    """The example's experiment, made short."""
    short = ["rounds=2", "algorithm.local_steps=2", "algorithm.inner_steps=1"]
    return load_experiment(hospitals.EXPERIMENT, short)


def federation_of(pool: Pool, folder: Path, plan: Experiment) -> Path:
    """The federation's folder with every hospital's file in it, as the example has it."""
    made = FederationConfig(sites=hospitals.training(pool), late=(hospitals.LATE,), insecure=True)
    write_federation(folder, plan, pool.schema, made, own_data=True)
    for name in pool.owner_names:
        hospitals.write_patients(pool, name, folder / "sites" / name)
    return folder


def assert_sites_read_their_patients(pool: Pool, folder: Path) -> None:
    for number, name in enumerate(pool.owner_names):
        config = SiteConfig.read(folder / "sites" / name / "site.toml")
        mine = read_site_data(config, pool.schema).client(0)
        rows = np.flatnonzero(pool.owner == number)
        train, test = split_rows(len(rows), config.test_fraction, config.split_seed, folder)
        for x, y, part in (
            (mine.x_train, mine.y_train, rows[train]),
            (mine.x_test, mine.y_test, rows[test]),
        ):
            np.testing.assert_array_equal(x, pool.x[part])
            np.testing.assert_array_equal(y, pool.y[part])


def test_a_site_reads_the_patients_it_was_given(
    pool: Pool, plan: Experiment, tmp_path: Path
) -> None:
    folder = federation_of(pool, tmp_path / "federation", plan)
    assert_sites_read_their_patients(pool, folder)
    assert not (folder / "sites" / "cleveland" / "data").exists()


def test_a_site_file_of_another_form_is_refused(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('name = "cleveland"\n')
    with pytest.raises(DataError, match="0 lines that begin with 'data =', not 1"):
        hospitals.write_patients(pool, "cleveland", tmp_path)


def test_missing_values_are_counted_once() -> None:
    x, _ = parse(LINES, "two patients")
    # The second patient has no blood pressure (0), no cholesterol and no slope: 3 of 26 values.
    assert hospitals.missing(x, FEATURES) == pytest.approx(3 / 26)


def test_choosing_sees_only_training_patients_of_those_who_train(
    pool: Pool, plan: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = pool.split(seed=0)
    parts = [split.client(n) for n in range(4)]
    late = parts[2]
    allowed = {row.tobytes() for part in parts if part is not late for row in part.x_train}
    seen: list[bool] = []

    def scores(data: Any, plan: Any, way: Any, options: Any, seed: Any, steps: list[int]) -> Any:
        choosing = len(steps) == 1
        if choosing:
            seen.append({row.tobytes() for row in data.x} == allowed)
        best = options == trials.TRIES[5]
        losses = np.full((data.clients, len(steps)), 0.1 if best else 0.2)
        return losses, losses

    monkeypatch.setattr(trials, "scores", scores)
    found = trials.measure_with_late(parts, late, pool.schema, plan, 0)
    assert seen == [True] * 2 * len(trials.TRIES)
    assert all(one.options == trials.TRIES[5] for one in found)
    roles = [(one.hospital, one.role) for one in found if one.way == "fedavg"]
    assert roles == [
        ("cleveland", "known"), ("hungarian", "known"), ("va", "known"),
        ("switzerland", "new"), ("switzerland", "few"),
    ]  # fmt: skip


def test_a_guess_is_the_commoner_diagnosis_at_its_known_rate(pool: Pool) -> None:
    part = replace(
        pool.split(seed=0).client(0), y_train=np.array([1, 1, 1, 1]), y_test=np.array([1, 1, 0, 1])
    )
    found = trials.guess(part, "own", 0)
    assert found.accuracy[1] == 0.75
    # Four ill, one more of each: 5/6 and 1/6.
    assert found.loss[1] == pytest.approx(-(3 * np.log(5 / 6) + np.log(1 / 6)) / 4)


def test_folds_keep_every_training_patient_aside_once(pool: Pool) -> None:
    part = trials.first_few(pool.split(seed=0).client(0))
    assert len(part.y_train) == trials.FEW
    aside = []
    for fold in range(trials.FOLDS):
        turned = hospitals.together([trials.rotate(part, fold)], pool.schema)
        aside += [row.tobytes() for row in turned.for_tuning().client(0).x_test]
    assert sorted(aside) == sorted(row.tobytes() for row in part.x_train)


def test_intervals_are_the_formulas() -> None:
    found = trials.Difference([0.0, 2.0])
    # σ = √2 and n = 2: σ/√n = 1, and with test/train = 1/4, σ√(1/2 + 1/4) = √1.5.
    assert found.over_splits == pytest.approx(t.ppf(0.975, 1))
    assert found.corrected == pytest.approx(t.ppf(0.975, 1) * np.sqrt(1.5))
    assert not found.shown
    assert trials.Difference([1.0, 1.001, 0.999]).shown


def one(seed: int, way: str, hospital: str, role: str, accuracy: float) -> Any:
    values = (accuracy, accuracy + 0.1, accuracy + 0.2)
    return trials.Trial(seed, way, hospital, role, values, values, {})


def test_differences_are_paired_by_split_and_role() -> None:
    found = [
        one(0, "per-fedavg", "a", "known", 0.5), one(0, "per-fedavg", "b", "known", 0.7),
        one(0, "per-fedavg", "a", "new", 0.1), one(0, "local", "a", "own", 0.4),
        one(0, "local", "b", "own", 0.4), one(0, "local", "a", "few", 0.0),
        one(1, "per-fedavg", "a", "known", 0.6), one(1, "local", "a", "own", 0.3),
    ]  # fmt: skip
    known = trials.difference(found, "local", "known", trials.accuracy(0))
    assert known.values == pytest.approx([20.0, 30.0])
    assert trials.gain(found, "per-fedavg", "known", 2).values == pytest.approx([20.0, 20.0])
    at_b = trials.difference(found[:6], "local", "known", trials.accuracy(1), "b")
    assert at_b.values == pytest.approx([30.0])


def test_the_examples_docstrings_are_true() -> None:
    assert doctest.testmod(result_tables) == (0, 1)


def test_what_cannot_work_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    with pytest.raises(ConfigError, match="--splits=1"):
        run.refuse_unready(tmp_path / "new", 1)
    with pytest.raises(OutputError, match="not empty"):
        run.refuse_unready(tmp_path, 2)
    run.refuse_unready(tmp_path / "new", 2)


@pytest.mark.slow
def test_a_federation_on_the_files_gives_what_the_simulation_gives(
    pool: Pool, plan: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federated, "load_experiment", lambda path, settings: plan)
    folder = federation_of(pool, tmp_path / "federation", plan)
    names = [*hospitals.training(pool), hospitals.LATE]
    sites = {name: folder / "sites" / name / "site.toml" for name in names}
    conduct(LocalGrid(dict.fromkeys(names, app), sites), folder, tmp_path / "run")
    simulated = federated.simulate(pool, folder)
    made = {name: personalize_site(path).to_table() for name, path in sites.items()}
    for name, found in simulated.items():
        for column, accuracy in found.items():
            assert made[name][column] == pytest.approx(accuracy, abs=1e-6)
    told = result_tables.federation_table({"sites": made, "again": made[hospitals.LATE]}, simulated)
    assert "gives the same accuracies." in told


@pytest.mark.data
@pytest.mark.slow
def test_the_real_patients_reach_their_sites_whole(plan: Experiment, tmp_path: Path) -> None:
    pool = hospitals.load()
    # Patients per hospital as archive.ics.uci.edu/dataset/45 states them.
    facts = hospitals.facts(pool)
    counts = {name: fact["patients"] for name, fact in facts.items()}
    assert counts == {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
    assert max(facts, key=lambda name: facts[name]["ill"]) == hospitals.LATE
    assert min(counts, key=counts.__getitem__) == hospitals.LATE
    assert_sites_read_their_patients(pool, federation_of(pool, tmp_path / "federation", plan))


@pytest.mark.data
@pytest.mark.slow
def test_the_comparison_compares_every_way_at_every_hospital(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "TRIES", [{"inner_lr": 0.1, "local_lr": 0.1}])
    monkeypatch.setattr(trials, "TRIES_ALONE", [{"local_lr": 0.1, "rounds": 8}])
    ways, differences, each = run.comparison(hospitals.load(), tmp_path, 2)
    found = [trials.Trial(**one) for one in json.loads((tmp_path / "comparison.json").read_text())]
    for way in ("per-fedavg", "fedavg", "local", "guess"):
        for role in result_tables.ROLES:
            for hospital in HOSPITALS:
                values = trials.by_split(found, way, role, trials.accuracy(1), hospital)
                assert len(values) == 2 and (values >= 0).all() and (values <= 100).all()
    gets = (trials.accuracy(0), trials.accuracy(2))
    before, after = (trials.by_split(found, "per-fedavg", "new", get).mean() for get in gets)
    assert after > before + 5  # Hospitals differ: who joins later has to adapt.
    assert ways.count("| mean") == 3
    assert differences.count("\n|") == 20 + 8 and each.count("\n|") == 4 * 20


@pytest.mark.data
@pytest.mark.slow
def test_the_experiments_step_sizes_are_the_best_of_the_tries(tmp_path: Path) -> None:
    pool, plan = hospitals.load(), load_experiment(hospitals.EXPERIMENT, [])
    folder = federation_of(pool, tmp_path / "federation", plan)
    names = [*hospitals.training(pool), hospitals.LATE]
    data = hospitals.read_as_sites(folder, names, pool.schema)
    best = trials.choose_options(data, plan, "per-fedavg", plan.seed)
    assert best == {key: plan.algorithm[key] for key in best}
