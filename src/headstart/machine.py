"""Settings that must be made before JAX starts: devices of the CPU, and other processes.

JAX treats a CPU as one device, however many cores it has, and one device does not keep many cores
busy with networks of this size: with one device per core, a round on two cores took 21 ms instead
of 34. The command line uses one device per core. A program that imports Headstart decides for
itself: importing changes nothing, and once JAX runs nothing can be changed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from headstart.errors import ConfigError

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "Joining",
    "broadcast_from_leader",
    "count_cores",
    "is_leader",
    "join",
    "shares_run",
    "use_all_cores",
    "use_compilation_cache",
    "use_cores",
]

JOIN_SECONDS = 120
"""How long a process waits for the others when it starts."""


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_all_cores() -> bool:
    """Make every core a JAX device, unless JAX runs already or the user has set the number.

    Returns whether it took effect. Call it before anything computes with JAX.
    """
    given = os.environ.get("XLA_FLAGS", "") + " ".join(os.environ)
    if "xla_force_host_platform_device_count" in given or "JAX_NUM_CPU_DEVICES" in given:
        return False
    return _split_cpu(count_cores())


def use_cores(count: int) -> None:
    """Split the CPU into this many JAX devices; raise a ConfigError if JAX runs already."""
    import jax

    if count < 1:
        raise ConfigError(f"devices={count} must be at least 1")
    if not _split_cpu(count):
        raise ConfigError(
            f"devices={count} comes too late: JAX runs already, with {len(jax.devices())}; call "
            "headstart.machine.use_cores before anything computes with JAX"
        )


def use_compilation_cache() -> None:
    """Keep compiled programs between commands, unless the user has configured a cache."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax
    from platformdirs import user_cache_path

    jax.config.update("jax_compilation_cache_dir", str(user_cache_path("headstart") / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


class Joining(NamedTuple):
    """One of several processes that share the clients of one run."""

    coordinator: str
    """Host and port at which process 0 listens."""
    processes: int
    number: int


def join(joining: Joining) -> None:
    """Join several processes; return when all of them have joined."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            joining.coordinator,
            joining.processes,
            joining.number,
            initialization_timeout=JOIN_SECONDS,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"process {joining.number} of {joining.processes} could not join at "
            f"{joining.coordinator}: {str(error).splitlines()[0]}"
        ) from None


def shares_run() -> bool:
    """Return whether this process has joined others that share one run."""
    if "jax" not in sys.modules:
        return False
    import jax

    return jax.distributed.is_initialized()


def is_leader() -> bool:
    """Return whether this process is the one that writes files and messages."""
    import jax

    return jax.process_index() == 0


def broadcast_from_leader(tree: PyTree) -> PyTree:
    """Return process 0's values in every process, so that all agree on its clock and disk."""
    import jax
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return tree if jax.process_count() == 1 else broadcast_one_to_all(tree)


def _split_cpu(count: int) -> bool:
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX runs already.
        return False
    return True
