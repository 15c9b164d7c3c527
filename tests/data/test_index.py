"""The package says what it offers, and importing it stays light."""

import subprocess
import sys

import headstart.data


def test_all_names_are_there_and_sorted() -> None:
    names = headstart.data.__all__
    assert all(hasattr(headstart.data, name) for name in names)
    assert len(names) == len(set(names))


def test_importing_loads_nothing_heavy() -> None:
    heavy = ("sklearn", "pandas", "pyarrow", "pooch", "pydantic", "scipy", "platformdirs")
    code = (
        "import sys, headstart.data, headstart.data._dataset_options, headstart._cli.data;"
        f"sys.exit(' '.join(m for m in {heavy} if m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.strip() == ""
