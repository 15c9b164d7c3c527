"""A finished run in memory: its numbers, and a model for every client."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from headstart._experiments.adaptation import adapt_model, choose_own_steps
from headstart._experiments.configuration import Experiment
from headstart._keys import Keys
from headstart.algorithms._contract import Algorithm, Batch, Memory, ModelParts, State
from headstart.data._federated import ClientData, FederatedDataset, from_clients
from headstart.data._schema import Schema
from headstart.data._schema_matching import match_inputs, match_labels
from headstart.errors import ConfigError, DataError, DivergedError, OutputError
from headstart.models._model import Model
from headstart.models.objectives import (
    Classification,
    Objective,
    ObjectiveLike,
    Score,
    make_objective,
)
from headstart.options import require_at_least
from headstart.parts import merge_frozen
from headstart.records import ChosenSteps, ClientResult, Evaluation, RunSummary
from headstart.trees import Tree, size

NOT_FINITE = "the model's outputs for these examples are not finite numbers"


@dataclass(frozen=True, eq=False)
class PersonalModel:
    """One client's own model."""

    params: Tree
    model: Model
    schema: Schema
    objective: ObjectiveLike = None
    """Loss and metrics; by default what fits the labels."""
    steps: int | None = None
    """Adaptation steps it took, if that is known; a file does not store them."""
    chosen: ChosenSteps | None = None
    """Why it took that many; None if the number was given."""

    def save(self, path: str | Path, *, algorithm: str = "") -> Path:
        """Write the model to a ``.safetensors`` file that ``hs.load_model`` opens."""
        from headstart._experiments.model_files import save_model

        path = Path(path)
        if path.suffix != ".safetensors":
            raise OutputError(f"{path} must end in .safetensors")
        save_model(path, self.params, self.model, self.schema, self.objective, algorithm=algorithm)
        return path

    def __repr__(self) -> str:
        """Return the model, its size and its inputs."""
        columns = ", ".join(self.schema.feature_names[:6])
        named = f", columns {columns}" if columns else ""
        return (
            f"PersonalModel({self.model!r}, {size(self.params):,} parameters, "
            f"examples of shape {self.schema.shape}{named})"
        )

    def predict(self, x: object) -> Shaped[np.ndarray, "batch ..."]:
        """Return the answer for each example: a class number, a number, or 0 and 1 for each label.

        ``x`` is an array, or a table whose columns are matched by name. The names of classes are in
        ``schema.class_names``.
        """
        return np.asarray(self._objective.predictions(self._outputs(x)))

    def score(self, x: object, y: object) -> dict[str, float]:
        """Return every metric of the objective; raise DivergedError if outputs are not finite."""
        return self._score(x, y, self._objective)

    def probabilities(self, x: object) -> Float[np.ndarray, "batch ..."]:
        """Return the probability of each class, or of each label, for each example."""
        if self.schema.target == "number":
            raise ConfigError("a model that predicts numbers gives no probabilities; use predict")
        turn = jax.nn.softmax if self.schema.target == "class" else jax.nn.sigmoid
        return np.asarray(turn(self._outputs(x)))

    def accuracy(self, x: object, y: object) -> float:
        """Return the share of right answers, for classification; else use :meth:`score`."""
        if self.schema.target != "class":
            raise ConfigError("accuracy is for classification; use score")
        objective = Classification(self.model, self.schema, ("accuracy",))
        return self._score(x, y, objective)["accuracy"]

    @property
    def _objective(self) -> Objective:
        return make_objective(self.model, self.schema, self.objective)

    def _outputs(self, x: object) -> Shaped[Array, "batch ..."]:
        x = match_inputs(x, self.schema)
        outputs = _compute_outputs(self._objective, self.params, jnp.asarray(x))
        if not np.all(np.isfinite(outputs)):
            raise DivergedError(NOT_FINITE)
        return outputs

    def _score(self, x: object, y: object, objective: Objective) -> dict[str, float]:
        x, y = check_examples(x, y, self.schema)
        score = _compute_score(objective, self.params, (jnp.asarray(x), jnp.asarray(y)))
        if not np.all(score.finite):
            raise DivergedError(NOT_FINITE)
        sums = np.sum(np.asarray(score.statistics, float), axis=0)
        return {name: float(value) for name, value in objective.values(sums, len(y)).items()}


@partial(jax.jit, static_argnames="objective")
def _compute_outputs(objective: Objective, params: Tree, x: Array) -> Shaped[Array, "batch ..."]:
    return objective.outputs(params, x)


@partial(jax.jit, static_argnames="objective")
def _compute_score(objective: Objective, params: Tree, batch: Batch) -> Score:
    return objective.score(params, batch)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished training: numbers, the shared model, and a model for every client."""

    summary: RunSummary
    evaluations: tuple[Evaluation, ...]
    clients: tuple[ClientResult, ...]
    model: Model
    algorithm: Algorithm
    state: State
    schema: Schema
    objective: ObjectiveLike = None
    """Loss and metrics; by default what fits the labels."""
    memory: Memory = ()
    """What the known clients keep between rounds, stacked; ``()`` if they keep nothing."""
    parts: ModelParts | None = None
    """Which parts of the model are frozen or not adapted."""
    experiment: Experiment | None = None
    """The configuration, as far as a file can hold it."""
    data: FederatedDataset | None = None
    """The clients' data, if they are available."""
    folder: Path | None = None
    """The folder of the run, if it has one."""

    def __repr__(self) -> str:
        """Return the summary."""
        return str(self.summary)

    def _repr_html_(self) -> str:
        """Return the summary for a notebook."""
        return f"<pre>{html.escape(str(self.summary))}</pre>"

    @property
    def params(self) -> Tree:
        """The shared initial model."""
        return merge_frozen(self.algorithm.model(self.state), self.parts)

    @property
    def start(self) -> PersonalModel:
        """The shared initial model, ready to predict."""
        return PersonalModel(self.params, self.model, self.schema, self.objective)

    def personalize(
        self,
        x: object = None,
        y: object = None,
        *,
        client: str | int | None = None,
        steps: int | None = None,
        seed: int = 0,
    ) -> PersonalModel:
        """Return a client's own model.

        With ``x`` and ``y``: a model for a client that was never in training, adapted to all the
        examples given; judge it on others (``mine.score(x_test, y_test)``). With ``client``, a name
        or number of one of the run's clients: the model that was scored in ``clients.csv``,
        made from the client's memory and adapted to its training examples.

        Without ``steps``, cross-validation within the examples chooses between 0 and the run's
        ``adapt_steps``, and ``mine.chosen`` says what it found; with ``evaluation.choose_steps =
        false`` in the run, all ``adapt_steps`` are taken. ``steps`` fixes the number.
        """
        require_at_least(0, steps=steps or 0, seed=seed)
        if client is not None:
            if x is not None or y is not None:
                raise ConfigError("give examples (x, y) or a client, not both")
            return self._personalize_client(client, steps)
        if x is None or y is None:
            raise ConfigError("give a client's examples, x and y, or one of the run's clients")
        memory = self.algorithm.init_memory(self.state)
        key = Keys.from_seed(seed).adaptation(None)
        return self._adapt(memory, check_examples(x, y, self.schema), key, steps)

    def client_data(self, client: str | int) -> tuple[int, ClientData]:
        """Return the number and the examples of one of the run's clients."""
        data = self._data()
        number = data.number_of(client)
        return number, data.client(number)

    def save(self, path: str | Path) -> Path:
        """Save the run in a folder, like ``headstart run``; ``hs.load_run`` opens it."""
        from headstart._experiments.run_files import save_run

        return save_run(self, Path(path))

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page of the run to its folder; a run without one is saved in ``path`` first."""
        from headstart._experiments.run_files import write_report

        return write_report(self, None if path is None else Path(path))

    def _personalize_client(self, client: str | int, steps: int | None) -> PersonalModel:
        if self.summary.adapt_on == "test":
            raise ConfigError(
                "this run adapted on the data that it scored (evaluation.adapt_on = test), so its "
                "clients' models are not for use; run it with adapt_on = train"
            )
        number, own = self.client_data(client)
        memory = self.algorithm.init_memory(self.state)
        if not own.is_new and self.algorithm.needs_memory:
            if self.summary.engine == "flower":
                raise ConfigError("in a federation every site keeps its own memory on its own disk")
            memory = jax.tree.map(lambda leaf: leaf[number], self.memory)
        key = Keys.from_seed(self.summary.seed).adaptation(number)
        return self._adapt(memory, (own.x_train, own.y_train), key, steps)

    def _adapt(
        self,
        memory: Memory,
        examples: tuple[np.ndarray, np.ndarray],
        key: PRNGKeyArray,
        steps: int | None,
    ) -> PersonalModel:
        objective, chosen = make_objective(self.model, self.schema, self.objective), None
        common = (self.algorithm, objective, self.parts, self.state, memory, examples, key)
        most = self.summary.adapt_steps
        if steps is None and most > 0 and self._chooses_steps:
            chosen = choose_own_steps(*common, most)
            steps = chosen.steps
        steps = most if steps is None else steps
        params = merge_frozen(adapt_model(*common, steps), self.parts)
        return PersonalModel(params, self.model, self.schema, objective, steps, chosen)

    @property
    def _chooses_steps(self) -> bool:
        """Whether clients choose their number of steps, unless it is given."""
        return self.experiment is None or self.experiment.evaluation.choose_steps

    def _data(self) -> FederatedDataset:
        if self.data is None and self.experiment is None:
            raise ConfigError("the run does not know its clients' data")
        data = self.data or self.experiment.build_data()  # type: ignore[union-attr]
        if data.digest() != self.summary.data_digest:
            raise DataError("these are not the data that the run was made with")
        return data


def check_examples(x: object, y: object, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Return the examples as arrays; raise DataError if they do not fit the run."""
    x, y = match_inputs(x, schema), match_labels(y, schema)
    if len(x) != len(y) or not len(y):
        raise DataError(f"{len(x)} inputs and {len(y)} labels; give as many of each, at least one")
    from_clients([(x, y, x[:1], y[:1])], schema, names=["given"])
    return x, y.astype(schema.label_type)
