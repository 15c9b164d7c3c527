"""The experiment file: every key has a default, unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from headstart.algorithms import ALGORITHMS, Algorithm
from headstart.data import build as data_build
from headstart.data.federated import FederatedDataset
from headstart.errors import ConfigError
from headstart.models import MODELS
from headstart.models.contract import Model
from headstart.options import as_table, build, choose, convert, require_at_least, require_one_of


@dataclass(frozen=True)
class EvaluationOptions:
    """The ``[evaluation]`` table."""

    every: int = 20
    """Rounds between evaluations; the last round is always evaluated."""
    adapt_steps: int = 1
    """ν at test time: adaptation steps before a client is scored."""
    adapt_on: Literal["train", "test"] = "train"
    """``test`` adapts on the data that is scored, as paper P did; marked wherever shown."""
    curve_steps: int = 10
    """At the end accuracy is measured after 0 … so many adaptation steps."""
    max_clients: int = 10_000
    """Of more known or new clients than this, a random choice of so many is evaluated."""
    gradient_norm: bool | None = None
    """Also measure ‖∇F‖² at the random iterates of P Remark 4.7."""

    def __post_init__(self) -> None:
        """Refuse values no run could use."""
        require_at_least(1, **{"evaluation.every": self.every})
        require_at_least(0, **{"evaluation.adapt_steps": self.adapt_steps})
        require_at_least(0, **{"evaluation.curve_steps": self.curve_steps})
        require_at_least(1, **{"evaluation.max_clients": self.max_clients})
        require_one_of(("train", "test"), **{"evaluation.adapt_on": self.adapt_on})


@dataclass(frozen=True)
class Experiment:
    """A whole experiment, checked and with every default filled in."""

    label: str = ""
    """A name for tables; by default made from the algorithm."""
    seed: int = 0
    rounds: int = 200
    participation: float = 0.5
    data: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Experiment:
        """Check a table as read from a file."""
        table = dict(table)
        sections = ("data", "model", "algorithm", "evaluation")
        for name in sections:
            if not isinstance(table.get(name, {}), Mapping):
                raise ConfigError(f"{name} must be a table: [{name}]")
        table["evaluation"] = build(EvaluationOptions, table.get("evaluation", {}), "evaluation")
        plain = build(cls, {k: v for k, v in table.items() if k != "evaluation"}, "")
        require_at_least(1, rounds=plain.rounds)
        if not 0 <= plain.seed < 2**32:
            raise ConfigError(f"seed={plain.seed} must lie between 0 and {2**32 - 1}")
        algorithm = build_algorithm(plain.algorithm)
        if table["evaluation"].gradient_norm and not algorithm.measures_gradient_norm:
            raise ConfigError(
                "evaluation.gradient_norm=true measures at random iterates of fedavg or "
                "per-fedavg; set algorithm.random_iterate=true"
            )
        return replace(
            plain,
            label=plain.label or algorithm.label,
            data=_absolute(data_build.resolve(dict(plain.data))),
            model=complete(MODELS, build_model(plain.model)),
            algorithm=complete(ALGORITHMS, algorithm),
            evaluation=table["evaluation"],
        )

    def to_table(self) -> dict[str, Any]:
        """The table that gives this experiment again."""
        plain = {k: getattr(self, k) for k in ("label", "seed", "rounds", "participation")}
        sections = {k: dict(getattr(self, k)) for k in ("data", "model", "algorithm")}
        return {**plain, **sections, "evaluation": as_table(self.evaluation)}

    def to_toml(self) -> str:
        """The text of ``config.toml``."""
        return "# headstart run THIS-FILE gives the same numbers again\n" + tomli_w.dumps(
            self.to_table()
        )

    def build_data(self) -> FederatedDataset:
        """The data set, split among clients."""
        return data_build.build(dict(self.data), seed=self.seed)

    def build_model(self) -> Model:
        """The model."""
        return build_model(self.model)

    def build_algorithm(self) -> Algorithm:
        """The algorithm."""
        return build_algorithm(self.algorithm)

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with another seed."""
        return replace(self, seed=seed)

    def with_algorithm(self, name: str) -> Experiment:
        """The same experiment with another algorithm, which keeps the options it shares."""
        known = [f.name for f in fields(choose(ALGORITHMS, name, "algorithm.name"))]
        shared = {key: value for key, value in self.algorithm.items() if key in known}
        table = {k: v for k, v in self.to_table().items() if k != "label"}
        return Experiment.from_table({**table, "algorithm": {**shared, "name": name}})

    def fingerprint(self, *, with_data: bool = True) -> str:
        """What must agree for a checkpoint to be continued: all but the label and the end.

        In a federation the data are the sites' own, and where their folder lies means nothing.
        """
        table = self.to_table()
        for free in ("label", "rounds", *([] if with_data else ["data"])):
            del table[free]
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


DEFAULT: dict[str, Any] = {
    "rounds": 400,
    "participation": 0.5,
    "data": {
        "source": "digits",
        "partition": "iid",
        "clients": 20,
        "new_clients": 4,
        "own_labels": True,
    },
    "model": {"name": "mlp"},
    "algorithm": {
        "name": "per-fedavg",
        "inner_steps": 3,
        "inner_lr": 0.4,
        "local_lr": 0.2,
        "local_steps": 1,
        "max_gradient_norm": 30.0,
    },
    "evaluation": {"every": 50, "adapt_steps": 3},
}
"""What ``headstart run`` does with no arguments: the demo's Per-FedAvg (examples/demo)."""


def load_experiment(
    path: Path | None, settings: Sequence[str] = (), *, seed: int | None = None
) -> Experiment:
    """An experiment from a file (or the default one) with ``key=value`` settings on top."""
    table = read_toml(path) if path is not None else default_table(settings)
    for setting in settings:
        apply_setting(table, setting)
    if seed is not None:
        table["seed"] = seed
    return Experiment.from_table(table)


def default_table(settings: Sequence[str]) -> dict[str, Any]:
    """What a command without a file starts from: the demo, or for other data plain defaults.

    The demo's step sizes, rounds and adaptation steps were tuned for the demo's clients. For any
    other clients they would be a guess, and often one that diverges.
    """
    named = dict(setting.partition("=")[::2] for setting in settings)
    if any(key in named for key in ("data.source", "data.path", "data.partition")):
        return {}
    table: dict[str, Any] = json.loads(json.dumps(DEFAULT))
    algorithm = ALGORITHMS.get(str(_value(named.get("algorithm.name", "per-fedavg"))))
    known = [] if algorithm is None else [f.name for f in fields(algorithm)]
    table["algorithm"] = {k: v for k, v in table["algorithm"].items() if k in ("name", *known)}
    return table


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file, or one clear line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; give an experiment file (TOML)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def apply_setting(table: dict[str, Any], setting: str) -> None:
    """Set one dotted key; the value is read as TOML, or taken as text if it is none."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {setting!r} is not key=value, as in algorithm.inner_lr=0.05")
    *parents, last = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {setting!r}: {parent} is not a table")
    table[last] = _value(text.strip())


def build_algorithm(table: Mapping[str, Any]) -> Algorithm:
    """The algorithm of an ``[algorithm]`` table."""
    return _build("algorithm", ALGORITHMS, table, default="per-fedavg")


def build_model(table: Mapping[str, Any]) -> Model:
    """The model of a ``[model]`` table."""
    return _build("model", MODELS, table, default="mlp")


def complete(registry: Mapping[str, Any], built: Any) -> dict[str, Any]:
    """The section an object came from, with every default written out."""
    name = next(name for name, cls in registry.items() if type(built) is cls)
    return {"name": name, **as_table(built)}


def _absolute(data: dict[str, Any]) -> dict[str, Any]:
    """A folder or table is found again from wherever the stored configuration is run."""
    if "path" not in data or "\0" in data["path"]:
        return data
    return {**data, "path": str(Path(data["path"]).expanduser().absolute())}


def _build(where: str, registry: Mapping[str, Any], table: Mapping[str, Any], default: str) -> Any:
    name = convert(str, table.get("name", default), f"{where}.name")
    cls = choose(registry, name, f"{where}.name")
    try:
        return build(cls, {k: v for k, v in table.items() if k != "name"}, where)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(f"{where}.") else f"{where}.{text}") from None


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
