"""The layouts and layers in the documents are those of the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headstart"


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_layers", ROOT / "docs" / "draw_layers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def top_level() -> set[str]:
    """Packages and modules directly in the package, as they are on disk."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    return packages | modules


def block_after(path: str, heading: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"\n## {heading}\n.*?```\n(.*?)```", text, re.DOTALL)
    assert found is not None, f"{path} has no block under {heading}"
    return found.group(1)


def layout() -> list[str]:
    """The paths in the layout block; entries below a folder are indented."""
    paths, folder = [], ""
    for line in block_after("docs/design.md", "Layout").splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name
        paths.append(name if not line.startswith(" ") else folder + name)
    return paths


@pytest.mark.parametrize("path", layout())
def test_everything_in_the_layout_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_layout_names_every_top_level_package_and_module() -> None:
    inside = [Path(path) for path in layout() if path.startswith("src/headstart/")]
    assert {path.stem for path in inside} - {"headstart", "__init__", "__main__"} == top_level()


def test_the_layers_in_contributing_are_those_of_the_import_contract() -> None:
    lines = block_after("CONTRIBUTING.md", "Layers").splitlines()
    written = [[name.strip() for name in line.split("  ")[0].split("|")] for line in lines]
    assert written == drawing().read_layers()
    assert {name for layer in written for name in layer} == top_level()


def test_the_picture_of_the_layers_is_that_of_the_import_contract() -> None:
    """``python docs/draw_layers.py`` draws it again."""
    module = drawing()
    assert module.PICTURE.read_text() == module.draw(module.read_layers())


DOCUMENTS = (
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "docs/design.md",
    "docs/report.md",
    "docs/speed.md",
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_named_in_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8").partition("## Run directory")[0]
    # The path of a message is inside flower/.
    folders = (PACKAGE, PACKAGE / "flower", ROOT, (ROOT / document).parent)
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", text):
        assert any((folder / name).exists() for folder in folders), name


def test_folders_named_on_the_architecture_page_exist() -> None:
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8").partition("## Run directory")[0]
    for name in re.findall(r"`((?:[a-z_]+/)+)`", text):
        assert any((folder / name).is_dir() for folder in (PACKAGE, PACKAGE / "flower", ROOT)), name


def test_the_overview_of_the_studies_names_every_file() -> None:
    folder = ROOT / "studies"
    named = set(re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text(encoding="utf-8")))
    assert named | {"__init__.py"} == {path.name for path in folder.glob("*.py")}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda p: p.name)
def test_examples_need_nothing_but_the_installed_package(path: Path) -> None:
    """``python examples/…`` has neither ``studies`` nor ``tools`` on its path."""
    imported = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.M)
    assert not {"studies", "tools", "tests", "benchmarks"} & set(imported)
