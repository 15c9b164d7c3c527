"""Flower's ServerApp: conducts one run."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from headstart.flower._end_with_parent import end_with_parent
from headstart.flower.server._coordinator import conduct

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Read the run configuration, which names the folders of the federation and of the run."""
    end_with_parent()
    options = context.run_config
    conduct(
        grid,
        Path(str(options["federation"])),
        Path(str(options["out"])),
        resume=bool(options["resume"]),
        distribute=bool(options["distribute"]),
        wait_for_all=bool(options["wait-for-all"]),
    )
