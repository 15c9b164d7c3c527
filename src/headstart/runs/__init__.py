"""Experiments, the folders they leave, and what can be done with a finished run."""

from headstart.runs.config import EvaluationOptions, Experiment, load_experiment
from headstart.runs.directory import RunDirectory
from headstart.runs.loading import load_run
from headstart.runs.run import PersonalModel, Run
from headstart.runs.training import Listener, run_experiment, train

__all__ = [
    "EvaluationOptions",
    "Experiment",
    "Listener",
    "PersonalModel",
    "Run",
    "RunDirectory",
    "load_experiment",
    "load_run",
    "run_experiment",
    "train",
]
