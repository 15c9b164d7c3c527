"""Release check: build wheel and sdist, look into both, and use the wheel alone.

Both are left in ``dist/``. The rest happens in a temporary folder with two new environments: one
builds, the other gets the wheel with the pinned versions of ``constraints.txt`` and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
IN_WHEEL = ("headstart/py.typed", "headstart/_cli/main.py", "headstart/report/templates/")
IN_SDIST = ("src/headstart/py.typed", "studies/", "tests/", "docs/", "examples/", "Makefile")


def main() -> None:
    """Run all checks; the first that fails ends the program with one line."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = build(folder)
        check_contents(wheel, sdist)
        python = install(folder / "clean", wheel)
        use(python, folder / "empty")
    print("release check passed")


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions with the pinned build tool."""
    python = environment(folder / "build")
    run(python, "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt", "hatchling")
    shutil.rmtree(DIST, ignore_errors=True)
    run(python, "-m", "hatchling", "build", "-d", DIST, cwd=ROOT)
    (wheel,), (sdist,) = (list(DIST.glob(f"*.{end}")) for end in ("whl", "tar.gz"))
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel holds the package and nothing else; the sdist holds what tests and docs need."""
    names = zipfile.ZipFile(wheel).namelist()
    foreign = [n for n in names if not n.startswith(("headstart/", "headstart-"))]
    require(not foreign, f"the wheel holds {foreign[:5]}")
    for part in IN_WHEEL:
        require(any(n.startswith(part) for n in names), f"the wheel lacks {part}")
    with tarfile.open(sdist) as archive:
        inside = [n.partition("/")[2] for n in archive.getnames()]
    for part in IN_SDIST:
        require(any(n.startswith(part) for n in inside), f"the sdist lacks {part}")
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB")
    print(f"{sdist.name}: {len(inside)} files, {sdist.stat().st_size / 1e6:.1f} MB")


def install(folder: Path, wheel: Path) -> Path:
    """Install the wheel into a new environment; return its interpreter."""
    python = environment(folder)
    run(python, "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt", wheel)
    return python


def use(python: Path, folder: Path) -> None:
    """Run the demo with one seed, then ask for a study, which only a checkout has."""
    folder.mkdir()
    shutil.copytree(ROOT / "examples" / "demo", folder / "demo")
    command = python.with_name("headstart")
    plans = sorted(str(path.relative_to(folder)) for path in folder.glob("demo/*.toml"))
    run(command, "compare", *plans, "--seeds", "1", "--out", "runs", cwd=folder)
    require((folder / "runs" / "report.html").exists(), "the demo wrote no report.html")
    study = subprocess.run(
        [command, "reproduce", "per-fedavg-table1"],
        cwd=folder,
        env=clean_variables(),
        capture_output=True,
        text=True,
    )
    lines = study.stderr.strip().splitlines()
    require(study.returncode == 2, f"headstart reproduce ended with code {study.returncode}")
    require(len(lines) == 1 and "checkout" in lines[0], f"headstart reproduce said: {lines}")
    print(lines[0])


def environment(folder: Path) -> Path:
    """Create an empty environment; return its interpreter."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(*words: str | Path, cwd: Path | None = None) -> None:
    """Run a command; end when it fails."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=clean_variables(), check=False
    )
    require(
        done.returncode == 0, f"failed with code {done.returncode}: {' '.join(map(str, words))}"
    )


def clean_variables() -> dict[str, str]:
    """Return the environment without what could lead Python back to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def require(condition: bool, otherwise: str) -> None:
    """End the program with a message unless the condition holds."""
    if not condition:
        sys.exit(f"release check: {otherwise}")


if __name__ == "__main__":
    main()
