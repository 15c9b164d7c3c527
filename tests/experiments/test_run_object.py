"""A run is one object, wherever it was made."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import numpy as np
import pytest
import tiny

import headstart as hs
from headstart._experiments import (
    EarlyStopping,
    EvaluationOptions,
    Experiment,
    Listener,
    Run,
    load_experiment,
    load_model,
    load_run,
    run_experiment,
)
from headstart._experiments.adaptation import _personalize
from headstart._experiments.configuration import read_experiment
from headstart._experiments.personalization import personalize_client
from headstart._experiments.prediction import predict_file
from headstart.aggregation import AggregationStep, Clip, Median, with_aggregation
from headstart.errors import ConfigError, DataError, InputError, OutputError
from headstart.parts import Parts
from headstart.records import Evaluation
from headstart.trees import leaf_names, scale

OPTIONS = EvaluationOptions(every=4, adapt_steps=2, curve_steps=2)


def train(algorithm: Any = None, **options: Any) -> Run:
    algorithm = algorithm or hs.APFL(**tiny.COMMON)
    settings: dict[str, Any] = {"rounds": 8, "evaluation": OPTIONS, **options}
    return hs.train(tiny.federation(), settings.pop("model", tiny.MODEL), algorithm, **settings)


def same_run(one: Run, other: Run) -> None:
    assert tiny.identical(one.state, other.state)
    assert tiny.distance(one.memory, other.memory) == 0
    assert tiny.identical(one.params, other.params)
    assert one.clients == other.clients
    assert without_time(one.evaluations) == without_time(other.evaluations)


def without_time(evaluations: Sequence[Evaluation]) -> str:
    tables = [evaluation.to_table() for evaluation in evaluations]
    return json.dumps([{k: v for k, v in t.items() if "seconds" not in k} for t in tables])


@pytest.mark.parametrize("algorithm", tiny.variants())
def test_what_is_saved_is_what_is_loaded(
    algorithm: hs.algorithms.Algorithm, tmp_path: Path
) -> None:
    run = train(algorithm)
    loaded = load_run(run.save(tmp_path / "r"))
    same_run(run, loaded)
    assert loaded.algorithm == run.algorithm and loaded.model == run.model
    with pytest.raises(OutputError, match="already holds another run"):
        run.save(tmp_path / "r")


def test_saving_equals_training_into_a_folder(tmp_path: Path) -> None:
    train(out=tmp_path / "written")
    train().save(tmp_path / "saved")
    for name in ("config.toml", "clients.csv", "schema.json", "model.safetensors"):
        assert (tmp_path / "written" / name).read_bytes() == (
            tmp_path / "saved" / name
        ).read_bytes()


def test_a_run_from_python_is_resumed_to_the_bit(tmp_path: Path) -> None:
    class Impatient(Listener):
        def evaluated(self, evaluation: Evaluation) -> None:
            if evaluation.round == 4:
                raise KeyboardInterrupt

    whole = train(out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(out=tmp_path / "cut", callbacks=[Impatient()])
    same_run(whole, train(out=tmp_path / "cut", resume=True))
    with pytest.raises(ConfigError, match="another configuration"):
        train(hs.APFL(**{**tiny.COMMON, "local_lr": 0.5}), out=tmp_path / "cut", resume=True)
    same_run(whole, train(out=tmp_path / "new", resume=True))
    with pytest.raises(ConfigError, match="needs out"):
        train(resume=True)


@pytest.mark.parametrize(
    "algorithm",
    [hs.APFL(**tiny.COMMON), hs.Local(**tiny.COMMON), hs.PerFedAvg(**tiny.COMMON)],
    ids=["apfl", "local", "per-fedavg"],
)
def test_a_clients_model_is_the_one_that_was_scored(algorithm: Any, tmp_path: Path) -> None:
    """Clients in training with what they kept, and new ones; in memory and from a folder."""
    run = train(algorithm)
    loaded = load_run(run.save(tmp_path / "r"), data=tiny.federation())
    for row in run.clients:
        own = tiny.federation().client(row.client)
        for each in (run, loaded):
            before, after = (each.personalize(client=row.client, steps=n) for n in (0, 2))
            assert before.accuracy(own.x_test, own.y_test) == pytest.approx(row["accuracy"].before)
            assert after.accuracy(own.x_test, own.y_test) == pytest.approx(row["accuracy"].after)
    with pytest.raises(DataError, match="client 99 is not one of the 7"):
        run.personalize(client=99)
    with pytest.raises(ConfigError, match="not both"):
        run.personalize(own.x_train, own.y_train, client=1)
    with pytest.raises(ConfigError, match="give a client's examples"):
        run.personalize()
    with pytest.raises(ConfigError, match="were given from Python"):
        load_run(tmp_path / "r").personalize(client=1)
    with pytest.raises(DataError, match="not the data that the run was made with"):
        load_run(tmp_path / "r", data=tiny.federation(seed=1)).personalize(client=1)


def test_a_run_that_adapted_on_test_data_gives_no_client_its_model() -> None:
    options = EvaluationOptions(every=4, adapt_steps=1, adapt_on="test")
    with pytest.raises(ConfigError, match="adapted on the data that it scored"):
        train(evaluation=options).personalize(client=0)


def test_personalize_on_the_command_line_gives_the_scored_model(
    clients: Path, experiment: Any, tmp_path: Path
) -> None:
    run_experiment(experiment, tmp_path / "r")
    with (tmp_path / "r" / "clients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        result = personalize_client(tmp_path / "r", row["name"], steps=2)
        assert result.chosen is None and "chosen" not in result.to_table()
        assert result.primary.after == pytest.approx(float(row["accuracy_after"]))
        assert result.primary.before == pytest.approx(float(row["accuracy_before"]))
    model = tmp_path / "r" / "personal" / "site-2.safetensors"
    text, count = predict_file(model, clients / "site-2.csv", out=tmp_path / "p.csv")
    assert count == len((clients / "site-2.csv").read_text().splitlines()) - 1
    assert (tmp_path / "p.csv").read_text() == text
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    predicted = [row["prediction"] for row in rows]
    assert set(predicted) <= set("xyz")
    mine = load_model(model)
    x, _ = hs.data.read_examples(clients / "site-2.csv", mine.schema)
    assert ["xyz"[n] for n in mine.predict(x)] == predicted
    with pytest.raises(OutputError, match="exists already"):
        predict_file(model, clients / "site-2.csv", out=tmp_path / "p.csv")
    (tmp_path / "few.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'c', which the model needs"):
        predict_file(model, tmp_path / "few.csv")
    (tmp_path / "bad.csv").write_text("d,c,b,a\n1,2,nan,4\n")
    with pytest.raises(DataError, match="line 2 column 'b' is not a finite number"):
        predict_file(model, tmp_path / "bad.csv")


def test_one_compilation_serves_all_clients() -> None:
    run = train(hs.PerFedAvg(**tiny.COMMON))
    rng = np.random.default_rng(0)
    _personalize.clear_cache()  # type: ignore[attr-defined]
    for count in (9, 11, 16, 12):
        run.personalize(rng.normal(size=(count, 4)), rng.integers(0, 3, count), steps=count)
    assert _personalize._cache_size() == 1  # type: ignore[attr-defined]


def test_filling_up_rows_changes_no_draw() -> None:
    run = train(hs.FedAvg(**tiny.COMMON))
    own = tiny.federation().client(6)
    mine = run.personalize(own.x_train[:5], own.y_train[:5], steps=3)
    w = run.params
    from headstart._keys import Keys

    key = Keys.from_seed(0).adaptation_root
    x, y = own.x_train[:5], own.y_train[:5]
    for step in range(3):
        rows = jax.random.randint(jax.random.fold_in(key, step), (5,), 0, 5)
        loss = lambda w, rows=rows: hs.models.Classification(tiny.MODEL, run.schema).loss(  # noqa: E731
            w, (x[np.asarray(rows)], y[np.asarray(rows)])
        )
        w = jax.tree.map(lambda a, b: a - 0.2 * b, w, jax.grad(loss)(w))
    assert tiny.distance(mine.params, w) < 1e-6


def test_parts_and_aggregation_survive_a_folder(tmp_path: Path) -> None:
    model = hs.models.mlp([6, 5])
    algorithm = with_aggregation(hs.FedAvg(**tiny.COMMON), [Clip(norm=0.5)], Median())
    run = train(algorithm, model=model, parts=Parts(trained=("body",), kept=("layers.0.*",)))
    loaded = load_run(run.save(tmp_path / "r"), data=tiny.federation())
    same_run(run, loaded)
    assert len(leaf_names(run.params)) == 6, "the frozen head is part of the model"
    own = tiny.federation().client(1)
    row = run.clients[1]
    steps = run.summary.adapt_steps
    scored = loaded.personalize(client=1, steps=steps).accuracy(own.x_test, own.y_test)
    assert scored == pytest.approx(row["accuracy"].after)
    whole = train(hs.FedAvg(**tiny.COMMON), model=model)
    assert run.summary.bytes and whole.summary.bytes
    assert run.summary.bytes.up < whole.summary.bytes.up


def test_what_cannot_be_written_down_is_given_again(tmp_path: Path) -> None:
    def init(key: Any, examples: Any) -> Any:
        return {"w": np.zeros((4, 3), np.float32)}

    model = hs.models.from_functions(init, lambda w, x: x @ w["w"])
    run = train(hs.FedAvg(**tiny.COMMON), model=model, out=tmp_path / "r")
    with pytest.raises(ConfigError, match="the model of this run was given from Python"):
        load_run(tmp_path / "r")
    same_run(run, load_run(tmp_path / "r", model=model))
    file = run.start.save(tmp_path / "m.safetensors")
    with pytest.raises(ConfigError, match="given from Python"):
        load_model(file)
    x = tiny.federation().x
    same = load_model(file, model=model)
    assert np.array_equal(same.predict(x), run.start.predict(x))


def test_a_step_from_a_notebook_needs_no_module(tmp_path: Path) -> None:
    @final
    class Halve(AggregationStep):
        """A step without a module that could be imported."""

        name: ClassVar[str] = "halve"

        def at_client(self, state: Any, reply: Any, key: Any) -> Any:
            return reply._replace(update=scale(reply.update, 0.5))

    halved = with_aggregation(hs.FedAvg(**tiny.COMMON), [Halve()])
    run = train(halved)
    loaded = load_run(run.save(tmp_path / "r"), algorithm=halved)
    same_run(run, loaded)
    assert not tiny.identical(run.params, train(hs.FedAvg(**tiny.COMMON)).params)
    with pytest.raises(ConfigError, match=r"aggregation step .* given from Python .*algorithm=…"):
        load_run(tmp_path / "r")


def test_models_go_to_files_and_come_back(tmp_path: Path) -> None:
    run = train(hs.FedAvg(**tiny.COMMON))
    own = tiny.federation().client(0)
    mine = run.personalize(own.x_train, own.y_train)
    back = load_model(mine.save(tmp_path / "m.safetensors"))
    assert tiny.identical(mine.params, back.params) and back.schema == mine.schema
    with pytest.raises(OutputError, match=r"must end in \.safetensors"):
        mine.save(tmp_path / "m.bin")
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="is not a model file, or is damaged"):
        load_model(tmp_path / "bad.safetensors")


def test_early_stopping_keeps_what_was_trained(tmp_path: Path) -> None:
    """Steps so small that nothing improves: stop after two evaluations without a gain."""
    slow = hs.FedAvg(**{**tiny.COMMON, "local_lr": 1e-12})
    run = train(slow, rounds=40, callbacks=[EarlyStopping(patience=2)], out=tmp_path / "r")
    assert run.summary.rounds == 8 and run.evaluations[-1].round == 8
    assert run.summary.stopped_early == "accuracy did not improve in 2 evaluations"
    assert run.summary.gradient_evaluations == 8 * 2 * 3
    assert load_run(tmp_path / "r").summary.rounds == 8
    assert train(slow).summary.stopped_early is None


def test_a_run_shows_itself_briefly(tmp_path: Path) -> None:
    run = train(out=tmp_path / "r")
    assert "known clients" in repr(run) and len(repr(run)) < 600
    assert run._repr_html_().startswith("<pre>")
    assert len(repr(run.start)) < 200 and "parameters" in repr(run.start)
    assert len(repr(tiny.federation())) < 200
    page = run.report()
    assert page == tmp_path / "r" / "report.html" and page.stat().st_size > 10_000
    with pytest.raises(ConfigError, match="has no folder yet"):
        train().report()


class Torch(eqx.Module):
    __module__ = "torch.nn.modules"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"data": hs.data.load("digits")}, "a pool of 1,797 examples that no client holds yet"),
        ({"data": [1, 2]}, "data is an object of type list; give a FederatedDataset"),
        ({"model": Torch()}, "model is a PyTorch module; Headstart computes with JAX"),
        ({"model": "mlp"}, "model='mlp' is a name"),
        ({"model": hs.models.MLP}, "give a model with init and apply"),
        ({"algorithm": "fedavg"}, "algorithm='fedavg' is a name"),
        ({"algorithm": hs.FedAvg}, r"the class FedAvg; give FedAvg\(\)"),
        ({"rounds": 20.5}, "rounds=20.5 is not a whole number"),
        ({"rounds": 0}, "rounds=0 must be at least 1"),
    ],
)
def test_plausible_mistakes_get_one_clear_line(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "data": tiny.federation(), "model": tiny.MODEL, "algorithm": hs.FedAvg(), "rounds": 2,
        **wrong,
    }  # fmt: skip
    with pytest.raises(hs.HeadstartError, match=message) as caught:
        hs.train(**arguments)
    assert "\n" not in str(caught.value)


def test_algorithms_are_compared_from_python(tmp_path: Path) -> None:
    algorithms = {
        "FedAvg": hs.FedAvg(**tiny.COMMON),
        "Per-FedAvg": hs.PerFedAvg(**tiny.COMMON),
        "too large": hs.FedAvg(**{**tiny.COMMON, "local_lr": 1e38}),
    }

    def compare(**options: Any) -> hs.Comparison:
        return hs.compare(
            lambda seed: tiny.federation(seed=seed), tiny.MODEL, algorithms, rounds=4, seeds=2,
            evaluation=OPTIONS, **options,
        )  # fmt: skip

    found = compare(out=tmp_path / "c")
    assert found.record.baseline == "FedAvg" and len(found.record.rows) == 3
    assert set(found.runs["Per-FedAvg"]) == {0, 1} and not found.runs["too large"]
    assert "Per-FedAvg" in repr(found) and "diverged" in repr(found)
    assert found._repr_html_().startswith("<pre>")
    assert found.report() == tmp_path / "c" / "report.html"
    again = compare(out=tmp_path / "c")
    assert again.record.rows[1].known == found.record.rows[1].known
    loaded = load_run(tmp_path / "c" / "per-fedavg" / "seed-1")
    assert tiny.identical(loaded.state, found.runs["Per-FedAvg"][1].state)
    with pytest.raises(ConfigError, match="has no folder"):
        compare().report()
    with pytest.raises(ConfigError, match="not a dictionary"):
        hs.compare(tiny.federation(), tiny.MODEL, [hs.FedAvg()], rounds=2)  # type: ignore[arg-type]


def test_the_index_is_what_can_be_reached() -> None:
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    assert hs.machine.count_cores() >= 1


def test_a_folder_of_version_0_1_is_opened_and_resumed(tmp_path: Path) -> None:
    """Written by the first version: six rounds of APFL on the digits of four clients."""
    old = tmp_path / "old"
    shutil.copytree(Path(__file__).parent / "version-0.1", old)
    run = load_run(old)
    for row in run.clients:
        own = run.client_data(row.client)[1]
        for steps, when in ((0, "before"), (run.summary.adapt_steps, "after")):
            mine = run.personalize(client=row.client, steps=steps)
            assert mine.accuracy(own.x_test, own.y_test) == pytest.approx(
                getattr(row["accuracy"], when)
            )
    assert run.report().exists()
    experiment = replace(read_experiment(old), rounds=9)
    longer = run_experiment(experiment, old, resume=True)
    assert [e.round for e in longer.evaluations] == [0, 3, 6, 9]


def test_a_run_of_version_0_1_is_repeated_with_its_plain_steps(tmp_path: Path) -> None:
    """Its configuration states no norm, because there was no clipping by default."""
    old = Path(__file__).parent / "version-0.1"
    again = load_experiment(old / "config.toml")
    assert again.algorithm["max_gradient_norm"] == float("inf")
    run = run_experiment(again, tmp_path / "again")
    before = load_run(old)
    for then, now in zip(before.evaluations, run.evaluations, strict=True):
        assert now.round == then.round
        assert (now.train_loss or 0.0) == pytest.approx(then.train_loss or 0.0, rel=1e-4)
    assert tiny.distance(run.state.params, before.state.params) < 1e-5


@pytest.mark.parametrize("name", ["fedavg", "local"])
def test_a_run_from_before_clipping_is_resumed_to_the_same_model(tmp_path: Path, name: str) -> None:
    plain = Experiment.from_table(
        {
            "rounds": 4, "participation": 0.5, "model": {"name": "logistic"},
            "data": {"source": "digits", "partition": "iid", "clients": 4},
            "algorithm": {"name": name, "local_lr": 3.0, "max_gradient_norm": float("inf")},
            "evaluation": {"every": 2, "curve_steps": 1},
        }
    )  # fmt: skip
    whole = run_experiment(plain, tmp_path / "whole")
    folder = tmp_path / "old"
    run_experiment(replace(plain, rounds=2), folder)
    text = (folder / "config.toml").read_text()
    assert "max_gradient_norm = inf\n" in text
    (folder / "config.toml").write_text(text.replace("max_gradient_norm = inf\n", ""))
    resumed = run_experiment(replace(read_experiment(folder), rounds=4), folder, resume=True)
    assert tiny.identical((resumed.state, resumed.memory), (whole.state, whole.memory))
    other = replace(plain, algorithm={**plain.algorithm, "max_gradient_norm": 5.0})
    with pytest.raises(ConfigError, match="another configuration"):
        run_experiment(other, folder, resume=True)


def test_an_algorithm_that_never_clips_is_stored_with_its_options(tmp_path: Path) -> None:
    algorithm = hs.FedAvg(**tiny.COMMON)
    run = hs.train(tiny.federation(), tiny.MODEL, algorithm, rounds=2, out=tmp_path / "run")
    assert run.experiment is not None and run.experiment.algorithm["name"] == "fedavg"
    assert load_run(tmp_path / "run").algorithm == algorithm
