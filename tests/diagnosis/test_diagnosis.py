"""The diagnosis: what it measures, what it must not look at, and what it then says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browser import browse, complaints
from typer.testing import CliRunner

from headstart._cli.diagnose import _show as show
from headstart._cli.main import app
from headstart._diagnosis import Diagnosis, assess_diagnosis, diagnose
from headstart._diagnosis.diagnosis_page import (
    diagnosis_page,
    gammas_table,
    order_by_similarity,
    write_diagnosis,
)
from headstart._diagnosis.measuring import choose_clients
from headstart._diagnosis.pilot import Pilot, gain
from headstart._experiments import load_experiment, recommendation
from headstart._experiments.configuration import Experiment
from headstart.data import FederatedDataset, Schema, from_clients
from headstart.errors import DataError, HeadstartError
from headstart.heterogeneity import Distances
from headstart.records import half_width
from headstart.report import PageSection, Table
from headstart.report._charts import Chart

SMALL: dict[str, Any] = {
    "rounds": 10,
    "data": {"source": "digits", "partition": "class-groups", "clients": 10, "new_clients": 2},
    "model": {"name": "logistic"},
    "algorithm": {
        "name": "per-fedavg", "inner_lr": 0.1, "local_lr": 0.1, "local_steps": 2, "batch_size": 8,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment.from_table(SMALL)


@pytest.fixture(scope="module")
def found(experiment: Experiment) -> Diagnosis:
    return diagnose(experiment, rounds=4, repetitions=2)


@pytest.mark.slow
def test_clients_by_class_differ_beyond_chance_and_dealt_ones_do_not(found: Diagnosis) -> None:
    assert found.labels.beyond_chance.all() and found.examples.beyond_chance.all()
    table = {**SMALL, "data": {"source": "digits", "partition": "iid", "clients": 20}}
    alike = diagnose(Experiment.from_table(table), rounds=1, repetitions=2)
    assert alike.labels.beyond_chance.mean() < 0.2
    assert alike.examples.beyond_chance.mean() < 0.2


def test_held_out_data_and_new_clients_are_not_looked_at(
    experiment: Experiment, found: Diagnosis
) -> None:
    data = experiment.build_data()
    x = np.array(data.x)
    for client in range(data.clients):
        start, stop = data.offsets[client], data.offsets[client + 1]
        known = client < data.known_clients
        x[start + (data.train_counts[client] if known else 0) : stop] = 77
    other = diagnose(
        experiment, data=replace(data, x=x, validated=True), rounds=4, repetitions=2
    ).to_table()
    same = found.to_table()
    for table in (other, same):
        del table["seconds"]
    assert other == same


def test_the_pilot_trains_both_methods_and_counts_gradients(found: Diagnosis) -> None:
    made = found.pilot
    assert made.common.shape == made.updated.shape == made.meta.shape == (2, 8)
    assert made.options["fedavg"]["name"] == "fedavg"
    # 4 active clients × 4 rounds × 2 steps, twice; FedAvg 1 gradient, Per-FedAvg (exact) 4.
    assert made.gradient_evaluations == 2 * 4 * 4 * 2 * (1 + 4)
    gammas = found.gammas()
    assert 0 < gammas["by chance"]["gamma_G"] < gammas["measured"]["gamma_G"]
    assert gammas["labels explain"]["gamma_G"] < gammas["label bound"]["gamma_G"]
    assert found.label_part is not None
    assert found.label_part.gamma_G == pytest.approx(gammas["measured"]["gamma_G"], rel=1e-4)
    assert "gamma_H" not in gammas["label bound"]


def opposite_rules(clients: int = 4) -> FederatedDataset:
    """Both labels as often at every client; half of the clients call 0 what the others call 1."""
    rng = np.random.default_rng(0)
    parts = []
    for client in range(clients):
        y = np.arange(32) % 2
        x = rng.normal(size=(32, 2)).astype(np.float32)
        x[:, 0] = np.where(y ^ (client % 2), 4, -4) + 0.1 * x[:, 0]
        parts.append((x, y, x[:4], y[:4]))
    return from_clients(parts, Schema(shape=(2,), classes=2))


@pytest.mark.slow
def test_clients_that_differ_in_more_than_labels_are_told_so(
    experiment: Experiment,
    found: Diagnosis,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    says = "Clients differ in more than their labels, so the label bound on γ_G does not apply"
    other = diagnose(experiment, data=opposite_rules(), rounds=1, repetitions=2)
    part = other.label_part
    assert part is not None and part.gamma_G > part.bound_G
    assessment = assess_diagnosis(other)
    assert sum(says in sentence for sentence in assessment.sentences) == 1
    show(other, assessment)
    assert says in " ".join(capsys.readouterr().out.split())
    page = write_diagnosis(other, assessment, "headstart diagnose", tmp_path / "out")
    assert says in page.read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "out/diagnosis.json").read_text(encoding="utf-8"))
    assert stored["label_premise"]["bound_applies"] is False
    assert any(says in sentence for sentence in stored["reading"])
    table = gammas_table(other)
    assert [row[0] for row in table.rows][3] == "labels allow at most (does not apply)"
    assert says in table.note and says not in gammas_table(found).note
    assert not any(says in sentence for sentence in assess_diagnosis(found).sentences)


def test_only_the_label_bound_is_called_one(found: Diagnosis) -> None:
    rows = {row[0]: row[1:] for row in gammas_table(found).rows}
    assert rows["labels allow at most"][1] == "–"
    assert [name for name in rows if "at most" in name] == ["labels allow at most"]
    assert "examples suggest about" in rows and "not a bound" in gammas_table(found).note
    text = gammas_table(replace(found, label_part=None))
    assert "no label bound" in text.note and len(text.rows) == 3


def test_chance_alone_above_the_label_bound_is_called_chance(found: Diagnosis) -> None:
    assert found.label_part is not None
    part = replace(found.label_part, bound_G=0.5 * found.label_part.gamma_G)
    assert not part.bound_applies
    sentences = " ".join(assess_diagnosis(replace(found, label_part=part)).sentences)
    assert "differ in more than their labels, if only by chance" in sentences


def test_a_gain_is_as_uncertain_as_the_wider_of_clients_and_repetitions() -> None:
    differences = np.array([[1.0, 2.0, 6.0], [2.0, 3.0, 7.0]])
    made = gain(differences)
    assert made.mean == pytest.approx(3.5)
    widths = half_width([1.5, 2.5, 6.5]), half_width([3.0, 4.0])
    assert made.half_width == pytest.approx(max(w for w in widths if w is not None))
    assert str(made) == f"+3.5 ± {made.half_width:.1f}"


def with_pilot(found: Diagnosis, common: float, updated: float, meta: float) -> Diagnosis:
    """The same clients with another outcome of the pilot."""
    noise = np.random.default_rng(0).normal(scale=0.2, size=(3, 8))
    shifted = Pilot(
        10, 1, common + noise, updated - noise, meta + noise[::-1], found.pilot.options, 1
    )
    return replace(found, pilot=shifted)


@pytest.mark.parametrize(
    "accuracies, recommendation, words",
    [
        ((50, 60, 70), "per-fedavg", "meta-learning pays."),
        ((50, 60, 60.2), "fedavg-update", "adds nothing that can be told"),
        ((50, 60, 50), "fedavg-update", "-10.0 ±"),
        ((50, 50.1, 50), "one-model", "does not pay by itself"),
        ((50, 40, 45), "per-fedavg", "does not pay by itself"),
    ],
)
def test_the_reading_follows_the_pilot(
    found: Diagnosis, accuracies: tuple[float, float, float], recommendation: str, words: str
) -> None:
    assessment = assess_diagnosis(with_pilot(found, *accuracies))
    assert assessment.recommendation == recommendation
    assert words in " ".join(assessment.sentences)
    assert "Clients differ in their labels: 100 %" in " ".join(assessment.sentences)


def test_many_clients_are_sampled(experiment: Experiment) -> None:
    data = experiment.build_data()
    some = choose_clients(data, 3, seed=1)
    assert some.clients == some.known_clients == 3
    chosen = [int(name) for name in some.names or []]
    for place, client in enumerate(chosen):
        np.testing.assert_array_equal(some.client(place).x_train, data.client(client).x_train)
        np.testing.assert_array_equal(some.client(place).y_test, data.client(client).y_test)
    assert choose_clients(data, 8, seed=1).known_clients == 8


def test_clients_that_are_alike_stand_side_by_side() -> None:
    place = np.array([0.0, 10.0, 0.1, 10.1])
    apart = np.abs(place[:, None] - place)
    order = order_by_similarity(Distances(np.arange(4), apart, place, "by hand", place)).tolist()
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset((0, 2)), frozenset((1, 3))}


def _parts(section: PageSection | Chart) -> list[Any]:
    assert isinstance(section, PageSection)
    return list(section.parts)


def test_the_page_has_every_part(found: Diagnosis) -> None:
    page = diagnosis_page(found, assess_diagnosis(found), "headstart diagnose")
    sections = {section.title: section for section in page.sections}
    tables = [part for part in _parts(sections["Results"]) if isinstance(part, Table)]
    assert [table.title for table in tables][-1] == "Pilot"
    assert len(page.charts) == 3
    (farthest,) = _parts(sections["Clients to look at"])
    assert isinstance(farthest, Table) and len(farthest.rows) == 8


def test_the_command_prints_a_reading_and_keeps_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommendation, "all_candidates", few_candidates)
    path = tmp_path / "small.toml"
    path.write_text(Experiment.from_table(SMALL).to_toml(), encoding="utf-8")
    words = ["diagnose", str(path), "--rounds", "2", "--repetitions", "2"]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, [*words, "--out", str(out)], env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    assert "Pilot" in done.output and "gradient evaluations" in done.output
    stored = json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    assert stored["recommendation"] in ("per-fedavg", "fedavg-update", "one-model")
    assert (out / "report.html").exists() and (out / "figures/distances.svg").exists()
    advised = load_experiment(out / "recommended.toml")
    assert stored["recommended"]["algorithm"] == dict(advised.algorithm)
    assert len(stored["recommended"]["candidates"]) == 3
    assert "Recommended: " in done.output
    assert f"next: headstart run {out / 'recommended.toml'}" in done.output.replace("\n", " ")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "recommended.toml" in page and "kept out of training" in page
    with pytest.raises(HeadstartError, match="exists already"):
        CliRunner().invoke(app, [*words, "--out", str(out)], catch_exceptions=False)


def few_candidates(adapt_steps: int) -> list[Any]:
    learned = recommendation.learned_rates_candidates(adapt_steps)
    return [*recommendation.fedavg_candidates()[:2], learned[0]]


def test_a_budget_that_is_too_small_costs_only_the_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommendation, "all_candidates", few_candidates)
    path = tmp_path / "small.toml"
    path.write_text(Experiment.from_table(SMALL).to_toml(), encoding="utf-8")
    words = ["diagnose", str(path), "--rounds", "1", "--repetitions", "2", "--budget", "1"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "no method is recommended: budget=" in done.output
    assert not (tmp_path / "out" / "recommended.toml").exists()


def test_the_search_decides_between_the_methods_and_the_pilot_whether_to_personalise(
    found: Diagnosis,
) -> None:
    def advice(name: str) -> Any:
        chosen = Experiment.from_table({**SMALL, "algorithm": {"name": name, "batch_size": 8}})
        return SimpleNamespace(experiment=chosen, describe=lambda: [f"Recommended: {name}."])

    def pilot(updated: float, meta: float) -> Diagnosis:
        values = [np.full((2, 3), 50.0 + gained) for gained in (0.0, updated, meta)]
        common, after, learned = values
        return replace(
            found, pilot=replace(found.pilot, common=common, updated=after, meta=learned)
        )

    def assessed(diagnosis: Diagnosis, name: str) -> str:
        assessment = assess_diagnosis(diagnosis, advice(name))
        assert assessment.sentences[0] == f"Recommended: {name}."
        return assessment.recommendation

    assert assessed(pilot(20, 20), "per-fedavg") == "per-fedavg"
    assert assessed(pilot(20, 40), "fedavg") == "fedavg-update"
    assert assessed(pilot(20, 20), "fedavg") == "fedavg-update"
    assert assessed(pilot(0, 0), "fedavg") == "one-model"


@pytest.mark.slow
def test_data_alone_can_be_diagnosed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["who,a,b,label"]
    for client in range(4):
        for _ in range(20):
            x = rng.normal(size=2)
            lines.append(f"c{client},{x[0]:.3f},{x[1]:.3f},{int((x[0] > 0) ^ (client % 2))}")
    table = tmp_path / "people.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["diagnose", str(table), "--set", "data.client=who", "--set", "data.label=label"]
    words += ["--rounds", "2", "--repetitions", "2", "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, [*words, "--no-recommend"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["recommended"] is None
    assert json.loads(done.stdout)["data"]["known_clients"] == 4


def test_one_client_cannot_be_compared(experiment: Experiment) -> None:
    alone = experiment.build_data().part(0, 1)
    with pytest.raises(DataError, match="at least two"):
        diagnose(experiment, data=alone)


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_opens_without_complaints(chromium: str, found: Diagnosis, tmp_path: Path) -> None:
    page = write_diagnosis(found, assess_diagnosis(found), "headstart diagnose", tmp_path / "out")
    dom, log = browse(chromium, page, tmp_path / "profile", "--dump-dom")
    assert complaints(log) == []
    assert dom.count('class="panel js-plotly-plot"') == 3 and "heatmaplayer" in dom
