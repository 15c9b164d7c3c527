"""What holds for every test: strict JAX, repeatable examples, nothing from outside."""

import gc
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Two devices, so that every test of the engine has clients on both. Tests compile many small
# programs once each: little optimisation and the older emitters take a third of the time.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)
# Compiled programs are shared by modules, workers, subprocesses and runs. The variables also keep
# commands that run in this process from choosing a cache of their own.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# The workers share the cores. With threads of its own in each, NumPy mostly waits for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without the lines of Python that every operation comes from, programs are made faster.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import hypothesis
import jax
import pytest

CACHE = Path(__file__).resolve().parent.parent / ".cache"
MAPPINGS = Path("/proc/self/maps")
MOST_MAPPINGS = 6_000
"""A tenth of what Linux allows a process by default: more programs take gigabytes of memory."""

jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile("headstart", deadline=None, derandomize=True)
hypothesis.settings.load_profile("headstart")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(Durations(CACHE / "durations.json"))


def pytest_collection_finish() -> None:
    """Collect garbage less often: traces are many objects, and hardly any are garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


class Durations:
    """Store how long each test took, for ``make test-durations``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        if self.seconds:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(json.dumps(self.seconds))


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that is empty when the tests begin and shared by all of them."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def hermetic(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cache_home: Path
) -> None:
    """Hide the user's data, cache and screen; tests marked `data` see HEADSTART_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("HEADSTART_DATA", raising=False)
    elif "HEADSTART_DATA" not in os.environ:
        pytest.skip("HEADSTART_DATA is not set")


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Forget compiled programs after a module that leaves too many.

    Every one of them maps memory, and a process that has compiled some thousands runs into the
    system's limit on mappings: XLA then crashes. Up to then, modules share programs.
    """
    yield
    if not MAPPINGS.exists() or len(MAPPINGS.read_bytes().splitlines()) > MOST_MAPPINGS:
        jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """Compute in float64 during this test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's executable; without one, skip on a desk and fail in CI."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        missing = f"no browser: none of {', '.join(names)} is on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found
