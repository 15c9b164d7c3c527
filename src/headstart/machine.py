"""The one thing that must be settled before JAX starts: how many devices the CPU is.

JAX takes a CPU for one device, whatever its cores, and one device does not keep many cores busy
with networks of this size: on two cores, one device each, a round took 21 ms instead of 34.
The command line asks for a device per core. A program that imports Headstart decides for itself:
importing changes nothing, and once JAX runs nothing can be changed any more.
"""

from __future__ import annotations

import os

import jax

from headstart.errors import ConfigError


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_all_cores() -> bool:
    """Make every core a JAX device, unless JAX runs already or the user has set their number.

    Says whether it took effect. Call it before anything computes with JAX.
    """
    given = os.environ.get("XLA_FLAGS", "") + " ".join(os.environ)
    if "xla_force_host_platform_device_count" in given or "JAX_NUM_CPU_DEVICES" in given:
        return False
    return _split_cpu(cores())


def use_cores(count: int) -> None:
    """Make so many JAX devices of the CPU; ConfigError if JAX runs already."""
    if count < 1:
        raise ConfigError(f"devices={count} must be at least 1")
    if not _split_cpu(count):
        raise ConfigError(
            f"devices={count} comes too late: JAX runs already, with {len(jax.devices())}; call "
            "headstart.machine.use_cores before anything computes with JAX"
        )


def _split_cpu(count: int) -> bool:
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX runs already.
        return False
    return True
