"""The page docs/models.md: its examples run, its table is the truth."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from headstart import options
from headstart.models import MODELS

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_python_examples_run_in_order() -> None:
    assert len(blocks("python")) >= 6
    namespace: dict[str, Any] = {}
    for number, block in enumerate(blocks("python")):
        exec(compile(block, f"docs/models.md, example {number}", "exec"), namespace)


def test_experiment_examples_are_valid() -> None:
    assert blocks("toml")
    for block in blocks("toml"):
        table = tomllib.loads(block)["model"]
        options.build_from_table(MODELS[table.pop("name")], table, "model")


def test_the_table_lists_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
    listed = {(model, option): tomllib.loads(f"v = {value}")["v"] for model, option, value in rows}
    defaults = {
        (name, field.name): options.to_table(cls())[field.name]
        for name, cls in MODELS.items()
        for field in fields(cls)
    }
    assert listed == defaults
