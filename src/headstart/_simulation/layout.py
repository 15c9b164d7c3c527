"""How the clients of a round are laid out over the machine.

They are distributed over the devices of a mesh, and a device processes its share in groups. Results
do not depend on the layout beyond the rounding of sums. On a CPU every core can be a separate
device: see :mod:`headstart.machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

from headstart.errors import ConfigError

AXIS = "clients"
ALIGNMENT = 64
"""XLA wants the address of an array to be a multiple of this."""
REPLICATED = PartitionSpec()
GROUP = 16
"""Clients in a vmapped group by default."""
SMALL = 100_000
"""Parameters times batch size below which single operations are too short to keep a core busy."""
Style = Literal["mapped", "vmapped"]


@dataclass(frozen=True)
class Layout:
    """Which devices share the clients, and how one device processes its share."""

    mesh: Mesh
    style: Style = "mapped"
    """Whether the clients of a group are computed one by one or in one wide computation."""
    group: int = 1
    """Clients a device processes at a time. A mapped group is unrolled in the compiled program,
    which costs compile time."""

    @property
    def devices(self) -> int:
        """Number of devices that share the clients."""
        return self.mesh.size

    def on_all_devices(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """Make the program run on all devices at once, with the same arguments and result.

        Inside it, :meth:`take_share` returns the share of one device.
        """
        return jax.shard_map(
            program, mesh=self.mesh, in_specs=REPLICATED, out_specs=REPLICATED, check_vma=False
        )

    def take_share(
        self, clients: Int[Array, " clients"], *, padding: int
    ) -> Int[Array, "groups group"]:
        """Return this device's share of the clients in groups, filled up with ``padding``."""
        share = -(-len(clients) // self.devices)
        groups = -(-share // self.group)
        group = -(-share // groups)
        fill = self.devices * groups * group - len(clients)
        padded = jnp.pad(clients, (0, fill), constant_values=padding)
        return padded.reshape(self.devices, groups, group)[jax.lax.axis_index(AXIS)]

    def gather(self, rows: PyTree, count: int) -> PyTree:
        """Return what all devices computed for their shares, as (clients, …), without padding."""

        def gather_leaf(leaf: Array) -> Array:
            flat = leaf.reshape(-1, *leaf.shape[2:])
            return jax.lax.all_gather(flat, AXIS, tiled=True)[:count]

        return jax.tree.map(gather_leaf, rows)

    def compute_group(
        self, work: Callable[[Array], Any], clients: Int[Array, " group"]
    ) -> list[Any]:
        """Return the results for one group as a list of parts, each with a leading client axis."""
        if self.style == "vmapped":
            return [jax.vmap(work)(clients)]
        add_axis = partial(jax.tree.map, lambda leaf: leaf[None])
        return [add_axis(work(clients[i])) for i in range(len(clients))]


def choose_layout(mesh: Mesh, *, parameters: int, batch: int) -> Layout:
    """Return the layout that was fastest for networks of this size."""
    small = parameters * batch < SMALL
    return Layout(mesh, "vmapped", GROUP) if small else Layout(mesh)


def parse_layout(text: str, mesh: Mesh) -> Layout:
    """Return a layout by name: ``mapped``, ``mapped:4``, ``vmapped:16``."""
    style, _, group = text.partition(":")
    size = group or (str(GROUP) if style == "vmapped" else "1")
    if style not in get_args(Style) or not size.isdecimal() or int(size) < 1:
        raise ConfigError(
            f"layout={text!r} is unknown; use mapped, vmapped, or either with the number of "
            "clients a device processes at a time, as in vmapped:16"
        )
    return Layout(mesh, style, int(size))  # type: ignore[arg-type]


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Return a mesh of these devices, by default of all devices of all processes."""
    return Mesh(np.array(devices or jax.devices()), (AXIS,))


def align(array: np.ndarray) -> np.ndarray:
    """Return the array in a form that the devices of a CPU can share in place.

    A mapped file already has it; an array that its owner may still write to is copied.
    """
    array = np.asarray(array, jax.dtypes.canonicalize_dtype(array.dtype))
    in_place = array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous
    if in_place and not array.flags.writeable:
        return array
    buffer = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def replicate(mesh: Mesh, tree: PyTree) -> PyTree:
    """Put the same values on every device of the mesh; every process must hold the same.

    The devices of a CPU share one memory: an array that :func:`align` returned, such as a mapped
    file, is used in place and not copied.
    """
    sharding = NamedSharding(mesh, REPLICATED)

    def put(leaf: Any) -> Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = put(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        host = np.asarray(leaf)
        parts = [jax.device_put(host, device) for device in mesh.local_devices]
        return jax.make_array_from_single_device_arrays(host.shape, sharding, parts)

    return jax.tree.map(put, tree)
