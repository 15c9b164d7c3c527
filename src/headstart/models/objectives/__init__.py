"""Objectives: losses, predictions and metrics, built in and one's own."""

from headstart.models.objectives.classification import Classification, Sequences
from headstart.models.objectives.multi_label import MultiLabel
from headstart.models.objectives.objective import Measure, Objective, Score
from headstart.models.objectives.objective_options import (
    OBJECTIVES,
    Given,
    build_objective,
    objective_for,
    resolve_objective,
    target_of,
)
from headstart.models.objectives.regression import Regression

__all__ = [
    "OBJECTIVES",
    "Classification",
    "Given",
    "Measure",
    "MultiLabel",
    "Objective",
    "Regression",
    "Score",
    "Sequences",
    "build_objective",
    "objective_for",
    "resolve_objective",
    "target_of",
]
