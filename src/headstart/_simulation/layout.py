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
"""Bytes at whose multiples XLA wants arrays to begin."""
EVERYWHERE = PartitionSpec()
GROUP = 16
"""Clients of a vmapped group, if nothing else is asked for."""
SMALL = 100_000
"""Parameters times batch size below which single operations are too short to keep a core busy."""
Style = Literal["mapped", "vmapped"]


@dataclass(frozen=True)
class Layout:
    """Which devices share the clients, and how one device works through its own."""

    mesh: Mesh
    style: Style = "mapped"
    """Whether a group's clients are computed one after the other, or as one wide computation."""
    group: int = 1
    """Clients a device takes at a time. Mapped clients of a group are written out one by one in
    the compiled program, which costs compile time."""

    @property
    def devices(self) -> int:
        """Devices that share the clients."""
        return self.mesh.size

    def everywhere(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program on every device at once: all see the same arguments and agree on the result.

        Inside, :meth:`mine` is the device's own share.
        """
        return jax.shard_map(
            program, mesh=self.mesh, in_specs=EVERYWHERE, out_specs=EVERYWHERE, check_vma=False
        )

    def mine(self, clients: Int[Array, " clients"], *, padding: int) -> Int[Array, "groups group"]:
        """This device's share of the clients in groups, filled up with ``padding``."""
        share = -(-len(clients) // self.devices)
        groups = -(-share // self.group)
        group = -(-share // groups)
        fill = self.devices * groups * group - len(clients)
        dealt = jnp.pad(clients, (0, fill), constant_values=padding)
        return dealt.reshape(self.devices, groups, group)[jax.lax.axis_index(AXIS)]

    def gathered(self, rows: PyTree, count: int) -> PyTree:
        """What all devices have computed for :meth:`mine`, as (clients, …), without the padding."""

        def join(leaf: Array) -> Array:
            flat = leaf.reshape(-1, *leaf.shape[2:])
            return jax.lax.all_gather(flat, AXIS, tiled=True)[:count]

        return jax.tree.map(join, rows)

    def together(self, work: Callable[[Array], Any], clients: Int[Array, " group"]) -> list[Any]:
        """The results for one group, each with a leading axis, to be taken one after the other."""
        if self.style == "vmapped":
            return [jax.vmap(work)(clients)]
        add_axis = partial(jax.tree.map, lambda leaf: leaf[None])
        return [add_axis(work(clients[i])) for i in range(len(clients))]


def suited(mesh: Mesh, *, parameters: int, batch: int) -> Layout:
    """The layout that was fastest for networks of this size."""
    small = parameters * batch < SMALL
    return Layout(mesh, "vmapped", GROUP) if small else Layout(mesh)


def named(text: str, mesh: Mesh) -> Layout:
    """A layout by name: ``mapped``, ``mapped:4``, ``vmapped:16``."""
    style, _, group = text.partition(":")
    size = group or (str(GROUP) if style == "vmapped" else "1")
    if style not in get_args(Style) or not size.isdecimal() or int(size) < 1:
        raise ConfigError(
            f"layout={text!r} is not known; use mapped, vmapped, or either with the number of "
            "clients a device takes at a time, as in vmapped:16"
        )
    return Layout(mesh, style, int(size))  # type: ignore[arg-type]


def mesh_of(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of these devices, by default of all there are in all processes."""
    return Mesh(np.array(devices or jax.devices()), (AXIS,))


def aligned(array: np.ndarray) -> np.ndarray:
    """The array in a form that the devices of a CPU can share as it lies.

    A mapped file is; what its owner may still write into is copied.
    """
    array = np.asarray(array, jax.dtypes.canonicalize_dtype(array.dtype))
    in_place = array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous
    if in_place and not array.flags.writeable:
        return array
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def replicate(mesh: Mesh, tree: PyTree) -> PyTree:
    """The same values on every device of the mesh; every process must hold the same.

    A CPU's devices share one memory: an :func:`aligned` array, a mapped file for instance, is used
    where it lies and not copied.
    """
    sharding = NamedSharding(mesh, EVERYWHERE)

    def put(leaf: Any) -> Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = put(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        host = np.asarray(leaf)
        parts = [jax.device_put(host, device) for device in mesh.local_devices]
        return jax.make_array_from_single_device_arrays(host.shape, sharding, parts)

    return jax.tree.map(put, tree)
