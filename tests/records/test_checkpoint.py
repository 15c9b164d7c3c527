"""Checkpoints: whole or refused."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from safetensors.numpy import save

from headstart import _atomic_files as atomic_files
from headstart._simulation import Progress
from headstart._simulation.simulation import LOSS
from headstart.errors import CheckpointError, OutputError
from headstart.records import BeforeAfter, Evaluation, GroupScores, ScoreSummary, describe
from headstart.records._checkpoint import (
    Checkpoint,
    checkpoint_files,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)

SCORES = GroupScores(
    metrics={"accuracy": BeforeAfter(before=describe([0.5]), after=describe([1.0]))}
)
EVALUATION = Evaluation(
    round=0, gradient_evaluations=0, adapt_steps=1, adapt_on="train",
    scores=ScoreSummary(known=SCORES),
)  # fmt: skip


def progress(round: int, fill: float = 1.0) -> Progress:
    state = {"w": jnp.full((3, 2), fill), "n": jnp.int32(round), "empty": ()}
    return Progress(round, state, (jnp.full((4,), fill / 3),), {LOSS: np.array([0.1, 0.2])})


def keep(folder: Path, round: int, fill: float = 1.0) -> Path:
    now = progress(round, fill)
    checkpoint = Checkpoint(now.round, now.state, now.memory, now.log, 1.5, 0.5, (EVALUATION,))
    return save_checkpoint(folder, checkpoint, "print")


def load(path: Path, expected: Progress, fingerprint: str) -> Checkpoint:
    return load_checkpoint(path, expected.state, expected.memory, fingerprint)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path) -> None:
    found = load(keep(tmp_path, 7, 0.1), progress(0), "print")
    assert tiny.identical((found.state, found.memory), progress(7, 0.1)[1:3])
    assert found.round == 7 and found.log[LOSS].tolist() == [0.1, 0.2]
    assert (found.seconds, found.evaluation_seconds) == (1.5, 0.5)
    assert found.evaluations == (EVALUATION,)


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    for round in (1, 2, 10, 100):
        keep(tmp_path, round)
    assert [p.name for p in checkpoint_files(tmp_path)] == [
        "round-000000010.safetensors",
        "round-000000100.safetensors",
    ]


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """Any prefix of the file, and a change of any byte, is refused, never loaded wrongly."""
    path = keep(tmp_path, 3)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load(path, progress(0), "print")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError):
            load(path, progress(0), "print")


def test_the_last_good_one_is_used_and_the_bad_one_named(tmp_path: Path) -> None:
    keep(tmp_path, 3)
    newest = keep(tmp_path, 6)
    newest.write_bytes(newest.read_bytes()[:-5])
    found, refused = load_newest(tmp_path, *progress(0)[1:3], "print")
    assert found is not None and found.round == 3
    assert len(refused) == 1 and "round-000000006" in refused[0] and "damaged" in refused[0]


def test_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    path = keep(tmp_path, 3)
    with pytest.raises(CheckpointError, match="another configuration"):
        load(path, progress(0), "other")
    wrong = progress(0)._replace(state={"w": jnp.zeros((9, 2)), "n": jnp.int32(0), "empty": ()})
    with pytest.raises(CheckpointError, match="does not fit"):
        load(path, wrong, "print")
    wrong = progress(0)._replace(state={"w": jnp.zeros((3, 2))})
    with pytest.raises(CheckpointError, match="only one of the two"):
        load(path, wrong, "print")
    path.write_bytes(save({"w": np.zeros(2)}))
    with pytest.raises(CheckpointError, match="not a Headstart checkpoint"):
        load(path, progress(0), "print")


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up while writing leaves the old file and no litter."""
    target = tmp_path / "file"
    atomic_files.write_text(target, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left.*--out"):
        atomic_files.write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_json_never_holds_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic_files.write_json(tmp_path / "x.json", {"accuracy": float("nan")})
    assert not (tmp_path / "x.json").exists()
