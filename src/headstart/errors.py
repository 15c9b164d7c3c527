"""What can go wrong, as one small tree.

    HeadstartError                 anything we raise on purpose; str() is one clear line
    ├── InputError                 the user can mend it: the command line exits with 2
    │   ├── ConfigError            an option is unknown, missing or out of range
    │   ├── DataError              a data file is missing, damaged or does not fit
    │   └── OutputError            the output folder is taken, or cannot be written
    ├── CheckpointError            a checkpoint is damaged or belongs to another run
    ├── ProcessLostError           one of several processes that share a run has ended early
    └── DivergedError              training produced numbers that are not finite

    DataWarning                    data that can be used, but most likely not as intended

Every message says what was wrong, the value received and what to do.
"""

from __future__ import annotations


class HeadstartError(Exception):
    """Base of every error Headstart raises on purpose."""

    exit_code = 1


class InputError(HeadstartError):
    """Something the user gave cannot be used."""

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
    """One of several processes that share a run has ended before its time."""


class DivergedError(HeadstartError):
    """Training or adaptation produced numbers that are not finite."""

    def __init__(self, message: str, *, round: int | None = None, client: str | None = None):
        super().__init__(message)
        self.round = round
        self.client = client


class DataWarning(UserWarning):
    """Data that can be used, but most likely not as intended."""
