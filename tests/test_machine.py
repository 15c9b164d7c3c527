"""What is settled before JAX starts, each time in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}


def python(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_changes_nothing_and_a_running_jax_is_left_alone() -> None:
    said = python(
        "import headstart, jax\n"
        "from headstart.machine import use_all_cores, use_cores\n"
        "print(jax.device_count())\n"
        "print(use_all_cores(), jax.device_count())\n"
        "try: use_cores(2)\n"
        "except headstart.HeadstartError as error: print('too late' in str(error))\n"
    )
    assert said == ["1", "False", "1", "True"]


def test_every_core_becomes_a_device_unless_the_user_has_chosen() -> None:
    code = (
        "import jax\n"
        "from headstart.machine import count_cores, use_all_cores\n"
        "print(use_all_cores(), jax.device_count() == count_cores(), jax.device_count())\n"
    )
    assert python(code)[:2] == ["True", "True"]
    chosen = "--xla_force_host_platform_device_count=3"
    assert python(code, XLA_FLAGS=chosen)[::2] == ["False", "3"]
    assert python(code, JAX_NUM_CPU_DEVICES="3")[::2] == ["False", "3"]


@pytest.mark.slow
def test_a_second_start_with_other_step_sizes_and_seed_compiles_nothing(tmp_path: Path) -> None:
    """Everything compiled is kept on disk here, so a program compiled anew would be a new file."""
    cache = tmp_path / "cache"
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    small = "--set rounds=3 --set model.name=logistic --set evaluation.every=2 --no-report"
    kept = []
    for number, more in enumerate(["", "--seed 5 --set algorithm.local_lr=0.02"]):
        words = f"run {small} {more} --out".split()
        command = [*words, str(tmp_path / str(number))]
        start = "from headstart._cli.main import main; main()"
        python(f"import sys; sys.argv[1:] = {command}; {start}", **environment)
        kept.append({path.name for path in cache.glob("*-cache")})
    assert len(kept[0]) > 3
    assert kept[1] == kept[0]
