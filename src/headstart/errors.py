"""The errors that Headstart raises on purpose, as one small tree.

    HeadstartError                 base of all; str() is one clear line
    ├── InputError                 the user can correct it: the command line exits with 2
    │   ├── ConfigError            an option is unknown, missing or out of range
    │   ├── DataError              a data file is missing, damaged or does not fit
    │   └── OutputError            the output folder is taken, or cannot be written
    ├── CheckpointError            a checkpoint is damaged or belongs to another run
    ├── ProcessLostError           one of several processes that share a run has ended early
    ├── DivergedError              training produced numbers that are not finite
    │
    │   in headstart.flower, where a federation runs:
    ├── WorkerError                the worker of a site could not carry out an order
    ├── SupersededError            another process has resumed the run: this one must stop
    └── FederationError            too few sites, or too few usable answers

    ContractError                  in headstart.testing; an AssertionError, for tests
    DataWarning                    data that can be used, but most likely not as intended

Every message says what was wrong, the value received and what to do.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DataWarning",
    "DivergedError",
    "HeadstartError",
    "InputError",
    "OutputError",
    "ProcessLostError",
]


class HeadstartError(Exception):
    """Base of every error Headstart raises on purpose."""

    exit_code = 1


class InputError(HeadstartError):
    """An input of the user cannot be used."""

    exit_code = 2


class ConfigError(InputError):
    """An option is unknown, missing or out of range."""


class DataError(InputError):
    """A data file is missing, damaged or does not fit."""


class OutputError(InputError):
    """The output folder is taken, or cannot be written."""


class CheckpointError(HeadstartError):
    """A checkpoint is damaged or belongs to another run."""


class ProcessLostError(HeadstartError):
    """One of several processes that share a run has ended early."""


class DivergedError(HeadstartError):
    """Training or adaptation produced numbers that are not finite."""

    def __init__(self, message: str, *, round: int | None = None, client: str | None = None):
        super().__init__(message)
        self.round = round
        self.client = client


class DataWarning(UserWarning):
    """Data that can be used, but most likely not as intended."""
