"""Names of things outside of the package: what is found, and what is said when it is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.test_cli import run as headstart

from headstart import _extensions as extensions
from headstart._experiments import Experiment, load_experiment
from headstart._experiments.configuration import read_experiment
from headstart._experiments.model_files import MODEL_FORMAT
from headstart._extensions import (
    available_names,
    find_extension,
    load_object,
    refuse_imports_from,
    require_subclass,
    search_modules_in,
)
from headstart.algorithms import ALGORITHMS, Algorithm, FedAvg
from headstart.data import Schema
from headstart.data import _dataset_options as dataset_options
from headstart.data import load as load_source
from headstart.errors import ConfigError
from headstart.records._tensor_files import write_tensors

MODULE = '''
"""An outsider's module."""
import dataclasses
from typing import ClassVar, final
import jax.numpy as jnp
from headstart import models
from headstart.aggregation import AggregationRule, AggregationStep
from headstart.algorithms import FedAvg
from headstart.algorithms._averaging import Averaging
from headstart.data import load
from headstart.data.sources._source import Source

class Unfinished(Averaging):
    """Has no direction."""
    step_batches = [1]

def function():
    """Is no class."""

def init(key, examples):
    return jnp.zeros((examples.shape[0], examples.outputs))

def apply(weights, x):
    return x.reshape(x.shape[0], -1)[:, : weights.shape[0]] @ weights

READY = models.from_functions(init, apply)

@dataclasses.dataclass(frozen=True)
class Scaled:
    """A model with an option."""
    factor: float = 2.0
    def init(self, key, examples):
        return jnp.zeros((examples.shape[0], examples.outputs))
    def apply(self, weights, x):
        return self.factor * (x @ weights)

class Plain:
    """A model without fields."""
    def init(self, key, examples): ...
    def apply(self, weights, x): ...

@final
class Halved(AggregationStep):
    """Halves every update."""
    name: ClassVar[str] = "halved"
    factor: float = 0.5

@final
class First(AggregationRule):
    """Takes the first reply."""
    name: ClassVar[str] = "first"
    def combine(self, replies, weights):
        import jax
        return jax.tree.map(lambda leaf: leaf[0], replies)

SOURCE = Source(
    name="mine", summary="digits again", clients="none", licence="CC0", citation="", home="",
    load=lambda: load("digits"),
)
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules that are imported from nowhere else."""
    path, known = list(sys.path), set(sys.modules)
    (tmp_path / "outside.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("raise ValueError('no licence\\nfound')")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "needing.py").write_text("import absent_package")
    monkeypatch.chdir(tmp_path)
    search_modules_in(tmp_path)
    yield tmp_path
    extensions._searched.set(())
    extensions._forbidden.set(())
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) is None or str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def algorithm(name: str) -> type[Algorithm]:
    return find_extension(
        "algorithm", name, ALGORITHMS, "algorithm.name", require_subclass(Algorithm)
    )


def install(folder: Path, entries: str, name: str = "extras") -> None:
    """What an installed package leaves behind."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)


@pytest.mark.parametrize(
    "name, message",
    [
        ("fedavgg", "'fedavgg' is not known; did you mean fedavg? use one of apfl, aruba, fedavg"),
        ("x", "'x' is not known; use one of apfl"),
        ("nowhere:X", "module nowhere cannot be imported: ModuleNotFoundError: No module named"),
        ("nowhere:X", "install it, or run in the folder that holds it"),
        ("outside.part:X", "module outside.part cannot be imported: ModuleNotFoundError"),
        ("broken:X", "module broken cannot be imported: ValueError: no licence"),
        ("leaving:X", "module leaving cannot be imported: SystemExit: 3"),
        ("needing:X", "module needing cannot be imported: ModuleNotFoundError: No module named"),
        ("outside:Unfinishd", "outside has no Unfinishd; did you mean Unfinished?"),
        ("outside:nothing.like.it", "outside has no nothing"),
        ("outside:function", "is a function; it must be a class derived from headstart.algorithms"),
        ("outside:Scaled", "is the class Scaled; it must be a class derived from"),
        (
            "outside:Unfinished",
            "is abstract: it does not define direction, gradients_per_direction",
        ),
        ("a b:c", "is not a module and a name in it; use package.module:Name"),
        (".outside:X", "use package.module:Name"),
        ("outside:", "use package.module:Name"),
        ("outside:a:b", "use package.module:Name"),
        ("../outside:X", "use package.module:Name"),
        ("out\nside:X", "use package.module:Name"),
    ],
)
def test_a_mistake_is_named_in_one_line(name: str, message: str, place: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        algorithm(name)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"algorithm.name={name!r}")
    assert "\n" not in str(caught.value)


def test_a_missing_dependency_is_not_blamed_on_the_module(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"No module named 'absent_package'$"):
        algorithm("needing:X")


def test_a_plain_path_is_loaded(place: Path) -> None:
    assert load_object("headstart.algorithms:FedAvg", "here") is FedAvg
    assert load_object("headstart.algorithms:FedAvg.name", "here") == "fedavg"


def test_built_in_names_come_first_and_entry_points_are_not_read(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "_entry_points", lambda kind: pytest.fail("read"))
    assert algorithm("fedavg") is FedAvg
    assert algorithm("headstart.algorithms:FedAvg") is FedAvg


def test_entry_points_are_found_by_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        place / "installed",
        "[headstart.algorithms]\nmine = headstart.algorithms:FedAvg\nfedavg = outside:Unfinished\n"
        "lost = nowhere:X\nodd = outside:function\ntwice = headstart.algorithms:Local\n"
        "[headstart.models]\nready = outside:READY\n",
    )
    install(
        place / "installed", "[headstart.algorithms]\ntwice = headstart.algorithms:APFL\n", "more"
    )
    monkeypatch.syspath_prepend(place / "installed")
    assert algorithm("mine") is FedAvg
    assert algorithm("fedavg") is FedAvg, "a package cannot take a built-in name"
    assert set(available_names("algorithm", ALGORITHMS)) == {
        *ALGORITHMS,
        "mine",
        "lost",
        "odd",
        "twice",
    }
    for name, message in (
        ("mime", "did you mean mine"),
        ("lost", "='lost': module nowhere cannot be imported"),
        ("odd", "='odd' is a function; it must be"),
        ("twice", "offered by several packages; use one of headstart.algorithms:APFL, headstart"),
        ("ready", "is not known"),
    ):
        with pytest.raises(ConfigError, match=message):
            algorithm(name)
    assert load_experiment(None, ["model.name=ready"]).model == {"name": "ready"}


def test_importing_headstart_reads_no_entry_points() -> None:
    """Nor does it import what reads them."""
    program = "import headstart._extensions, sys; assert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def again(experiment: Experiment, folder: Path) -> Experiment:
    path = folder / "stored.toml"
    path.write_text(experiment.to_toml())
    return load_experiment(path)


def test_models_from_outside_are_classes_with_options_or_finished_objects(place: Path) -> None:
    scaled = load_experiment(None, ["model.name=outside:Scaled", "model.factor=3.0"])
    assert dict(scaled.model) == {"name": "outside:Scaled", "factor": 3.0}
    assert again(scaled, place) == scaled and scaled.build_model().factor == 3.0  # type: ignore[attr-defined]
    ready = load_experiment(None, ["model.name=outside:READY"])
    assert dict(ready.model) == {"name": "outside:READY"}
    assert again(ready, place).build_model() is sys.modules["outside"].READY
    for setting, message in (
        (["model.name=outside:READY", "model.factor=1"], "model.factor is not an option"),
        (["model.name=outside:Scaled", "model.factr=1"], "did you mean factor"),
        (["model.name=outside:function"], "is a function without the methods init and apply"),
        (["model.name=outside:Plain"], "make it a frozen dataclass"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_experiment(None, setting)


def test_aggregation_from_outside(place: Path) -> None:
    table = {"steps": [{"name": "outside:Halved"}], "rule": "outside:First"}
    experiment = Experiment.from_table({"aggregation": table})
    assert experiment.aggregation == {
        "steps": [{"name": "outside:Halved", "factor": 0.5}],
        "rule": "outside:First",
    }
    assert again(experiment, place) == experiment
    assert experiment.build_algorithm().rule is not None
    with pytest.raises(ConfigError, match=r"must be a class derived from headstart.aggregation"):
        Experiment.from_table({"aggregation": {"rule": "outside:Halved"}})


def test_sources_from_outside(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = dataset_options.resolve_data_options({"source": "outside:SOURCE", "clients": 5})
    assert table["source"] == "outside:SOURCE" and table["partition"] == "class-groups"
    assert dataset_options.build_dataset(table, seed=0).clients == 5
    assert load_source("outside:SOURCE").x.shape == (1797, 8, 8, 1)
    with pytest.raises(ConfigError, match=r"data.source='outside:function' is a function; it must"):
        dataset_options.resolve_data_options({"source": "outside:function"})
    assert headstart(capsys, "data", "describe", "outside:SOURCE")[0] == 0
    assert headstart(capsys, "data", "get", "outside:SOURCE")[0] == 0


def test_the_current_folder_comes_last(place: Path) -> None:
    """A file that is called like an installed module is not imported in its place."""
    (place / "optax.py").write_text("raise SystemExit('shadowed')")
    (place / "pooch.py").write_text("raise SystemExit('shadowed')")
    before = list(sys.path)
    assert load_object("pooch:retrieve", "here") is not None
    assert sys.path == before, "the path is extended only for a module that is not found"
    load_object("outside:READY", "here")
    assert sys.path == [*before, str(place.resolve())]


def test_only_the_command_line_looks_in_the_current_folder(place: Path) -> None:
    extensions._searched.set(())
    with pytest.raises(ConfigError, match=r"No module named 'outside'; install it$"):
        load_object("outside:READY", "here")


def test_a_federation_does_not_look_in_the_current_folder(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extensions._searched.set(())
    words = ("federate", "init", "wards", "--set", "model.name=outside:READY")
    code, _, err = headstart(capsys, *words)
    assert code == 2 and "No module named 'outside'; install it" in err


TRAP = "from pathlib import Path\nPath('sprung').touch()\nREADY = None\n"


@pytest.mark.parametrize("trap", ["evil:READY", "stranger.evil:READY", "stranger:READY"])
@pytest.mark.parametrize("inside", [True, False])
def test_nothing_is_imported_from_the_folder_of_a_run(
    trap: str, inside: bool, place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Neither beside the configuration nor as part of a package, from inside or from above."""
    run = place / "stranger"
    (run / "checkpoint").mkdir(parents=True)
    (run / "personal").mkdir()
    table = f'[data]\nsource = "{trap}"\n[model]\nname = "{trap}"\n'
    (run / "config.toml").write_text(table)
    header = {"format": MODEL_FORMAT, "model": {"name": trap}, "objective": {}}
    schema = Schema(shape=(2,), classes=2).to_table()
    write_tensors(run / "personal" / "me.safetensors", {}, {**header, "schema": schema})
    (run / "personal" / "evil.py").write_text(TRAP)
    (run / "evil.py").write_text(TRAP)
    (run / "stranger.py").write_text(TRAP)
    if trap.startswith("stranger:"):
        (run / "__init__.py").write_text(TRAP)
    if inside:
        monkeypatch.chdir(run)
    folder = "." if inside else "stranger"
    for words in (
        ("personalize", folder, "--data", "x.csv"),
        ("run", "--resume", "--out", folder),
        ("run", f"{folder}/config.toml"),
        ("diagnose", f"{folder}/config.toml"),
        ("data", "describe", f"{folder}/config.toml"),
        ("predict", f"{folder}/personal/me.safetensors", "--data", "x.csv"),
    ):
        code, _, err = headstart(capsys, *words)
        assert code == 2 and trap in err, err
    with pytest.raises(ConfigError):
        read_experiment(Path(folder))
    assert not list(place.rglob("sprung"))


def test_a_module_in_the_folder_of_a_run_is_named(place: Path) -> None:
    sys.path.append(str(place))
    with (
        refuse_imports_from(place),
        pytest.raises(ConfigError, match="lies in the folder of the run or"),
    ):
        load_object("outside:READY", "model.name")
    assert load_object("outside:READY", "model.name") is not None
