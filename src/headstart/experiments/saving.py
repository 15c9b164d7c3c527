"""A run made in Python, kept in a folder like any other."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import ConfigError
from headstart.experiments.checkpoint import Checkpoint, save_checkpoint
from headstart.experiments.directory import RunDirectory
from headstart.experiments.run import Run
from headstart.simulation.simulation import Progress


def save_run(run: Run, path: Path) -> Path:
    """Write the run's folder; an existing one is not replaced."""
    if run.experiment is None:
        raise ConfigError("the run does not know its configuration and cannot be saved")
    folder, experiment = RunDirectory(path), run.experiment
    folder.claim(experiment.to_toml(), resume=False)
    folder.write_schema(run.schema)
    folder.write_metrics(run.records)
    progress = Progress(run.summary["rounds"], run.state, run.memory)
    checkpoint = Checkpoint(
        progress, run.summary["seconds"], run.summary["evaluation_seconds"], run.records
    )
    fingerprint = f"{experiment.fingerprint()}-{run.summary['data_digest']}"
    save_checkpoint(folder.checkpoints, checkpoint, fingerprint)
    folder.write_results(dict(run.summary), run.clients, run.start)
    return path


def report_of(run: Run, path: Path | None) -> Path:
    """The run's page; a run without a folder is kept in ``path`` first."""
    from headstart.report import make_report

    folder = run.folder or path
    if folder is None:
        raise ConfigError("the run has no folder yet; give one, as in run.report('runs/mine')")
    if run.folder is None:
        save_run(run, folder)
    return make_report([folder])
