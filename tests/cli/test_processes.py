"""Two processes on loopback share one run."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli.commands import PATIENCE, Start
from safetensors.numpy import load_file
from typer.testing import CliRunner

from headstart._cli import main
from headstart._cli.main import app
from headstart._cli.processes import free_port, is_lost_connection
from headstart.errors import ConfigError

RUN = ["run", "--no-report"]
PLAN = """
rounds = {rounds}
participation = 0.7
[data]
partition = "iid"
clients = 10
new_clients = 2
[model]
name = "logistic"
[algorithm]
name = "apfl"
batch_size = 10
[evaluation]
every = 20
adapt_steps = 1
curve_steps = 2
"""


@pytest.mark.slow
def test_two_processes_train_the_same_model_and_a_lost_one_is_reported(
    tmp_path: Path, start: Start
) -> None:
    """One process; two processes; two of which one is killed, and the rest after it."""
    plan, alone, both = tmp_path / "plan.toml", tmp_path / "alone", tmp_path / "both"
    plan.write_text(PLAN.format(rounds=100000))
    process = start(*RUN, str(plan), "--out", str(both), "--processes", "2")
    checkpoint = both / "checkpoint"
    wait_for(lambda: len(list(checkpoint.glob("*"))) > 1 or process.poll() is not None)
    os.kill(follower(process.pid), signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert "process 1 of 2 was killed by signal 9; the run was stopped." in err
    assert f"headstart run --resume --out {both} --processes 2" in err
    assert not orphans(str(both))

    done = max(int("".join(filter(str.isdigit, path.stem))) for path in checkpoint.glob("*"))
    rounds = f"rounds={done + 30}"
    resumed = start(*RUN, "--resume", "--out", str(both), "--processes", "2", "--set", rounds)
    out, err = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, err
    assert f"{done + 30} rounds" in out and "[Gloo]" not in out
    out, err = start(*RUN, str(plan), "--out", str(alone), "--set", rounds).communicate(
        timeout=PATIENCE
    )
    one, two = (load_file(folder / "model.safetensors") for folder in (alone, both))
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-4, err_msg=name)
    assert (alone / "clients.csv").read_text().count("\n") == 11


@pytest.mark.slow
def test_without_a_launcher_the_survivor_says_so_and_ends(tmp_path: Path, start: Start) -> None:
    """As on two hosts: nobody watches the processes but they themselves."""
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(PLAN.format(rounds=100000))
    words = [str(plan), "--out", str(out), "--processes", "2", "--devices", "1"]
    words += ["--coordinator", f"127.0.0.1:{free_port()}", "--process-id"]
    survivor, lost = start(*RUN, *words, "0"), start(*RUN, *words, "1")
    wait_for(lambda: len(list(out.glob("checkpoint/*"))) > 1 or survivor.poll() is not None)
    lost.kill()
    lost.communicate()
    _, err = survivor.communicate(timeout=PATIENCE)
    assert survivor.returncode == 1, err
    assert "headstart: process 0 lost the others" in err
    assert f"headstart run --resume --out {out} --processes 2" in err


@pytest.mark.parametrize("shared, wait", [(True, False), (False, True)])
@pytest.mark.parametrize(
    "error, code, said",
    [
        (ConfigError("rounds=0"), 2, "headstart: rounds=0"),
        (MemoryError(), 1, "headstart: too large for this machine: out of memory"),
        (KeyboardInterrupt(), 130, "headstart: interrupted"),
        (SystemExit(3), 3, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_after_a_failure_nobody_waits_for_the_other_processes(
    error: BaseException, code: int, said: str, shared: bool, wait: bool,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """JAX's ordinary exit waits for the others: only a process of its own may take it."""
    ended = fail_in_main(error, shared, monkeypatch)
    assert ended == (("ordinary" if wait else "at once"), code)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, lost",
    [
        (RuntimeError("FAILED_PRECONDITION: Buffer Definition Event"), True),
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"), True),
        (ValueError("could not broadcast"), False),
        (TypeError("a defect"), False),
    ],
)
def test_a_broken_collective_operation_is_told_apart_from_a_defect(
    error: Exception, lost: bool
) -> None:
    assert is_lost_connection(error) is lost


def test_a_defect_in_a_shared_run_is_shown_and_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail_in_main(TypeError("a defect"), True, monkeypatch) == ("at once", 1)
    assert "Traceback" in (shown := capsys.readouterr().err) and "TypeError: a defect" in shown
    with pytest.raises(TypeError, match="a defect"):
        fail_in_main(TypeError("a defect"), False, monkeypatch)


def fail_in_main(
    error: BaseException, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, object]:
    """How the program ends when a command raises, and with which code."""

    class AtOnceError(BaseException):
        pass

    def command() -> None:
        raise error

    def end_at_once(code: int) -> None:
        raise AtOnceError(code)

    monkeypatch.setattr(main, "app", command)
    monkeypatch.setattr(main, "shares_run", lambda: shared)
    monkeypatch.setattr(main, "use_all_cores", lambda: None)
    monkeypatch.setattr("sys.argv", ["headstart", "run"])
    monkeypatch.setattr(os, "_exit", end_at_once)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        main.main()
    except AtOnceError as end:
        return "at once", end.args[0]
    except SystemExit as end:
        return "ordinary", end.code
    raise AssertionError("the program did not end")


def test_a_mistake_in_joining_is_one_line() -> None:
    run = CliRunner().invoke
    alone = run(app, ["run", "--processes", "2", "--process-id", "1"])
    assert "belong together" in str(alone.exception)
    beyond = run(
        app, ["run", "--processes", "2", "--process-id", "2", "--coordinator", "127.0.0.1:1"]
    )
    assert "must lie in 0 … 1" in str(beyond.exception)


def wait_for(condition: object) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)


def commands() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().decode().replace("\0", " ")
        except OSError:
            continue
        found[int(folder.name)] = (parent, words)
    return found


def follower(parent: int) -> int:
    """The process that does not lead."""
    return next(
        pid for pid, (above, words) in commands().items()
        if above == parent and "--process-id 1" in words
    )  # fmt: skip


def orphans(folder: str) -> list[str]:
    return [
        words for _, words in commands().values() if folder in words and "--process-id" in words
    ]
