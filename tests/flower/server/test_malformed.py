"""Malformed answers: whatever one site sends, the others finish as if it had not answered."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flower.federations import TABLE, experiment, federation_in
from flower.local_grid import LocalGrid
from flower.raw_messages import RawMessage, split_header, with_header
from flower.server.test_faults import events_of, rounds_of, same_model
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart._experiments import load_run
from headstart._experiments.configuration import Experiment
from headstart.data._store import open_store, write_store
from headstart.errors import DataError, DivergedError, HeadstartError
from headstart.flower._federation_errors import FederationError
from headstart.flower.protocol._encoding import Bounds, decode, encode
from headstart.flower.protocol._flower_records import from_records, to_records
from headstart.flower.protocol._messages import PROTOCOL, Identity, WireMessage
from headstart.flower.server import conduct
from headstart.flower.server._coordinator import Coordinator
from headstart.flower.server._exchange import Exchange
from headstart.flower.server._rejection import LONGEST_REASON, reason_to_reject
from headstart.flower.server._run_record import RunRecord
from headstart.flower.server._session import Session

ONE_ROUND = {"participation": 1.0, "rounds": 1}
PLAN = experiment(**ONE_ROUND)
BAD = "site-1"
TRAINING = ("site-0", "site-1", "site-2")
HUGE = 10**15


class Federation:
    """One folder for all tests of this module, and the run of the honest sites alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "f"
        self.grid = federation_in(self.folder, PLAN, insecure=True)
        self.alone = folder / "alone"
        with self.sites(BAD, None):
            conduct(self.grid, self.folder, self.alone)
        self.together = folder / "together"
        conduct(self.grid, self.folder, self.together)

    @contextmanager
    def sites(self, name: str, app: Any) -> Iterator[None]:
        """With another ClientApp at one site, or none."""
        honest = self.grid.apps.pop(name)
        if app is not None:
            self.grid.apps[name] = app
        try:
            yield
        finally:
            self.grid.apps[name] = honest


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("malformed"))


# Whole messages: what stands in place of the bytes that Flower carries.


METADATA = {"protocol": str(PROTOCOL), "kind": "answer", "record": "{}"}


def message(body: bytes = b"", /, metadata: Any = METADATA, **arrays: Any) -> bytes:
    """A safetensors file whose header says anything of its arrays."""
    return with_header(json.dumps({"__metadata__": metadata, **arrays}).encode(), body)


def array(shape: Any, end: Any = 16, dtype: Any = "F32") -> dict[str, Any]:
    """The header's entry of one array; 16 bytes hold four numbers."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def announcing(shape: Any, end: Any = 16, dtype: Any = "F32") -> bytes:
    return message(b"\0" * 16, a=array(shape, end, dtype))


def npz(content: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, content)
    return buffer.getvalue()


def npy(content: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, content)
    return buffer.getvalue()


def record(text: str) -> bytes:
    """An answer whose record is any text."""
    return message(metadata={**METADATA, "record": text})


TWICE = b'{"__metadata__": {}, "a": {}, "a": {}}'

MESSAGES: dict[str, bytes] = {
    "empty": b"",
    "zip in place of safetensors": npz(np.zeros(3)),
    "NPY in place of safetensors": npy(np.zeros(3)),
    "a pickle in place of safetensors": b"\x80\x04N.",
    "header announces 10^15 numbers": announcing([HUGE]),
    "header announces 10^15 numbers and their bytes": announcing([HUGE], 4 * HUGE),
    "header announces 10^15 numbers of a column": announcing([HUGE, 1], dtype="F64"),
    "header with a negative length": announcing([-4]),
    "header with a hundred axes": announcing([1] * 100, 4),
    "header with an impossible empty shape": announcing([0, 10**30]),
    "header with an overflowing shape": announcing([2**62, 4]),
    "header with a fraction as the shape": announcing([4.5]),
    "header with a text as the shape": announcing("4"),
    "header nested deeply": announcing(json.loads("[" * 90 + "]" * 90)),
    "header of an unknown type": announcing([4], dtype="__import__('os').abort()"),
    "header of bfloat16, which NumPy lacks": announcing([8], dtype="BF16"),
    "header of objects": announcing([1], dtype="O"),
    "offsets below zero": message(b"\0" * 16, a={**array([4]), "data_offsets": [-16, 0]}),
    "offsets in reverse": message(b"\0" * 16, a={**array([4]), "data_offsets": [16, 0]}),
    "offsets that overlap": message(b"\0" * 16, a=array([4]), b=array([4])),
    "offsets of one number": message(b"\0" * 16, a={**array([4]), "data_offsets": [16]}),
    "a length of seven bytes": b"\0" * 7,
    "header announces 2^63 bytes": with_header(b"{}", length=2**63),
    "header announces more than there is": with_header(b"{}", length=100),
    "header longer than a scores table": record("a" * 10**6),
    "JSON nested 50,000 deep": with_header(b"[" * 50_000),
    "JSON tables nested 10,000 deep": with_header(b'{"a":' * 10_000),
    "JSON in UTF-16": with_header("{}".encode("utf-16")),
    "header that is not JSON": with_header(b"\xff\xfe\x00"),
    "header that is a list": with_header(b"[]"),
    "header that is a number": with_header(b"7"),
    "header without metadata": with_header(b"{}"),
    "metadata that are a list": message(metadata=[]),
    "metadata of another protocol": message(metadata={**METADATA, "protocol": "2"}),
    "metadata with a number as the protocol": message(metadata={**METADATA, "protocol": PROTOCOL}),
    "a message of another kind": message(metadata={**METADATA, "kind": "order"}),
    "a message of no kind": message(metadata={"protocol": str(PROTOCOL)}),
    "a list as the kind": message(metadata={**METADATA, "kind": []}),
    "a table as the record": message(metadata={**METADATA, "record": {}}),
    "record that is not JSON": record("\x00"),
    "record that is a list": record("[]"),
    "record nested 50,000 deep": record("[" * 50_000),
    "record in which arrays are": record('{"tensors": {"a": [1]}}'),
    "length Infinity": with_header(b'{"__metadata__": {}, "a": {"data_offsets": [0, Infinity]}}'),
    "length NaN": with_header(b'{"__metadata__": {}, "a": {"data_offsets": [0, NaN]}}'),
    "length of 5,000 digits": with_header(b'{"a": ' + b"9" * 5000 + b"}"),
    "array named twice": with_header(TWICE),
    "a thousand arrays": message(b"", METADATA, **{str(n): array([0], 0) for n in range(1000)}),
    "body shorter than its arrays": message(b"abc", a=array([4])),
    "body longer than its arrays": message(b"\0" * 20, a=array([4])),
}


# Answers of the right form, with something impossible in them.


def with_record(**changes: Any) -> Callable[[RawMessage], RawMessage]:
    return lambda answer: answer.with_record(**changes)


def with_training(**changes: Any) -> Callable[[RawMessage], RawMessage]:
    """Only in answers with an update; those of the last evaluation have none."""
    deeper = {f"training__{name}": value for name, value in changes.items()}
    return lambda answer: answer.with_record(**deeper) if answer.record["training"] else answer


def with_arrays(content: np.ndarray) -> Callable[[RawMessage], RawMessage]:
    return lambda answer: replace(answer, arrays=dict.fromkeys(answer.arrays, content))


def with_sums(number: Any) -> Callable[[RawMessage], RawMessage]:
    return with_record(scores={"sums": [[number, 0.0, 0.0]] * 4})


def nested(depth: int) -> Any:
    value: Any = 0.0
    for _ in range(depth):
        value = [value]
    return value


ANSWERS: dict[str, Callable[[RawMessage], RawMessage]] = {
    "train_examples=10^12": with_record(sizes__train_examples=10**12),
    "train_examples=10^30": with_record(sizes__train_examples=10**30),
    "test_examples=10^30": with_record(sizes__test_examples=10**30),
    "test_examples=2^31": with_record(sizes__test_examples=2**31),
    "classes=10^12": with_record(sizes__classes=10**12),
    "classes=11 of 10": with_record(sizes__classes=11),
    "train_examples true": with_record(sizes__train_examples=True),
    "train_examples as text": with_record(sizes__train_examples="30"),
    "sizes missing": lambda answer: replace(answer, record={"round": 0}),
    "an unknown key": with_record(more=1),
    "scores missing": with_record(scores=None),
    "scores as text": with_record(scores="good"),
    "scores as a number": with_record(scores=3),
    "score sums of 1e308": with_sums(1e308),
    "score sums of 10^400": with_sums(10**400),
    "score sums that are words": with_sums("low"),
    "score sums that are not numbers": with_sums(float("nan")),
    "score sums nested": with_sums(nested(20)),
    "score sums below zero": with_sums(-1.0),
    "score sums ragged": with_record(scores={"sums": [[0.0], [0.0, 0.0]]}),
    "score sums empty": with_record(scores={"sums": []}),
    "round as a list": with_record(round=[0]),
    "a control sequence as the round": with_record(round="\x1b[2J" * 500),
    "more broken examples than there are": with_record(scores={"sums": [[0.0, 0.0, 1e300]] * 4}),
}
UPDATES: dict[str, Callable[[RawMessage], RawMessage]] = {
    "arrays of bytes": with_arrays(np.zeros(3, np.uint8)),
    "arrays that are empty": with_arrays(np.zeros(0, np.float32)),
    "an empty shape of a huge axis": with_arrays(np.zeros((0, 2**40), np.float32)),
    "no update": lambda answer: replace(answer.with_record(training=None), arrays={}),
    "weight as a list": with_training(weight=[1.0]),
    "weight of 4,000 digits": with_training(weight=10**4000),
    "weights of parts that are not there": with_training(part_weights={"more": 1.0}),
    "loss of 1e308": with_training(loss=1e308),
    "loss as a table": with_training(loss={"a": 1}),
}


def raw_app(honest: Any, content: bytes) -> Any:
    def answer(message: Message, context: Context) -> Message:
        honest(message, context)
        return Message(to_records(content), reply_to=message)

    return answer


def changing_app(honest: Any, change: Callable[[RawMessage], RawMessage]) -> Any:
    def answer(message: Message, context: Context) -> Message:
        return change(RawMessage.from_reply(honest(message, context))).as_reply(message)

    return answer


def assert_only_the_others_count(federation: Federation, run: Path) -> None:
    same_model(run, federation.alone)
    ours, alone = load_run(run), load_run(federation.alone)
    assert ours.evaluations[0].known.loss == alone.evaluations[0].known.loss


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_malformed_message_is_rejected_and_the_round_goes_on(
    kind: str, federation: Federation, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with federation.sites(BAD, raw_app(federation.grid.apps[BAD], MESSAGES[kind])):
        conduct(federation.grid, federation.folder, run)
    assert [list(event["rejected"]) for event in rounds_of(run)] == [[BAD], [BAD]]
    assert_only_the_others_count(federation, run)
    assert load_run(run).summary.to_table()["evaluated_clients"] == {"known": 2, "new": 1}


@pytest.mark.parametrize("kind", [*ANSWERS, *UPDATES])
def test_an_impossible_answer_is_rejected_and_the_round_goes_on(
    kind: str, federation: Federation, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    change = (ANSWERS | UPDATES)[kind]
    with federation.sites(BAD, changing_app(federation.grid.apps[BAD], change)):
        conduct(federation.grid, federation.folder, run)
    training, last = rounds_of(run)
    assert list(training["rejected"]) == [BAD]
    assert len(training["rejected"][BAD]) <= LONGEST_REASON + 1
    assert training["rejected"][BAD].isprintable()
    assert list(last["rejected"]) == ([BAD] if kind in ANSWERS else [])
    same_model(run, federation.alone)


class NamelessGrid(LocalGrid):
    """As without node keys: the server must ask the nodes for their names."""

    def get_nodes(self) -> Any:
        return [NodeInfo(node_id=node) for node in self.get_node_ids()]


@pytest.mark.parametrize("kind", [*MESSAGES, "no name", "a list as the name"])
def test_a_malformed_name_leaves_one_site_out(
    kind: str, federation: Federation, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    grid = NamelessGrid(federation.grid.apps, federation.grid.sites)
    names: dict[str, Any] = {"no name": {}, "a list as the name": {"name": [BAD]}}
    if kind in MESSAGES:
        grid.apps[BAD] = raw_app(grid.apps[BAD], MESSAGES[kind])
    else:
        grid.apps[BAD] = changing_app(
            grid.apps[BAD], lambda answer: replace(answer, record=names[kind])
        )
    conduct(grid, federation.folder, run)
    notices = [e["text"] for e in events_of(run) if e["event"] == "notice"]
    assert len(notices) == 1 and "does not say which site it is" in notices[0]
    assert_only_the_others_count(federation, run)


def diverged(answer: RawMessage) -> RawMessage:
    if answer.record["scores"] is None:
        return answer
    sums = [[0.0, 0.0, 1.0] for _ in answer.record["scores"]["sums"]]
    return answer.with_record(scores={"sums": sums})


def test_a_diverged_score_is_left_out_of_the_evaluation(
    federation: Federation, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with federation.sites(BAD, changing_app(federation.grid.apps[BAD], diverged)):
        conduct(federation.grid, federation.folder, run)
    training, last = rounds_of(run)
    assert training["trained"] == ["site-0", BAD, "site-2"]
    assert training["scored"] == last["scored"] == ["site-0", "site-2", "site-3"]
    same_model(run, federation.together)
    notices = [e["text"] for e in events_of(run) if e["event"] == "notice"]
    assert len(notices) == 2
    assert all(BAD in text and "left out of the evaluation" in text for text in notices)
    assert load_run(run).summary.to_table()["evaluated_clients"] == {"known": 2, "new": 1}
    assert [row.name for row in load_run(run).clients] == ["site-0", "site-2", "site-3"]


def scaled(grid: LocalGrid, *names: str) -> None:
    """The data of these sites in a unit 10^20 times as small."""
    for name in names:
        folder = grid.sites[name].parent / "data"
        data = open_store(folder)
        larger = replace(data, x=np.asarray(data.x) * np.float32(1e20))
        shutil.rmtree(folder)
        write_store(folder, larger)


# Of a linear model one step on such data gives weights that are not finite.
PLAIN = {**TABLE["algorithm"], "max_gradient_norm": float("inf")}
LINEAR = Experiment.from_table(
    {**TABLE, **ONE_ROUND, "model": {"name": "logistic"}, "algorithm": PLAIN}
)


def test_a_site_with_data_on_an_absurd_scale_harms_only_itself(tmp_path: Path) -> None:
    grid, run = federation_in(tmp_path / "f", LINEAR, insecure=True), tmp_path / "run"
    scaled(grid, BAD)
    conduct(grid, tmp_path / "f", run)
    training, last = rounds_of(run)
    assert "DivergedError" in training["rejected"][BAD]
    assert last["scored"] == ["site-0", "site-2", "site-3"]
    notices = [e["text"] for e in events_of(run) if e["event"] == "notice"]
    assert len(notices) == 1 and f"{BAD} is left out of the evaluation at round 1" in notices[0]
    del grid.apps[BAD]
    conduct(grid, tmp_path / "f", tmp_path / "others")
    same_model(run, tmp_path / "others")
    assert (
        load_run(run).summary.known["accuracy"]
        == load_run(tmp_path / "others").summary.known["accuracy"]
    )


def test_updates_that_all_diverge_end_the_run_as_divergence(tmp_path: Path) -> None:
    grid = federation_in(tmp_path / "f", LINEAR, insecure=True, retries=0)
    scaled(grid, *TRAINING)
    with pytest.raises(DivergedError, match=r"round 1: every site diverged .*local_lr"):
        conduct(grid, tmp_path / "f", tmp_path / "run")
    assert events_of(tmp_path / "run")[-1]["kind"] == "DivergedError"


@pytest.mark.parametrize("when", ["train", "evaluate"])
def test_scores_that_all_diverge_end_the_run_as_divergence(
    when: str, federation: Federation, tmp_path: Path
) -> None:
    grid = LocalGrid(federation.grid.apps, federation.grid.sites)
    for name in TRAINING:
        grid.apps[name] = only_when(when, grid.apps[name], diverged)
    with pytest.raises(DivergedError, match=r"client site-0 is not finite .*3 of 3 clients"):
        conduct(grid, federation.folder, tmp_path / "run")


def test_without_any_usable_score_the_run_ends_with_the_reasons(
    federation: Federation, tmp_path: Path
) -> None:
    grid = LocalGrid(federation.grid.apps, federation.grid.sites)
    for name in TRAINING:
        grid.apps[name] = only_when("evaluate", grid.apps[name], with_record(sizes__classes=10**12))
    with pytest.raises(FederationError, match=r"no site that trained gave .*site-2 states sizes"):
        conduct(grid, federation.folder, tmp_path / "run")


def only_when(kind: str, honest: Any, change: Callable[[RawMessage], RawMessage]) -> Any:
    bad = changing_app(honest, change)

    def answer(message: Message, context: Context) -> Message:
        return (bad if message.metadata.message_type == kind else honest)(message, context)

    return answer


def test_a_rejected_answer_changes_nothing_the_server_knows(
    federation: Federation, tmp_path: Path
) -> None:
    """Also not the sizes, which are right in it and stand before what is wrong."""
    change = with_record(sizes__test_examples=7, scores="good")
    with federation.sites(BAD, only_when("evaluate", federation.grid.apps[BAD], change)):
        conduct(federation.grid, federation.folder, tmp_path / "run")
    honest = load_run(federation.together).clients[1].test_examples
    session = Session.from_folder(federation.folder, "check")
    checkpoint = RunRecord(tmp_path / "run", session).newest_checkpoint()
    assert checkpoint is not None and checkpoint.federation is not None
    assert checkpoint.federation.sizes[1].test_examples == honest != 7


@pytest.mark.parametrize("error", [MemoryError, RecursionError, OverflowError, AttributeError])
def test_any_exception_is_a_reason_to_reject(error: type[Exception]) -> None:
    def handle() -> None:
        raise error("row 17: \x1b[2J")

    assert reason_to_reject(handle) == f"its answer cannot be used ({error.__name__})"
    assert reason_to_reject(lambda: None) is None


def test_what_ends_the_process_is_not_caught() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reason_to_reject(interrupt)


def test_brackets_in_strings_are_not_nesting() -> None:
    name = "[" * 1000 + '\\"{' * 1000
    assert decode(encode(Identity(name=name)), Bounds(), Identity).name == name


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("header announces 10^15 numbers", "its arrays: "),
        ("header announces 10^15 numbers and their bytes", "its arrays: "),
        ("header announces 2^63 bytes", f"announces {2**63} \\+ "),
        ("header longer than a scores table", "announces 10000"),
        ("JSON nested 50,000 deep", "announces 50000 "),
        ("a thousand arrays", "announces "),
        ("length Infinity", "protocol None"),
        ("array named twice", "its header is not JSON"),
    ],
)
def test_what_a_message_announces_is_bounded_before_it_is_read(kind: str, why: str) -> None:
    bounds = Bounds(header=1000, arrays=2, body=1000)
    with pytest.raises(HeadstartError, match=why):
        decode(MESSAGES[kind], bounds, AnyRecord)


class AnyRecord(WireMessage):
    """A record that says nothing: what is wrong with the arrays is seen."""

    KIND = "answer"


def test_nesting_without_end_is_refused_within_the_bounds() -> None:
    for kind in ("JSON nested 50,000 deep", "JSON tables nested 10,000 deep"):
        with pytest.raises(DataError, match="its header is not JSON"):
            decode(MESSAGES[kind], Bounds(), AnyRecord)
    with pytest.raises(DataError, match="recursion limit"):
        decode(MESSAGES["record nested 50,000 deep"], Bounds(), AnyRecord)


def test_more_arrays_than_expected_are_refused() -> None:
    content = RawMessage("answer", {}, dict.fromkeys("abc", np.zeros(1))).to_bytes()
    with pytest.raises(DataError, match="it has 3 arrays; at most 2 are expected"):
        decode(content, Bounds(arrays=2), AnyRecord)


class Replayed:
    """A server with recorded answers of its sites to the first order: a round in milliseconds."""

    def __init__(self, federation: Federation, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, RecordDict] = {}
        grid = LocalGrid(federation.grid.apps, federation.grid.sites)
        session = Session.from_folder(federation.folder, "0")
        record = RunRecord(out, session)
        record.begin(resume=False)
        self.coordinator = Coordinator(grid, session, record)
        self.first = session.state
        chosen = session.choose_clients()
        monkeypatch.setattr(session, "choose_clients", lambda: chosen)  # It compiles every time.
        for name, app in list(grid.apps.items()):
            grid.apps[name] = self._recording(name, app)
        self.coordinator.train_round()
        self.honest = from_records(self.answers[BAD])
        for name in grid.apps:
            grid.apps[name] = self._replaying(name)
        self.without, _ = self.round_with(RecordDict())

    def _recording(self, name: str, app: Any) -> Any:
        def answer(message: Message, context: Context) -> Message:
            reply = app(message, context)
            self.answers[name] = reply.content
            return reply

        return answer

    def _replaying(self, name: str) -> Any:
        return lambda message, context: Message(self.answers[name], reply_to=message)

    def round_with(self, answer: RecordDict) -> tuple[Any, Exchange]:
        """The state after the first round if the bad site answers this."""
        session, record = self.coordinator.session, self.coordinator.record
        session.state, session.round, session.roster.sizes = self.first, 0, {}
        record.evaluations, record.log = [], []
        self.answers[BAD] = answer
        exchange = self.coordinator.train_round()
        assert session.round == 1
        return session.state, exchange


@pytest.fixture(scope="module")
def replayed(
    federation: Federation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replayed]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Replayed(federation, tmp_path_factory.mktemp("replayed") / "run", monkeypatch)


PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"[", b"{", b'"', b"-", b"1e999", b"NaN", b"null", b"9" * 40, b"__metadata__", b"F64"]
    ),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 16), PIECES), min_size=1, max_size=4)


def edited(content: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Each edit: at this share of the length, take some bytes out and put others in."""
    for place, count, piece in edits:
        at = int(place * len(content))
        content = content[:at] + piece + content[at + count :]
    return content


@settings(max_examples=300)
@given(st.sampled_from(["message", "header", "record"]), EDITS)
def test_mutated_bytes_never_end_the_round(
    replayed: Replayed, level: str, edits: list[tuple[float, int, bytes]]
) -> None:
    content = replayed.honest
    header, body = split_header(content)
    if level == "message":
        content = edited(content, edits)
    elif level == "header":
        content = with_header(edited(header, edits), body)
    else:
        table = json.loads(header)
        text = edited(table["__metadata__"]["record"].encode(), edits)
        table["__metadata__"]["record"] = text.decode(errors="replace")
        content = with_header(json.dumps(table).encode(), body)
    state, exchange = replayed.round_with(to_records(content))
    assert {0, 2} <= set(exchange.updates)
    if 1 not in exchange.updates:
        assert exchange.rejected[1]
        for ours, alone in zip(
            jax.tree.leaves(state), jax.tree.leaves(replayed.without), strict=True
        ):
            np.testing.assert_array_equal(ours, alone)
