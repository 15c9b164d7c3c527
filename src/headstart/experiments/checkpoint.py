"""Checkpoints: one safetensors file per kept round, no pickle.

The file holds the server's state, all clients' memory and the losses not yet reported; its header
holds the round, the fingerprint of the run it belongs to, a checksum of the tensors and the
evaluations so far. Files are written beside and renamed; the newest two are kept, so that a
damaged newest one costs a few rounds and not the run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headstart.atomic_files import write_bytes
from headstart.errors import CheckpointError
from headstart.simulation.simulation import LOSS, Progress
from headstart.trees import Tree, leaf_names

FORMAT = "headstart-checkpoint-1"
MODEL_FORMAT = "headstart-model-1"
KEPT = 2
LOG = "log:"
"""Before the name of an array of numbers not yet reported."""


@dataclass(frozen=True)
class Checkpoint:
    """A run's progress, with what its record needs to go on."""

    progress: Progress
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    records: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """What another engine than the simulation must remember."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint, fingerprint: str) -> Path:
    """Write the checkpoint and drop all but the newest two."""
    progress = checkpoint.progress
    tensors = named_arrays({"state": progress.state, "memory": progress.memory})
    for name, values in progress.log.items():
        tensors[LOG + name] = np.asarray(values, np.float64)
    header = {
        "fingerprint": fingerprint,
        "round": progress.round,
        "seconds": checkpoint.seconds,
        "evaluation_seconds": checkpoint.evaluation_seconds,
        "records": checkpoint.records,
        "extra": checkpoint.extra,
    }
    path = folder / f"round-{progress.round:09d}.safetensors"
    write_checked(path, tensors, header, FORMAT)
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def load_newest(
    folder: Path, frame: Progress, fingerprint: str
) -> tuple[Checkpoint | None, list[str]]:
    """The newest good checkpoint, or None, and a line for each that was refused."""
    refused: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            return load_checkpoint(path, frame, fingerprint), refused
        except CheckpointError as error:
            refused.append(str(error))
    return None, refused


def load_checkpoint(path: Path, frame: Progress, fingerprint: str | None) -> Checkpoint:
    """One checkpoint, checked against its checksum, its run and the shapes expected."""
    header, tensors = read_checked(path, FORMAT)
    if fingerprint is not None and header.get("fingerprint") != fingerprint:
        raise CheckpointError(f"{path} belongs to a run with another configuration or other data")
    log = {name: tensors.pop(name) for name in list(tensors) if name.startswith(LOG)}
    log = {name.removeprefix(LOG): values for name, values in log.items()}
    if "losses" in tensors:  # written before 0.2
        log[LOSS] = tensors.pop("losses")
    parts = fill({"state": frame.state, "memory": frame.memory}, tensors, path)
    progress = Progress(header["round"], parts["state"], parts["memory"], log)
    return Checkpoint(
        progress,
        header["seconds"],
        header["evaluation_seconds"],
        header["records"],
        header.get("extra", {}),
    )


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoint files, oldest first."""
    return sorted(folder.glob("round-*.safetensors"))


def write_tensors(path: Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """A safetensors file; the header is one JSON entry, since the order of several is not fixed."""
    write_bytes(path, save(tensors, metadata={"headstart": json.dumps(header, allow_nan=False)}))


def write_checked(
    path: Path, tensors: dict[str, np.ndarray], header: dict[str, Any], format: str
) -> None:
    """A safetensors file of this format that tells when it is damaged."""
    header = {"format": format, **header}
    write_tensors(path, tensors, {**header, "checksum": checksum(tensors, header)})


def read_checked(path: Path, format: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and tensors of what :func:`write_checked` wrote, or one clear line."""
    header, tensors = read_tensors(path)
    if header.get("format") != format:
        raise CheckpointError(f"{path} is not a Headstart {format.split('-')[1]}")
    if header.get("checksum") != checksum(tensors, header):
        raise CheckpointError(f"{path} is damaged (its checksum does not match)")
    return header, tensors


def named_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """The leaves under their names, as safetensors stores them."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return dict(zip(leaf_names(tree), leaves, strict=True))


def fill(frame: Tree, tensors: dict[str, np.ndarray], path: Path | str) -> Tree:
    """The tree of the frame's shape with the stored numbers in it."""
    leaves, structure = jax.tree.flatten(frame)
    labels = leaf_names(frame)
    if set(labels) != set(tensors):
        odd = sorted(set(labels) ^ set(tensors))[0]
        raise CheckpointError(f"{path} does not fit this run: {odd} is in only one of the two")
    for label, leaf in zip(labels, leaves, strict=True):
        if tensors[label].shape != leaf.shape or tensors[label].dtype != leaf.dtype:
            raise CheckpointError(
                f"{path} does not fit this run: {label} is {tensors[label].dtype}"
                f"{tensors[label].shape}, expected {leaf.dtype}{leaf.shape}"
                + (" (set JAX_ENABLE_X64 as then)" if "64" in str(tensors[label].dtype) else "")
            )
    return jax.tree.unflatten(structure, [jnp.asarray(tensors[label]) for label in labels])


def checksum(tensors: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    """SHA-256 over the rest of the header and all names and numbers."""
    rest = {key: value for key, value in header.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and tensors of a safetensors file of ours."""
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("headstart", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error})") from None
    return header, tensors
