"""The experiment file: every key has a default, unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

import tomli_w

from headstart._extensions import (
    Requirement,
    find_extension,
    forbid_imports_from,
    refuse_imports_from,
    require_methods,
    require_subclass,
)
from headstart.aggregation import RULES, STEPS, AggregationRule, AggregationStep, with_aggregation
from headstart.algorithms import ALGORITHMS, Algorithm
from headstart.data import _dataset_options as dataset_options
from headstart.data._federated import FederatedDataset
from headstart.data._schema import Schema
from headstart.errors import ConfigError, InputError
from headstart.models import MODELS
from headstart.models._model import Model
from headstart.models.objectives import Objective, find_target, make_objective, resolve_objective
from headstart.options import (
    build_from_table,
    convert,
    refuse_unknown,
    require_at_least,
    require_one_of,
    to_table,
)
from headstart.parts import Parts
from headstart.records._base import JsonTable

T = TypeVar("T")


Table = Mapping[str, object]
"""A table of an experiment file, before its values are checked."""


class Kind(NamedTuple, Generic[T]):
    """A kind of component that an experiment names, built in or from outside."""

    word: str
    builtin: Mapping[str, type[T] | T]
    default: str
    requirement: Requirement

    def find(self, name: str, where: str) -> type[T] | T:
        """Return the class of this name; a model can also be an object, ready for use."""
        return find_extension(self.word, name, self.builtin, where, self.requirement)

    def option_names(self, name: str) -> list[str]:
        """Return the names of the options of the class of this name."""
        component = self.find(name, f"{self.word}.name")
        return [f.name for f in fields(component)] if is_dataclass(component) else []


GIVEN = "given"
"""The name of a component that was given from Python and cannot be stored."""
ALGORITHM = Kind[Algorithm]("algorithm", ALGORITHMS, "per-fedavg", require_subclass(Algorithm))
MODEL = Kind[Model]("model", MODELS, "mlp", require_methods("init", "apply"))
STEP = Kind[AggregationStep]("aggregation step", STEPS, "clip", require_subclass(AggregationStep))
RULE = Kind[AggregationRule]("aggregation rule", RULES, "mean", require_subclass(AggregationRule))


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
    """At the end clients are scored after each number of adaptation steps up to this."""
    max_clients: int = 10_000
    """Of more known or new clients than this, this many drawn at random are evaluated."""
    gradient_norm: bool | None = None
    """Also measure ‖∇F‖² at the random iterates of P Remark 4.7."""
    choose_steps: bool = True
    """At the end every client also chooses its own number of steps, at most ``adapt_steps``."""
    shots: tuple[int, ...] = ()
    """At the end clients are also scored after adapting to only this many of their examples."""

    @property
    def most_steps(self) -> int:
        """The most adaptation steps of any evaluation."""
        return max(self.curve_steps, self.adapt_steps)

    def __post_init__(self) -> None:
        """Refuse values that no run could use."""
        require_at_least(1, **{"evaluation.every": self.every})
        require_at_least(0, **{"evaluation.adapt_steps": self.adapt_steps})
        require_at_least(0, **{"evaluation.curve_steps": self.curve_steps})
        require_at_least(1, **{"evaluation.max_clients": self.max_clients})
        require_one_of(("train", "test"), **{"evaluation.adapt_on": self.adapt_on})
        for shots in self.shots:
            require_at_least(1, **{"evaluation.shots": shots})
        if self.shots and self.adapt_on == "test":
            raise ConfigError(
                "evaluation.shots counts training examples, but evaluation.adapt_on=test adapts on "
                "held-out ones; use adapt_on = train"
            )

    @property
    def compares_steps(self) -> bool:
        """Whether clients choose their number of steps at the end."""
        return self.choose_steps and self.adapt_steps > 0 and self.adapt_on == "train"

    def to_table(self) -> JsonTable:
        """Return the table of a file; what earlier versions did not know only if it is asked for.

        So the folders of earlier versions keep their fingerprint.
        """
        table = to_table(self)
        if self.choose_steps:
            del table["choose_steps"]
        if not self.shots:
            del table["shots"]
        return table


@dataclass(frozen=True)
class Experiment:
    """A whole experiment, checked and with every default filled in."""

    label: str = ""
    """A name for tables; by default derived from the algorithm."""
    seed: int = 0
    rounds: int = 200
    participation: float = 0.5
    data: Table = field(default_factory=dict)
    model: Table = field(default_factory=dict)
    algorithm: Table = field(default_factory=dict)
    aggregation: Table = field(default_factory=dict)
    """Steps between client and server, or a rule over all replies; empty: the weighted mean."""
    parts: Parts = field(default_factory=Parts)
    """Which parts of the model are trained, adapted and kept at the client."""
    objective: Table = field(default_factory=dict)
    """Loss and metrics; empty: what fits the labels."""
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    @classmethod
    def from_table(cls, table: Table) -> Experiment:
        """Check a table, as read from a file, and return its experiment."""
        for name in ("data", "model", "algorithm", "aggregation", "objective"):
            _section(table, name)
        evaluation = build_from_table(
            EvaluationOptions, _section(table, "evaluation"), "evaluation"
        )
        parts = build_from_table(Parts, _section(table, "parts"), "parts")
        own = ("evaluation", "parts")
        plain = build_from_table(cls, {k: v for k, v in table.items() if k not in own}, "")
        require_at_least(1, rounds=plain.rounds)
        if not 0 <= plain.seed < 2**32:
            raise ConfigError(f"seed={plain.seed} must lie between 0 and {2**32 - 1}")
        algorithm = None if is_given(plain.algorithm) else build_algorithm(plain.algorithm)
        measured = algorithm is None or algorithm.measures_gradient_norm
        if evaluation.gradient_norm and not measured:
            raise ConfigError(
                "evaluation.gradient_norm=true measures at random iterates of fedavg or "
                "per-fedavg; set algorithm.random_iterate=true"
            )
        return replace(
            plain,
            label=plain.label or (algorithm.label if algorithm else GIVEN),
            data=_make_path_absolute(dataset_options.resolve_data_options(dict(plain.data))),
            model=plain.model
            if is_given(plain.model)
            else complete(MODEL, plain.model, build_model(plain.model)),
            algorithm=plain.algorithm
            if algorithm is None
            else complete(ALGORITHM, plain.algorithm, algorithm),
            aggregation=dict(plain.aggregation)
            if aggregation_is_given(plain.aggregation)
            else complete_aggregation(plain.aggregation),
            parts=parts,
            objective=dict(plain.objective)
            if is_given(plain.objective)
            else resolve_objective(plain.objective),
            evaluation=evaluation,
        )

    def to_table(self) -> JsonTable:
        """Return the table that :meth:`from_table` reads."""
        plain = {k: getattr(self, k) for k in ("label", "seed", "rounds", "participation")}
        sections = {k: dict(getattr(self, k)) for k in ("data", "model", "algorithm")}
        # What is not asked for is not written: folders of earlier versions keep their fingerprint.
        if self.aggregation:
            sections["aggregation"] = dict(self.aggregation)
        if not self.parts.everything:
            sections["parts"] = to_table(self.parts)
        if self.objective:
            sections["objective"] = dict(self.objective)
        return {**plain, **sections, "evaluation": self.evaluation.to_table()}

    def to_toml(self) -> str:
        """Return the text of ``config.toml``."""
        return "# headstart run THIS-FILE gives the same numbers again\n" + tomli_w.dumps(
            self.to_table()
        )

    def build_data(self) -> FederatedDataset:
        """Build the data set, split among clients."""
        return dataset_options.build_dataset(
            dict(self.data), seed=self.seed, target=find_target(self.objective)
        )

    def build_objective(self, model: Model, schema: Schema) -> Objective:
        """Build loss and metrics of the model on data with this schema."""
        return make_objective(model, schema, self.objective)

    def build_model(self) -> Model:
        """Build the model."""
        return build_model(self.model)

    def build_algorithm(self) -> Algorithm:
        """Build the algorithm, with its aggregation."""
        return build_aggregated_algorithm(self.algorithm, self.aggregation)

    def with_seed(self, seed: int) -> Experiment:
        """Return the same experiment with another seed."""
        return replace(self, seed=seed)

    def with_algorithm(self, name: str) -> Experiment:
        """Return the same experiment with another algorithm, which keeps the options it shares."""
        known = ALGORITHM.option_names(name)
        shared = {key: value for key, value in self.algorithm.items() if key in known}
        table = {k: v for k, v in self.to_table().items() if k != "label"}
        return Experiment.from_table({**table, "algorithm": {**shared, "name": name}})

    def fingerprint(self, *, with_data: bool = True) -> str:
        """Return a hash of what must agree to resume a checkpoint: all but label and rounds.

        In a federation the data belong to the sites, and their path has no meaning for the server.
        """
        table = self.to_table()
        for free in ("label", "rounds", *([] if with_data else ["data"])):
            del table[free]
        table["algorithm"] = without_later_options(table["algorithm"])
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


LATER_OPTIONS: Mapping[str, object] = {
    "warmup_rounds": 0,
    "server_lr_decay": "none",
    "weight_decay": 0.0,
    "rates": "fixed",
    "rates_per_step": False,
    "rates_lr": 0.1,
    "earlier_losses": 0.0,
    "max_gradient_norm": math.inf,
    "full_batch_adaptation": False,
}
"""Options of algorithms that version 0.1 did not have, with the values that change nothing.

At these values they do not count in a fingerprint, so that folders of version 0.1 can be resumed.
"""
LATER_OPTIONS_OF: Mapping[str, Mapping[str, object]] = {
    "local": {"local_lr_decay": "none"},
    "apfl": {"local_lr_decay": "none", "server_lr": 1.0},
    "aruba": {"server_lr": 1.0},
}
"""The same, for options that version 0.1 had for other algorithms only."""
DEFAULT: JsonTable = {
    "rounds": 1000,
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
        "method": "first-order",
        "inner_steps": 3,
        "inner_lr": 0.3,
        "local_lr": 0.2,
        "local_steps": 1,
        "full_batch_adaptation": True,
        "server_optimizer": "adam",
        "server_lr": 0.01,
        "weight_decay": 0.01,
        "rates": "per-array",
        "rates_per_step": True,
        "earlier_losses": 0.3,
    },
    "evaluation": {"every": 100, "adapt_steps": 3},
}
"""The experiment of ``headstart run`` without arguments: examples/demo/3-learned-rates.toml."""


def without_later_options(algorithm: Table) -> JsonTable:
    """Return an ``[algorithm]`` table without later options that change nothing."""
    later = {**LATER_OPTIONS, **LATER_OPTIONS_OF.get(str(algorithm.get("name")), {})}
    return {key: value for key, value in algorithm.items() if later.get(key, ...) != value}


def load_experiment(
    path: Path | None, settings: Sequence[str] = (), *, seed: int | None = None
) -> Experiment:
    """Load an experiment from a file, or the default one, and apply ``key=value`` settings."""
    table = read_toml(path) if path is not None else default_table(settings)
    for setting in settings:
        apply_setting(table, setting)
    if seed is not None:
        table["seed"] = seed
    return Experiment.from_table(table)


def default_table(settings: Sequence[str]) -> JsonTable:
    """Return the table of a command without a file: the demo, or plain defaults for other data.

    The demo's step sizes, rounds and adaptation steps were tuned for the demo's clients. For any
    other clients they would be a guess, and often one that diverges.
    """
    named = dict(setting.partition("=")[::2] for setting in settings)
    if any(key in named for key in ("data.source", "data.path", "data.partition")):
        return {}
    table: JsonTable = json.loads(json.dumps(DEFAULT))
    name = str(_parse_value(named.get("algorithm.name", ALGORITHM.default)))
    known = ALGORITHM.option_names(name)
    table["algorithm"] = {k: v for k, v in table["algorithm"].items() if k in ("name", *known)}
    return table


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run, from the configuration in its folder."""
    if not (folder / "config.toml").exists():
        raise InputError(f"{folder} is not a run: it has no config.toml")
    with refuse_imports_from(folder):
        return Experiment.from_table(read_toml(folder / "config.toml"))


def _holds_run(path: Path) -> bool:
    """Return whether the file is the stored configuration of a run."""
    beside = (path.parent / name for name in ("checkpoint", "summary.json", "metrics.jsonl"))
    return path.name == "config.toml" and any(other.exists() for other in beside)


def read_toml(path: Path) -> JsonTable:
    """Read a TOML file; nothing is imported from the folder of a run."""
    stored = _holds_run(path)
    if stored:
        forbid_imports_from(path.parent)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return upgrade_stored_table(table) if stored else table
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; give an experiment file (TOML)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def upgrade_stored_table(table: JsonTable) -> JsonTable:
    """Return a table that Headstart wrote, with what an earlier version did not write yet.

    Stored tables state every option. One without ``max_gradient_norm`` is from a version that did
    not clip by default: it keeps its meaning and its numbers.
    """
    algorithm = table.get("algorithm", {})
    if not isinstance(algorithm, dict) or "max_gradient_norm" in algorithm or is_given(algorithm):
        return table
    try:
        known = ALGORITHM.option_names(str(algorithm.get("name", ALGORITHM.default)))
    except ConfigError:  # Not installed here: whoever builds the algorithm says so.
        return table
    if "max_gradient_norm" not in known:
        return table
    return {**table, "algorithm": {**algorithm, "max_gradient_norm": math.inf}}


def apply_setting(table: JsonTable, setting: str) -> None:
    """Set one dotted key; the value is parsed as TOML, or used as text if it is not TOML."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {setting!r} is not key=value, as in algorithm.inner_lr=0.05")
    *parents, last = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {setting!r}: {parent} is not a table")
    table[last] = _parse_value(text.strip())


def build_algorithm(table: Table) -> Algorithm:
    """Build the algorithm of an ``[algorithm]`` table."""
    _refuse_options_of_others(table)
    return _build("algorithm", ALGORITHM, table)


def _refuse_options_of_others(table: Table) -> None:
    """Refuse an option that only other algorithms have, and name these."""
    name = table.get("name", ALGORITHM.default)
    if not isinstance(name, str) or name not in ALGORITHMS:
        return
    known = ALGORITHM.option_names(name)
    for key in table:
        owners = [other for other in ALGORITHMS if key in ALGORITHM.option_names(other)]
        if key != "name" and key not in known and owners:
            raise ConfigError(
                f"algorithm.{key} is not an option of {name}; it belongs to {', '.join(owners)}"
            )


def build_aggregated_algorithm(algorithm: Table, aggregation: Table) -> Algorithm:
    """Build the algorithm of an ``[algorithm]`` table, with its ``[aggregation]`` table."""
    steps, rule = build_aggregation(aggregation)
    return with_aggregation(build_algorithm(algorithm), steps, rule)


def build_aggregation(
    table: Table,
) -> tuple[list[AggregationStep], AggregationRule | None]:
    """Build steps and rule of an ``[aggregation]`` table, which also holds the rule's options."""
    steps = [_build("aggregation.steps", STEP, step) for step in _step_tables(table)]
    name = table.get("rule", "mean")
    options = {k: v for k, v in table.items() if k not in ("steps", "rule")}
    if name == "mean":
        refuse_unknown(options, (), "aggregation")
        return steps, None
    return steps, _build("aggregation", RULE, {**options, "name": name}, "rule")


def _step_tables(aggregation: Table) -> list[dict[str, object]]:
    tables: list[dict[str, object]] = convert(
        list[dict[str, object]], aggregation.get("steps", []), "aggregation.steps"
    )
    return tables


def complete_aggregation(table: Table) -> dict[str, object]:
    """Return the section with every default filled in; empty if it asks for nothing."""
    steps, rule = build_aggregation(table)
    pairs = zip(_step_tables(table), steps, strict=True)
    entry: dict[str, object] = {"steps": [complete(STEP, *pair) for pair in pairs]} if steps else {}
    if rule is not None:
        named = complete(RULE, {"name": table["rule"]}, rule)
        entry |= {"rule": named.pop("name"), **named}
    return entry


def build_model(table: Table) -> Model:
    """Build the model of a ``[model]`` table."""
    return _build("model", MODEL, table)


def is_given(table: Table) -> bool:
    """Return whether a section only says that its component was given from Python."""
    return table.get("name") == GIVEN


def aggregation_is_given(table: Table) -> bool:
    """Return whether a step or the rule was given from Python."""
    steps = table.get("steps")
    listed = steps if isinstance(steps, Sequence) else ()
    return table.get("rule") == GIVEN or any(
        is_given(step) for step in listed if isinstance(step, Mapping)
    )


def complete(kind: Kind[T], table: Table, built: T) -> dict[str, object]:
    """Return the section of a component with every default filled in.

    The name stays as it was given, so that a stored configuration finds the same component.
    """
    name = str(table.get("name", kind.default))
    has_options = isinstance(kind.find(name, "name"), type)
    return {"name": name, **(to_table(built) if has_options else {})}


def _section(table: Table, name: str) -> Table:
    section = table.get(name, {})
    if not isinstance(section, Mapping):
        raise ConfigError(f"{name} must be a table: [{name}]")
    return section


def _make_path_absolute(data: dict[str, object]) -> dict[str, object]:
    """Make the path absolute, so that the stored configuration works from any folder."""
    path = data.get("path")
    if not isinstance(path, str) or "\0" in path:
        return data
    return {**data, "path": str(Path(path).expanduser().absolute())}


def _build(where: str, kind: Kind[T], table: Table, key: str = "name") -> T:
    """Build the component that a table names; ``key`` is the option with the name."""
    name = convert(str, table.get("name", kind.default), f"{where}.{key}")
    if name == GIVEN:
        raise ConfigError(
            f"the {kind.word} of this run was given from Python ({table.get('description', '')}); "
            f"give it again: hs.load_run(folder, {_argument_name(kind)}=…)"
        )
    component = kind.find(name, f"{where}.{key}")
    options = {k: v for k, v in table.items() if k != "name"}
    if not isinstance(component, type):
        refuse_unknown(options, (), where)
        return component
    has_options = is_dataclass(component)
    if not has_options:
        raise ConfigError(
            f"{where}.{key}={name!r} is a class without options; make it a frozen dataclass, whose "
            f"fields are the options of [{where}]"
        )
    try:
        return build_from_table(component, options, where)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(f"{where}.") else f"{where}.{text}") from None


def _argument_name(kind: Kind[T]) -> str:
    """Return the argument of ``hs.load_run``; steps and rules belong to the algorithm."""
    return "algorithm" if kind in (STEP, RULE) else kind.word


def _parse_value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
