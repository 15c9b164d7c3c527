"""Sites that fail, lie or stay away: the round goes on, the fault is named, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest
from flower.federations import experiment, federation_in
from flower.local_grid import LocalGrid
from flower.raw_messages import RawMessage, split_header, with_header
from flwr.app import ConfigRecord, Context, Message, RecordDict

from headstart._experiments import load_run
from headstart._keys import Keys
from headstart.errors import CheckpointError
from headstart.flower._federation_config import SiteConfig
from headstart.flower._federation_errors import FederationError, SupersededError
from headstart.flower.deploy._serving import _watch
from headstart.flower.protocol._encoding import encode
from headstart.flower.protocol._flower_records import to_records
from headstart.flower.protocol._messages import IdentityRequest
from headstart.flower.server import conduct
from headstart.flower.site import client_app
from headstart.flower.site._site_memory import SiteMemory
from headstart.records import RunDirectory
from headstart.records._checkpoint import FORMAT as CHECKPOINT_FORMAT
from headstart.records._federation_events import RunStarted, follow_events
from headstart.records._tensor_files import read_checked, write_checked
from headstart.trees import subtract

ALL = {"participation": 1.0, "rounds": 2}
QUICK = {"deadline": 0.3, "wait": 0.3}


def test_an_exception_leaves_the_site_as_class_and_code_only(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL))
    secret = "patient-4711-is-ill"
    (tmp_path / "f/sites/site-1/data/x.npy").write_text(secret)
    said = heard(grid, "site-1")
    conduct(grid, tmp_path / "f", tmp_path / "run")
    errors = [m for m in said if m.has_error()]
    assert [(m.error.code, m.error.reason) for m in errors] == [(102, "DataError")] * 3
    events = rounds_of(tmp_path / "run")
    assert events[0]["trained"] == ["site-0", "site-2"]
    assert "DataError, code 102" in events[0]["rejected"]["site-1"]
    assert secret not in (tmp_path / "run/rounds.jsonl").read_text()
    assert "DataError" in (tmp_path / "f/sites/site-1" / "work" / "errors.log").read_text()


@pytest.mark.parametrize("kind", ["ValueError", "KeyError"])
def test_any_exception_is_replaced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL))

    def fail(config: SiteConfig, order: bytes) -> bytes:
        raise {"ValueError": ValueError, "KeyError": KeyError}[kind]("row 17: 3.1, 4.1, ill")

    monkeypatch.setattr(client_app, "answer_bytes", fail)
    reply = grid.apps["site-0"](order_message(), context_of(grid, "site-0"))
    assert reply is not None
    assert (reply.error.code, reply.error.reason) == (199, kind)


def nan(answer: RawMessage) -> RawMessage:
    return changed(answer, lambda a: np.full_like(a, np.nan))


def absurd(answer: RawMessage) -> RawMessage:
    return changed(answer, lambda a: (a + 1) * a.dtype.type(1e6))


def shapeless(answer: RawMessage) -> RawMessage:
    return changed(answer, lambda a: a[..., None])


def double(answer: RawMessage) -> RawMessage:
    return changed(answer, lambda a: a.astype(np.float64))


def nameless(answer: RawMessage) -> RawMessage:
    return replace(answer, arrays={f"{name}.x": a for name, a in answer.arrays.items()})


def pickled(answer: RawMessage) -> bytes:
    """The pickle of None where the arrays are."""
    header, body = split_header(answer.to_bytes())
    return with_header(header, b"\x80\x04N." if body else b"")


def heavy(answer: RawMessage) -> RawMessage:
    if answer.record["training"] is None:
        return answer
    return answer.with_record(training__weight=50.0)


def sizeless(answer: RawMessage) -> RawMessage:
    return answer.with_record(sizes__train_examples=-3)


def stale(answer: RawMessage) -> RawMessage:
    return answer.with_record(round=7)


def lossless(answer: RawMessage) -> RawMessage:
    if answer.record["training"] is None:
        return answer
    return answer.with_record(training__loss="low")


def perfect(answer: RawMessage) -> RawMessage:
    if answer.record["scores"] is None:
        return answer
    sums = [[0.0, 1e9, 0.0] for _ in answer.record["scores"]["sums"]]
    return answer.with_record(scores__sums=sums)


LIES: dict[Callable[[RawMessage], RawMessage | bytes], str] = {
    nan: "not finite",
    absurd: "norm",
    shapeless: "expected",
    double: "float64",
    nameless: "only one of the two",
    pickled: "cannot be read",
    heavy: "weight 50.0",
    sizeless: "sizes",
    stale: "round 7",
    lossless: "loss",
    perfect: "more right predictions",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_bad_answer_is_rejected_and_named(lie: Any, tmp_path: Path) -> None:
    plan = experiment(**{**ALL, "rounds": 1})
    grid = federation_in(tmp_path / "f", plan)
    honest = grid.apps["site-1"]

    def liar(message: Message, context: Context) -> Message:
        reply = honest(message, context)
        assert reply is not None
        answer = lie(RawMessage.from_reply(reply))
        content = answer if isinstance(answer, bytes) else answer.to_bytes()
        return Message(to_records(content), reply_to=message)

    grid.apps["site-1"] = liar
    conduct(grid, tmp_path / "f", tmp_path / "run")
    first = rounds_of(tmp_path / "run")[0]
    assert first["trained"] == ["site-0", "site-2"]
    assert LIES[lie] in first["rejected"]["site-1"]
    # The model is the one that the two honest sites alone give.
    alone = federation_in(tmp_path / "g", plan)
    del alone.apps["site-1"]
    conduct(alone, tmp_path / "g", tmp_path / "without")
    same_model(tmp_path / "run", tmp_path / "without")


def test_a_message_of_another_form_is_rejected(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL), retries=0)

    def stranger(message: Message, context: Context) -> Message:
        return Message(RecordDict({"hello": ConfigRecord({"a": 1})}), reply_to=message)

    def garbled(message: Message, context: Context) -> Message:
        return Message(to_records(b"\xff" * 40), reply_to=message)

    grid.apps |= {"site-1": garbled, "site-2": stranger}
    with pytest.raises(FederationError, match="1 usable answers, 2 are needed"):
        conduct(grid, tmp_path / "f", tmp_path / "run")
    for name in ("site-1", "site-2"):
        assert "its message cannot be read" in rounds_of(tmp_path / "run")[0]["rejected"][name]


def test_a_silent_site_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL), **QUICK)
    grid.apps["site-0"] = lambda message, context: None
    conduct(grid, tmp_path / "f", tmp_path / "run")
    events = rounds_of(tmp_path / "run")
    assert [e["silent"] for e in events] == [["site-0"]] * 3
    assert events[0]["trained"] == ["site-1", "site-2"]
    # Two answers a round, not three, are what the gradient count goes by.
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (
        summary["gradient_evaluations"]
        == 2 * 2 * summary["gradient_evaluations_per_client"]["round"]
    )


def test_a_partial_round_is_weighted_by_who_answered(tmp_path: Path) -> None:
    plan = experiment(**{**ALL, "rounds": 1}, algorithm={"name": "fedavg", "weights": "examples"})
    grid = federation_in(tmp_path / "f", plan)
    replies: dict[str, Any] = {}
    for name in ("site-0", "site-2"):
        grid.apps[name] = recording(grid.apps[name], replies, name)
    del grid.apps["site-1"]
    conduct(grid, tmp_path / "f", tmp_path / "run")
    parts = [replies[name].arrays for name in ("site-0", "site-2")]
    records = [replies[name].record for name in ("site-0", "site-2")]
    weights = [record["training"]["weight"] for record in records]
    assert weights == [record["sizes"]["train_examples"] for record in records]
    model = load_run(tmp_path / "run").params
    schema = RunDirectory(tmp_path / "run").schema()
    first = plan.build_model().init(Keys.from_seed(plan.seed).init, schema)
    moved = named_leaves(subtract(model, first))
    for name, leaf in zip(sorted(parts[0]), moved, strict=True):
        mean = np.average([part[name] for part in parts], axis=0, weights=weights)
        np.testing.assert_allclose(leaf, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wait_for_all", [False, True])
def test_a_trial_waits_for_all_sites(wait_for_all: bool, tmp_path: Path) -> None:
    """On a slow machine a site may connect after ``min_sites`` others have."""
    grid = SlowGrid(federation_in(tmp_path / "f", experiment(**ALL)), "site-1", "site-3")
    conduct(grid, tmp_path / "f", tmp_path / "run", wait_for_all=wait_for_all)
    first = rounds_of(tmp_path / "run")[0]
    assert first["trained"] == ["site-0", *["site-1"] * wait_for_all, "site-2"]
    assert first["scored"] == first["trained"] + ["site-3"] * wait_for_all
    if wait_for_all:
        prompt = federation_in(tmp_path / "g", experiment(**ALL))
        conduct(prompt, tmp_path / "g", tmp_path / "prompt")
        same_model(tmp_path / "run", tmp_path / "prompt")


def test_too_few_sites_end_the_run_clearly_after_a_while(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL), **QUICK)
    for name in ("site-0", "site-2"):
        del grid.apps[name]
    with pytest.raises(FederationError, match=r"1 of the 2 sites needed.*absent: site-0, site-2"):
        conduct(grid, tmp_path / "f", tmp_path / "run")
    events = events_of(tmp_path / "run")
    assert [e["event"] for e in events] == ["started", "waiting", "failed"]


def test_a_round_without_enough_answers_is_tried_again(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**{**ALL, "rounds": 1}), retries=1)
    for name in ("site-0", "site-1", "site-2"):
        grid.apps[name] = failing_once(grid.apps[name])
    conduct(grid, tmp_path / "f", tmp_path / "run")
    events = rounds_of(tmp_path / "run")
    assert [e["done"] for e in events[:2]] == [False, True]
    again = federation_in(tmp_path / "g", experiment(**{**ALL, "rounds": 1}))
    conduct(again, tmp_path / "g", tmp_path / "undisturbed")
    same_model(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.parametrize("name", ["per-fedavg", "apfl"])
def test_a_killed_server_resumes_to_the_same_model(name: str, tmp_path: Path) -> None:
    plan = experiment(rounds=4, algorithm={"name": name, "local_steps": 2, "batch_size": 8})
    whole = federation_in(tmp_path / "f", plan)
    conduct(whole, tmp_path / "f", tmp_path / "whole")
    grid = federation_in(tmp_path / "g", plan)
    dying = DyingGrid(grid, after=3)
    with pytest.raises(Killed):
        conduct(dying, tmp_path / "g", tmp_path / "run")
    conduct(grid, tmp_path / "g", tmp_path / "run", resume=True)
    same_model(tmp_path / "run", tmp_path / "whole")
    ours, theirs = load_run(tmp_path / "run"), load_run(tmp_path / "whole")
    assert [e.round for e in ours.evaluations] == [e.round for e in theirs.evaluations]
    for one, other in zip(ours.clients, theirs.clients, strict=True):
        assert one.loss.after == pytest.approx(other.loss.after, rel=1e-5)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    plan = experiment(**ALL)
    grid = federation_in(tmp_path / "f", plan)
    with pytest.raises(Killed):
        conduct(DyingGrid(grid, after=2), tmp_path / "f", tmp_path / "run")
    _, newest = sorted((tmp_path / "run/checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:-9] + b"\xff" * 9)
    conduct(grid, tmp_path / "f", tmp_path / "run", resume=True)
    events = events_of(tmp_path / "run")
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert notices == [f"{newest} is damaged (its checksum does not match); it is not used"]
    assert [e["round"] for e in events if e["event"] == "started"] == [0, 1]
    whole = federation_in(tmp_path / "g", plan)
    conduct(whole, tmp_path / "g", tmp_path / "whole")
    same_model(tmp_path / "run", tmp_path / "whole")


def test_a_run_of_version_0_1_is_resumed(tmp_path: Path) -> None:
    """Its records and events state no format, and its tables no norm for clipping."""
    plan = experiment(**ALL, algorithm={"max_gradient_norm": float("inf")})
    grid = federation_in(tmp_path / "f", plan)
    with pytest.raises(Killed):
        conduct(DyingGrid(grid, after=2), tmp_path / "f", tmp_path / "run")
    for path in (tmp_path / "run/checkpoint").iterdir():
        header, tensors = read_checked(path, CHECKPOINT_FORMAT)
        for record in header["records"]:
            del record["format"]
        write_checked(path, tensors, header, CHECKPOINT_FORMAT)
    old = [
        {k: v for k, v in event.items() if k != "format"} for event in events_of(tmp_path / "run")
    ]
    text = "".join(json.dumps(event) + "\n" for event in old)
    (tmp_path / "run/rounds.jsonl").write_text(text)
    for table in (tmp_path / "f/experiment.toml", tmp_path / "run/config.toml"):
        assert "max_gradient_norm = inf\n" in table.read_text()
        table.write_text(table.read_text().replace("max_gradient_norm = inf\n", ""))
    conduct(grid, tmp_path / "f", tmp_path / "run", resume=True)
    events = [event for _, event in follow_events(tmp_path / "run/rounds.jsonl", 0)]
    assert [e.round for e in events if isinstance(e, RunStarted)] == [0, 2]
    prompt = federation_in(tmp_path / "g", plan)
    conduct(prompt, tmp_path / "g", tmp_path / "prompt")
    same_model(tmp_path / "run", tmp_path / "prompt")


def test_notices_are_shown_where_the_server_was_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notice = {"event": "notice", "text": "round-7 is damaged (no header); it is not used"}
    lines = [json.dumps(event) for event in (notice, {"event": "finished"})]
    (tmp_path / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    heard: list[Any] = []
    _watch(tmp_path, tmp_path, Mock(), 1, 0, heard.append, lambda: None)
    assert capsys.readouterr().err == "round-7 is damaged (no header); it is not used\n"
    assert [event.event for event in heard] == ["notice", "finished"]


def test_a_server_that_was_replaced_touches_nothing(tmp_path: Path) -> None:
    plan = experiment(**ALL)
    grid = federation_in(tmp_path / "f", plan)
    honest, taken = grid.apps["site-2"], list[int]()

    def meanwhile(message: Message, context: Context) -> Message | None:
        if not taken:  # Another server process takes the run up while this one waits for answers.
            taken.append(1)
            (tmp_path / "run/run.owner").write_text("somebody else")
        return honest(message, context)

    grid.apps["site-2"] = meanwhile
    with pytest.raises(SupersededError):
        conduct(grid, tmp_path / "f", tmp_path / "run")
    assert not list((tmp_path / "run/checkpoint").glob("*"))
    assert [event["event"] for event in events_of(tmp_path / "run")] == ["started"]


def test_distribution_reaches_a_site_that_came_late(tmp_path: Path) -> None:
    plan = experiment(**ALL)
    grid = federation_in(tmp_path / "f", plan)
    late = grid.apps.pop("site-3")
    conduct(grid, tmp_path / "f", tmp_path / "run")
    kept = tmp_path / "f/sites/site-3" / "work" / "runs"
    assert not kept.exists()
    assert load_run(tmp_path / "run").summary.new is None
    before = (tmp_path / "run/model.safetensors").read_bytes()
    grid.apps["site-3"] = late
    conduct(grid, tmp_path / "f", tmp_path / "run", distribute=True)
    assert (tmp_path / "run/model.safetensors").read_bytes() == before
    assert list(kept.glob("*/personal.safetensors"))
    distributed = load_run(tmp_path / "run")
    assert distributed.summary.new is not None
    assert [e.round for e in distributed.evaluations] == [0, 2]


def test_distribution_before_training_is_refused(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", experiment(**ALL))
    (tmp_path / "run").mkdir()
    with pytest.raises(FederationError, match="no trained model"):
        conduct(grid, tmp_path / "f", tmp_path / "run", distribute=True)


def test_memory_is_kept_for_a_round_asked_again(tmp_path: Path) -> None:
    memory = SiteMemory(tmp_path)
    fresh = {"v": np.zeros(2, np.float32)}
    assert memory.before(5, fresh) is fresh
    for number in (5, 6, 7):
        memory.keep(number, {"v": np.full(2, number, np.float32)})
    assert float(memory.before(7, fresh)["v"][0]) == 6
    assert memory.before(5, fresh) is fresh
    memory.keep(6, {"v": np.full(2, 66, np.float32)})
    assert float(memory.before(9, fresh)["v"][0]) == 66
    for number in range(8, 12):
        memory.keep(number, {"v": np.full(2, number, np.float32)})
    with pytest.raises(CheckpointError, match="no memory from before round 5"):
        memory.before(5, fresh)


class SlowGrid(LocalGrid):
    """A grid to which some sites connect only after the server has looked three times."""

    def __init__(self, grid: LocalGrid, *slow: str) -> None:
        super().__init__(grid.apps, grid.sites)
        self.slow, self.looks = slow, 0

    def get_node_ids(self) -> Any:
        self.looks += 1
        late = self.slow if self.looks <= 3 else ()
        return [node for node in super().get_node_ids() if self.nodes[node] not in late]


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


class DyingGrid(LocalGrid):
    """A grid whose server dies after so many exchanges, when the sites have done their work."""

    def __init__(self, grid: LocalGrid, after: int) -> None:
        super().__init__(grid.apps, grid.sites)
        self.left = after

    def pull_messages(self, message_ids: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super().pull_messages(message_ids)


def failing_once(app: Any) -> Any:
    calls = []

    def answer(message: Message, context: Context) -> Message | None:
        calls.append(1)
        if len(calls) > 1:
            return app(message, context)
        bad = Context(1, 1, {"site": "nowhere.toml"}, RecordDict(), {})
        return app(message, bad)

    return answer


def recording(app: Any, replies: dict[str, Any], name: str) -> Any:
    def answer(message: Message, context: Context) -> Message | None:
        reply = app(message, context)
        answer = RawMessage.from_reply(reply)
        if answer.record["training"] is not None:
            replies[name] = answer
        return reply

    return answer


def heard(grid: LocalGrid, name: str) -> list[Message]:
    said: list[Message] = []
    app = grid.apps[name]

    def answer(message: Message, context: Context) -> Message | None:
        reply = app(message, context)
        assert reply is not None
        said.append(reply)
        return reply

    grid.apps[name] = answer
    return said


def changed(answer: RawMessage, change: Callable[[np.ndarray], np.ndarray]) -> RawMessage:
    return replace(answer, arrays={n: change(a) for n, a in answer.arrays.items()})


def order_message() -> Message:
    return Message(to_records(encode(IdentityRequest())), dst_node_id=2, message_type="train")


def context_of(grid: LocalGrid, name: str) -> Context:
    return Context(1, 2, {"site": str(grid.sites[name])}, RecordDict(), {})


def rounds_of(run: Path) -> list[dict[str, Any]]:
    return [event for event in events_of(run) if event["event"] == "round"]


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def named_leaves(model: Any) -> list[Any]:
    from headstart.records._tensor_files import named_arrays

    arrays = named_arrays({"params": model})
    return [arrays[name] for name in sorted(arrays)]


def same_model(one: Path, other: Path) -> None:
    for a, b in zip(
        jax.tree.leaves(load_run(one).params), jax.tree.leaves(load_run(other).params), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
