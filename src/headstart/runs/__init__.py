"""Experiments, the folders they leave, and what can be done with a finished run."""

from headstart.runs.callbacks import EarlyStopping, Listener
from headstart.runs.config import EvaluationOptions, Experiment, load_experiment
from headstart.runs.directory import RunDirectory
from headstart.runs.loading import load_run
from headstart.runs.model_files import load_model
from headstart.runs.run import PersonalModel, Run
from headstart.runs.training import run_experiment, train

__all__ = [
    "EarlyStopping",
    "EvaluationOptions",
    "Experiment",
    "Listener",
    "PersonalModel",
    "Run",
    "RunDirectory",
    "load_experiment",
    "load_model",
    "load_run",
    "run_experiment",
    "train",
]
