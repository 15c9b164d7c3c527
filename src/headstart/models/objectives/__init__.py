"""Objectives: losses, predictions and metrics, built in or defined by the user."""

from headstart.models.objectives._classification import Classification, Sequences
from headstart.models.objectives._multi_label import MultiLabel
from headstart.models.objectives._objective import Measure, Objective, Score
from headstart.models.objectives._objective_options import (
    OBJECTIVES,
    ObjectiveLike,
    build_objective,
    find_target,
    make_objective,
    resolve_objective,
)
from headstart.models.objectives._regression import Regression

__all__ = [
    "OBJECTIVES",
    "Classification",
    "Measure",
    "MultiLabel",
    "Objective",
    "ObjectiveLike",
    "Regression",
    "Score",
    "Sequences",
    "build_objective",
    "find_target",
    "make_objective",
    "resolve_objective",
]
