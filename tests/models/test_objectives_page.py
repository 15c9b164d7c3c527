"""The page on objectives shows what works, and all there is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

from headstart import models
from headstart.data import Schema
from headstart.models.objectives import OBJECTIVES

PAGE = (Path(__file__).parents[2] / "docs/objectives.md").read_text()
SCHEMAS = {
    "classification": Schema(shape=(3,), classes=3),
    "sequences": Schema(shape=(3,), classes=3, vocabulary=3),
    "regression": Schema(shape=(3,), target="number"),
    "multi-label": Schema(shape=(3,), classes=3, target="labels"),
}


def test_every_objective_stands_in_the_table_with_its_metrics() -> None:
    for name, cls in OBJECTIVES.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*\| (.*) \|$", PAGE, flags=re.MULTILINE)
        names = [m.name for m in cls(models.logistic(), SCHEMAS[name]).available()]
        assert re.findall(r"`([\w-]+)`", row) == names


def test_the_example_of_ones_own_objective_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    module = ModuleType("objectives_page")
    sys.modules[module.__name__] = module  # where dataclasses look for their annotations
    exec(example, module.__dict__)
