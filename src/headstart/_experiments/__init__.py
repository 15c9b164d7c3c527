"""Experiments, the folders they leave, and what can be done with a finished run."""

from headstart._experiments.callbacks import EarlyStopping, Listener
from headstart._experiments.configuration import EvaluationOptions, Experiment, load_experiment
from headstart._experiments.finished_run import PersonalModel, Run
from headstart._experiments.model_files import load_model
from headstart._experiments.run_files import load_run
from headstart._experiments.training import run_experiment, train
from headstart.records import RunDirectory

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
