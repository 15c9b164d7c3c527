"""What the algorithm keeps at a site between rounds: one file per round that the site took part in.

A server that was killed may ask for a round again. That needs the memory from before the round, so
the newest few files are kept.
"""

from __future__ import annotations

from pathlib import Path

from headstart.algorithms._contract import Memory
from headstart.errors import CheckpointError
from headstart.records._tensor_files import named_arrays, read_checked, restore, write_checked

FORMAT = "headstart-memory-1"
KEPT = 3


class SiteMemory:
    """The memories of one run in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def before(self, round: int, fresh: Memory) -> Memory:
        """Return the memory from before this round; ``fresh`` if the site had not trained."""
        for number, path in reversed(self._files()):
            if number < round:
                return restore(fresh, read_checked(path, FORMAT)[1], path)
        if not self._begins_here():
            raise CheckpointError(f"{self.folder} holds no memory from before round {round}")
        return fresh

    def keep(self, round: int, memory: Memory) -> None:
        """Store the memory after this round; delete files of later rounds, now obsolete."""
        first = self._begins_here() and not any(n < round for n, _ in self._files())
        path = self.folder / f"memory-{round:09d}.safetensors"
        write_checked(path, named_arrays(memory), {"first": first}, FORMAT)
        for number, later in self._files():
            if number > round:
                later.unlink(missing_ok=True)
        for _, old in self._files()[:-KEPT]:
            old.unlink(missing_ok=True)

    def _begins_here(self) -> bool:
        """Return whether no file is missing before the oldest one."""
        files = self._files()
        return not files or bool(read_checked(files[0][1], FORMAT)[0]["first"])

    def _files(self) -> list[tuple[int, Path]]:
        paths = sorted(self.folder.glob("memory-*.safetensors"))
        return [(int(path.stem.removeprefix("memory-")), path) for path in paths]
