"""What a site keeps of a finished run: enough to adapt again later, without the server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax

from headstart.algorithms._contract import Memory, State
from headstart.errors import CheckpointError, ConfigError
from headstart.flower._federation_config import SiteConfig
from headstart.flower.protocol._messages import Assignment
from headstart.flower.site._site_setup import SiteSetup
from headstart.records._base import JsonTable
from headstart.records._tensor_files import named_arrays, read_checked, restore, write_checked
from headstart.trees import Tree

START_FORMAT = "headstart-start-1"
START_FILE = "start.safetensors"
PERSONAL_FILE = "personal.safetensors"


@dataclass(frozen=True)
class KeptStart:
    """The shared model and the site's memory at the end of a run."""

    path: Path
    assignment: Assignment
    state: State
    memory: Memory
    round: int
    steps: int
    """Adaptation steps of the run's evaluations."""
    chooses: bool = True
    """Whether the site chooses its own number of steps, at most ``steps``."""

    def write(self) -> None:
        """Write the file."""
        header = self.assignment.model_dump(mode="json") | {
            "round": self.round,
            "steps": self.steps,
            "chooses": self.chooses,
        }
        content = named_arrays({"state": self.state, "memory": self.memory})
        write_checked(self.path, content, header, START_FORMAT)

    @classmethod
    def newest(cls, config: SiteConfig, run: str | None = None) -> KeptStart:
        """Read the start of the given run, or of the latest one."""
        paths = sorted(
            Path(config.work).glob(f"runs/{run or '*'}/{START_FILE}"),
            key=lambda path: path.stat().st_mtime,
        )
        if not paths:
            raise ConfigError(
                f"{config.work} holds no model yet; keep headstart federate join running until "
                "the server has distributed the model"
            )
        return cls.read(paths[-1])

    @classmethod
    def read(cls, path: Path) -> KeptStart:
        """Read the file."""
        header, tensors = read_checked(path, START_FORMAT)
        assignment = _assignment(header, path)
        setup = SiteSetup.from_assignment(assignment)

        def start() -> Tree:
            state = setup.first_state()
            return {"state": state, "memory": setup.algorithm.init_memory(state)}

        kept = restore(jax.eval_shape(start), tensors, path)
        return cls(
            path,
            assignment,
            kept["state"],
            kept["memory"],
            header["round"],
            header["steps"],
            header.get("chooses", True),
        )


def _assignment(header: JsonTable, path: Path) -> Assignment:
    """Read the assignment in a header; files of version 0.1 lack some of its tables."""
    fields = [field.alias or name for name, field in Assignment.model_fields.items()]
    table: JsonTable = {"aggregation": {}, "parts": {}, "objective": {}, **header}
    try:
        return Assignment.model_validate({name: table[name] for name in fields})
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error})") from None
