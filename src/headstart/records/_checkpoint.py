"""Checkpoints: one safetensors file per kept round.

The file holds the server's state, all clients' memory and the losses not yet reported. Its header
holds the round, the fingerprint of the run it belongs to, a checksum, and the evaluations so far.
Files are written beside and renamed. The newest two are kept, so that a damaged newest file costs
a few rounds and not the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import Field

from headstart.errors import CheckpointError
from headstart.records._base import Record
from headstart.records._evaluation import Evaluation
from headstart.records._federation_events import FederationProgress
from headstart.records._tensor_files import named_arrays, read_checked, restore, write_checked
from headstart.trees import Tree

FORMAT = "headstart-checkpoint-1"
KEPT = 2
LOG = "log:"
"""Prefix of an array of numbers not yet reported."""
OLD_LOSSES, LOSSES = "losses", "clients.loss"
"""Version 0.1 kept the training losses, and nothing else, under another name."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume a run."""

    round: int
    state: Tree
    """The server's."""
    memory: Tree
    """All clients'; ``()`` if they keep nothing, or keep it on their own disks."""
    log: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What each round since the last evaluation reported."""
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    evaluations: tuple[Evaluation, ...] = ()
    federation: FederationProgress | None = None
    """What the server of a federation remembers besides."""


class _Header(Record):
    fingerprint: str | None = None
    round: int
    seconds: float
    evaluation_seconds: float
    records: tuple[Evaluation, ...]
    extra: FederationProgress | None = Field(None)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, fingerprint: str) -> Path:
    """Write the checkpoint and delete all but the newest two."""
    tensors = named_arrays({"state": checkpoint.state, "memory": checkpoint.memory})
    for name, values in checkpoint.log.items():
        tensors[LOG + name] = np.asarray(values, np.float64)
    header = _Header(
        fingerprint=fingerprint,
        round=checkpoint.round,
        seconds=checkpoint.seconds,
        evaluation_seconds=checkpoint.evaluation_seconds,
        records=checkpoint.evaluations,
        extra=checkpoint.federation,
    )
    path = folder / f"round-{checkpoint.round:09d}.safetensors"
    write_checked(path, tensors, header.to_table(), FORMAT)
    for old in checkpoint_files(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def load_newest(
    folder: Path, state: Tree, memory: Tree, fingerprint: str
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest usable checkpoint, or None, and a line for each one that was refused."""
    refused: list[str] = []
    for path in reversed(checkpoint_files(folder)):
        try:
            return load_checkpoint(path, state, memory, fingerprint), refused
        except CheckpointError as error:
            refused.append(str(error))
    return None, refused


def load_checkpoint(path: Path, state: Tree, memory: Tree, fingerprint: str | None) -> Checkpoint:
    """Read a checkpoint and check it against its checksum, its run and the expected shapes."""
    table, tensors = read_checked(path, FORMAT)
    if fingerprint is not None and table.get("fingerprint") != fingerprint:
        raise CheckpointError(f"{path} belongs to a run with another configuration or other data")
    table["extra"] = table.get("extra") or None
    try:
        header = _Header.from_table(table)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged ({error})") from None
    logged = {name: tensors.pop(name) for name in list(tensors) if name.startswith(LOG)}
    log = {name.removeprefix(LOG): values for name, values in logged.items()}
    if OLD_LOSSES in tensors:
        log[LOSSES] = tensors.pop(OLD_LOSSES)
    restored = restore({"state": state, "memory": memory}, tensors, path)
    return Checkpoint(
        round=header.round,
        state=restored["state"],
        memory=restored["memory"],
        log=log,
        seconds=header.seconds,
        evaluation_seconds=header.evaluation_seconds,
        evaluations=header.records,
        federation=header.extra,
    )


def checkpoint_files(folder: Path) -> list[Path]:
    """Return all checkpoint files, oldest first."""
    return sorted(folder.glob("round-*.safetensors"))
