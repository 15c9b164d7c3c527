"""Named arrays in a safetensors file, with a JSON header. No pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headstart._atomic_files import write_bytes
from headstart.errors import CheckpointError
from headstart.records._base import JsonTable
from headstart.trees import Tree, leaf_names

Arrays = dict[str, np.ndarray]


def write_tensors(path: Path, tensors: Arrays, header: JsonTable) -> None:
    """Write a file; the header is one JSON entry, since the order of several is not fixed."""
    write_bytes(path, save(tensors, metadata={"headstart": json.dumps(header, allow_nan=False)}))


def read_tensors(path: Path) -> tuple[JsonTable, Arrays]:
    """Read header and arrays."""
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {}).get("headstart", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error})") from None
    return header, tensors


def write_checked(path: Path, tensors: Arrays, header: JsonTable, format: str) -> None:
    """Write a file that states its format and carries a checksum."""
    header = {"format": format, **header}
    write_tensors(path, tensors, {**header, "checksum": checksum(tensors, header)})


def read_checked(path: Path, format: str) -> tuple[JsonTable, Arrays]:
    """Read what :func:`write_checked` wrote; raise CheckpointError if it is something else."""
    header, tensors = read_tensors(path)
    if header.get("format") != format:
        raise CheckpointError(f"{path} is not a Headstart {format.split('-')[1]}")
    if header.get("checksum") != checksum(tensors, header):
        raise CheckpointError(f"{path} is damaged (its checksum does not match)")
    return header, tensors


def checksum(tensors: Arrays, header: JsonTable) -> str:
    """Return the SHA-256 of all names and numbers and of the rest of the header."""
    rest = {key: value for key, value in header.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def named_arrays(tree: Tree) -> Arrays:
    """Return the leaves of a tree by name."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return dict(zip(leaf_names(tree), leaves, strict=True))


def restore(shapes: Tree, tensors: Arrays, path: Path | str) -> Tree:
    """Return a tree of the given shapes with the stored numbers in it."""
    leaves, structure = jax.tree.flatten(shapes)
    labels = leaf_names(shapes)
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
