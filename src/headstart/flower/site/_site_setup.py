"""Model, algorithm and objective of a run, built at a site from an order."""

from __future__ import annotations

from dataclasses import dataclass

from headstart._experiments.configuration import build_aggregated_algorithm, build_model
from headstart._keys import Keys
from headstart.algorithms._contract import Algorithm, ModelParts, State
from headstart.data._schema import Schema
from headstart.flower.protocol._messages import Assignment
from headstart.models._model import Model
from headstart.models.objectives import Objective, build_objective
from headstart.options import build_from_table
from headstart.parts import Parts, prepare_training
from headstart.trees import Tree


@dataclass(frozen=True)
class SiteSetup:
    """Everything a site needs to train or adapt, besides its data."""

    model: Model
    algorithm: Algorithm
    first_params: Tree
    """The parameters before the first round, which the seed decides."""
    parts: ModelParts | None
    schema: Schema
    objective: Objective
    keys: Keys

    @classmethod
    def from_assignment(cls, assignment: Assignment) -> SiteSetup:
        """Build everything; raise ConfigError if this site does not know the names."""
        model, schema = build_model(assignment.model), Schema.from_table(assignment.example_schema)
        algorithm = build_aggregated_algorithm(assignment.algorithm, assignment.aggregation)
        keys = Keys.from_seed(assignment.seed)
        parts = build_from_table(Parts, assignment.parts, "parts")
        algorithm, first_params, prepared = prepare_training(
            parts, model, algorithm, keys.init, schema
        )
        objective = build_objective(assignment.objective, model, schema)
        return cls(model, algorithm, first_params, prepared, schema, objective, keys)

    def first_state(self) -> State:
        """Return the server's state before the first round."""
        return self.algorithm.init(self.first_params)
