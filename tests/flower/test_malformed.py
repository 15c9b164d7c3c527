"""Malformed answers: whatever one site sends, the others finish as if it had not answered."""

from __future__ import annotations

import io
import json
import shutil
import struct
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
from flower.test_faults import events_of, rounds_of, same_model
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.store import open_store, write_store
from headstart.errors import DataError, DivergedError
from headstart.experiments import load_run
from headstart.experiments.configuration import Experiment
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Parcel
from headstart.flower.protocol.error_codes import FederationError
from headstart.flower.server.rejection import LONGEST_REASON, rejection
from headstart.flower.server.run_record import Ledger
from headstart.flower.server.server_app import _Conduct, conduct, read_session
from headstart.records import ClientCounts

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


def npy(header: str, body: bytes = b"") -> bytes:
    """An NPY file whose header says anything."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def npz(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, array)
    return buffer.getvalue()


def announcing(shape: str, dtype: str = "<f4") -> bytes:
    return npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}", b"\0" * 16)


def stream(index: bytes, body: bytes = b"", *, lengths: tuple[int, int] | None = None) -> bytes:
    """A parcel as it is sent, with any index, and lengths that may be wrong."""
    sizes = lengths or (len(index), len(body))
    return wire.LENGTH.pack(*sizes) + index + body


def as_message(content: bytes) -> bytes:
    return wire.to_bytes(np.frombuffer(content, np.uint8))


MESSAGES: dict[str, bytes] = {
    "empty": b"",
    "zip where NPY is expected": npz(np.zeros(3)),
    "header announces 10^15 numbers": announcing(f"({HUGE},)"),
    "header announces 10^15 numbers of a column": announcing(f"({HUGE}, 1)", "<f8"),
    "header with a negative length": announcing("(-4,)"),
    "header with a hundred axes": announcing(f"({'1, ' * 100})"),
    "header with an impossible empty shape": announcing(f"(0, {10**30})"),
    "header nested deeply": npy("(" * 90 + ")" * 90),
    "header that is code": npy("__import__('os').abort()"),
    "header of a structured type": announcing("(1,)", "f4,f4"),
    "header of an item of 10^15 bytes": announcing("(1,)", f"|V{HUGE}"),
    "header of objects": announcing("(1,)", "|O"),
    "NPY of version 9": b"\x93NUMPY\x09\x00" + b"\0" * 30,
    "numbers where bytes are expected": wire.to_bytes(np.arange(30.0)),
    "a number where bytes are expected": wire.to_bytes(np.array(3, np.uint8)),
    "no bytes": as_message(b""),
    "text announces 2^63 bytes": as_message(stream(b"[{}, []]", lengths=(2**63, 0))),
    "body announces 2^63 bytes": as_message(stream(b"[{}, []]", lengths=(8, 2**63))),
    "text longer than a scores table": as_message(stream(b'[{"a": "' + b"a" * 10**6 + b'"}, []]')),
    "JSON nested 50,000 deep": as_message(stream(b"[" * 50_000)),
    "JSON tables nested 10,000 deep": as_message(stream(b'{"a":' * 10_000)),
    "JSON in UTF-16": as_message(stream("[{}, []]".encode("utf-16"))),
    "text that is not JSON": as_message(stream(b"\xff\xfe\x00")),
    "text that is a list": as_message(stream(b"[[], []]")),
    "text without an index": as_message(stream(b'{"round": 0}')),
    "index that is a table": as_message(stream(b'[{}, {"a": 0}]')),
    "index that is a number": as_message(stream(b"[{}, 7]")),
    "length Infinity": as_message(stream(b'[{}, [["a", Infinity]]]')),
    "length NaN": as_message(stream(b'[{}, [["a", NaN]]]')),
    "length below zero": as_message(stream(b'[{}, [["a", -1], ["b", 1]]]')),
    "length that is a list": as_message(stream(b'[{}, [["a", [1]]]]')),
    "length of 5,000 digits": as_message(stream(b'[{}, [["a", ' + b"9" * 5000 + b"]]]")),
    "name that is a list": as_message(stream(b"[{}, [[[], 0]]]")),
    "array named twice": as_message(stream(b'[{}, [["a", 0], ["a", 0]]]')),
    "a thousand arrays": as_message(
        stream(json.dumps([{}, [[str(n), 0] for n in range(1000)]]).encode())
    ),
    "body shorter than its arrays": as_message(stream(b'[{}, [["a", 9]]]', b"abc")),
    "body longer than its arrays": as_message(stream(b'[{}, [["a", 1]]]', b"abc")),
}


# Answers that are parcels, with something impossible in them.


def with_text(**changes: Any) -> Callable[[Parcel], Parcel]:
    return lambda answer: Parcel({**answer.text, **changes}, answer.arrays)


def with_arrays(content: bytes) -> Callable[[Parcel], Parcel]:
    """Only in answers that have arrays; those of the last evaluation have none."""
    return lambda answer: Parcel(answer.text, dict.fromkeys(answer.arrays, content))


def with_sums(number: Any) -> Callable[[Parcel], Parcel]:
    return with_text(scores={"sums": [[number, 0.0, 0.0]] * 4})


def nested(depth: int) -> Any:
    value: Any = 0.0
    for _ in range(depth):
        value = [value]
    return value


ANSWERS: dict[str, Callable[[Parcel], Parcel]] = {
    "train_examples=10^12": with_text(train_examples=10**12),
    "train_examples=10^30": with_text(train_examples=10**30),
    "test_examples=10^30": with_text(test_examples=10**30),
    "test_examples=2^31": with_text(test_examples=2**31),
    "classes=10^12": with_text(classes=10**12),
    "classes=11 of 10": with_text(classes=11),
    "train_examples true": with_text(train_examples=True),
    "train_examples as text": with_text(train_examples="30"),
    "sizes missing": lambda answer: Parcel({"round": 0}, answer.arrays),
    "scores missing": with_text(scores=None),
    "scores as text": with_text(scores="good"),
    "scores as a number": with_text(scores=3),
    "score sums of 1e308": with_sums(1e308),
    "score sums of 10^400": with_sums(10**400),
    "score sums that are words": with_sums("low"),
    "score sums nested": with_sums(nested(20)),
    "score sums below zero": with_sums(-1.0),
    "score sums ragged": with_text(scores={"sums": [[0.0], [0.0, 0.0]]}),
    "score sums empty": with_text(scores={"sums": []}),
    "more broken examples than there are": with_text(scores={"sums": [[0.0, 0.0, 1e300]] * 4}),
}
UPDATES: dict[str, Callable[[Parcel], Parcel]] = {
    "arrays as zip": with_arrays(npz(np.zeros(3))),
    "arrays that announce 10^15 numbers": with_arrays(announcing(f"({HUGE},)")),
    "arrays that announce an impossible shape": with_arrays(announcing(f"(0, {10**30})")),
    "arrays that are empty": with_arrays(b""),
    "weight as a list": with_text(weight=[1.0]),
    "weight of 4,000 digits": with_text(weight=10**4000),
    "loss of 1e308": with_text(loss=1e308),
    "loss as a table": with_text(loss={"a": 1}),
    "round as a list": with_text(round=[0]),
    "a control sequence as the round": with_text(round="\x1b[2J" * 500),
}


def raw_app(honest: Any, content: bytes) -> Any:
    def answer(message: Message, context: Context) -> Message:
        honest(message, context)
        return Message(records_of(content), reply_to=message)

    return answer


def records_of(content: bytes) -> RecordDict:
    array = Array("uint8", (len(content),), "numpy.ndarray", content)
    return RecordDict({wire.PARCEL: ArrayRecord({wire.PARCEL: array})})


def changing_app(honest: Any, change: Callable[[Parcel], Parcel]) -> Any:
    def answer(message: Message, context: Context) -> Message:
        answer = wire.from_records(honest(message, context).content)
        return Message(wire.to_records(change(answer)), reply_to=message)

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
    assert load_run(run).summary.evaluated_clients == ClientCounts(known=2, new=1)


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
    names = {"no name": {}, "a list as the name": {"name": [BAD]}}
    if kind in MESSAGES:
        grid.apps[BAD] = raw_app(grid.apps[BAD], MESSAGES[kind])
    else:
        grid.apps[BAD] = changing_app(grid.apps[BAD], lambda answer: Parcel(names[kind], {}))
    conduct(grid, federation.folder, run)
    notices = [e["text"] for e in events_of(run) if e["event"] == "notice"]
    assert len(notices) == 1 and "does not say which site it is" in notices[0]
    assert_only_the_others_count(federation, run)


def diverged(answer: Parcel) -> Parcel:
    if "scores" not in answer.text:
        return answer
    sums = [[0.0, 0.0, 1.0] for _ in answer.text["scores"]["sums"]]
    return with_text(scores={"sums": sums})(answer)


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
    assert load_run(run).summary.evaluated_clients == ClientCounts(known=2, new=1)
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
LINEAR = Experiment.from_table({**TABLE, **ONE_ROUND, "model": {"name": "logistic"}})


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
        grid.apps[name] = only_when("evaluate", grid.apps[name], with_text(classes=10**12))
    with pytest.raises(FederationError, match=r"no site that trained gave .*site-2 states sizes"):
        conduct(grid, federation.folder, tmp_path / "run")


def only_when(kind: str, honest: Any, change: Callable[[Parcel], Parcel]) -> Any:
    bad = changing_app(honest, change)

    def answer(message: Message, context: Context) -> Message:
        return (bad if message.metadata.message_type == kind else honest)(message, context)

    return answer


def test_a_rejected_answer_changes_nothing_the_server_knows(
    federation: Federation, tmp_path: Path
) -> None:
    """Also not the sizes, which are right in it and stand before what is wrong."""
    change = with_text(test_examples=7, scores="good")
    with federation.sites(BAD, only_when("evaluate", federation.grid.apps[BAD], change)):
        conduct(federation.grid, federation.folder, tmp_path / "run")
    honest = load_run(federation.together).clients[1].test_examples
    session = read_session(federation.folder, "check")
    found = Ledger(tmp_path / "run", session).newest()
    assert found is not None
    assert found.federation is not None
    assert found.federation.sizes[1].test_examples == honest != 7


@pytest.mark.parametrize("error", [MemoryError, RecursionError, OverflowError, AttributeError])
def test_any_exception_is_a_reason_to_reject(error: type[Exception]) -> None:
    def handle() -> None:
        raise error("row 17: \x1b[2J")

    assert rejection(handle) == f"its answer cannot be used ({error.__name__})"
    assert rejection(lambda: None) is None


def test_what_ends_the_process_is_not_caught() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rejection(interrupt)


def test_brackets_in_strings_are_not_nesting() -> None:
    text = {"name": "[" * 1000 + '\\"{' * 1000}
    assert wire.from_records(wire.to_records(wire.parcel(text, {}))).text == text
    with pytest.raises(DataError, match="nested more than 32 levels"):
        wire.from_records(wire.to_records(wire.parcel({"a": nested(40)}, {})))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("header announces 10^15 numbers", f"announces {4 * HUGE} bytes; 16 follow"),
        ("header of an item of 10^15 bytes", "cannot be read"),
        ("text announces 2^63 bytes", f"announces {2**63} \\+ 0 bytes; at most 1000 \\+ 1000"),
        ("body announces 2^63 bytes", f"announces 8 \\+ {2**63} bytes"),
        ("text longer than a scores table", "announces 1000015 "),
        ("JSON nested 50,000 deep", "announces 50000 "),
        ("a thousand arrays", "announces "),
        ("length Infinity", "not a list of names and lengths"),
        ("array named twice", "not a list of names and lengths"),
    ],
)
def test_what_a_message_announces_is_bounded_before_it_is_read(kind: str, why: str) -> None:
    bounds = wire.Bounds(text=1000, arrays=2, body=1000)
    with pytest.raises(DataError, match=why):
        wire.from_records(records_of(MESSAGES[kind]), bounds)


def test_more_arrays_than_expected_are_refused() -> None:
    records = wire.to_records(wire.parcel({}, dict.fromkeys("abc", np.zeros(1))))
    with pytest.raises(DataError, match="it has 3 arrays; at most 2 are expected"):
        wire.from_records(records, wire.Bounds(arrays=2))


class Replayed:
    """A server with recorded answers of its sites to the first order: a round in milliseconds."""

    def __init__(self, federation: Federation, out: Path) -> None:
        self.answers: dict[str, RecordDict] = {}
        grid = LocalGrid(federation.grid.apps, federation.grid.sites)
        session = read_session(federation.folder, "0")
        ledger = Ledger(out, session)
        ledger.begin(resume=False)
        self.conduct = _Conduct(grid, session, ledger)
        self.first = session.state
        session.chosen = lambda: [0, 1, 2]  # type: ignore[method-assign]  # It compiles every time.
        for name, app in list(grid.apps.items()):
            grid.apps[name] = self._recording(name, app)
        self.conduct.train()
        self.honest = self.answers[BAD].array_records[wire.PARCEL][wire.PARCEL].data
        for name in grid.apps:
            grid.apps[name] = self._replaying(name)
        self.without = self.state_with(RecordDict())

    def _recording(self, name: str, app: Any) -> Any:
        def answer(message: Message, context: Context) -> Message:
            reply = app(message, context)
            self.answers[name] = reply.content
            return reply

        return answer

    def _replaying(self, name: str) -> Any:
        return lambda message, context: Message(self.answers[name], reply_to=message)

    def state_with(self, answer: RecordDict) -> Any:
        """The state after the first round if the bad site answers this."""
        session, ledger = self.conduct.session, self.conduct.ledger
        session.state, session.round, session.roster.sizes = self.first, 0, {}
        ledger.evaluations, ledger.log = [], []
        self.answers[BAD] = answer
        self.conduct.train()
        assert session.round == 1
        return session.state


@pytest.fixture(scope="module")
def replayed(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    return Replayed(federation, tmp_path_factory.mktemp("replayed") / "run")


PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"[", b"{", b'"', b"-", b"1e999", b"NaN", b"null", b"9" * 40, b"\x93NUMPY"]),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 16), PIECES), min_size=1, max_size=4)


def edited(content: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Each edit: at this share of the length, take some bytes out and put others in."""
    for place, count, piece in edits:
        at = int(place * len(content))
        content = content[:at] + piece + content[at + count :]
    return content


@settings(max_examples=300)
@given(st.sampled_from(["message", "stream", "text"]), EDITS)
def test_mutated_bytes_never_end_the_round(
    replayed: Replayed, level: str, edits: list[tuple[float, int, bytes]]
) -> None:
    content = replayed.honest
    if level == "message":
        content = edited(content, edits)
    else:
        parcel = wire.from_bytes(content).tobytes()
        length, body = wire.LENGTH.unpack_from(parcel)
        text, rest = np.split(np.frombuffer(parcel[wire.LENGTH.size :], np.uint8), [length])
        if level == "text":
            new = edited(text.tobytes(), edits)
            parcel = wire.LENGTH.pack(len(new), body) + new + rest.tobytes()
        else:
            parcel = edited(parcel, edits)
        content = as_message(parcel)
    state = replayed.state_with(records_of(content))
    exchange = replayed.conduct.strategy.exchange
    assert {0, 2} <= set(exchange.updates)
    if 1 not in exchange.updates:
        assert exchange.rejected[1]
        for ours, alone in zip(
            jax.tree.leaves(state), jax.tree.leaves(replayed.without), strict=True
        ):
            np.testing.assert_array_equal(ours, alone)
