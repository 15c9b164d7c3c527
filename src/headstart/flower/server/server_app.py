"""Flower's ServerApp: round after round, whatever the sites do, into a run directory.

A round that gets too few answers is tried again; with too few sites the server waits, says so, and
ends after a while with a checkpoint to go on from. The state is saved after every round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from headstart.data.schema import Schema
from headstart.errors import DataError, DivergedError, HeadstartError
from headstart.experiments.configuration import Experiment, read_toml
from headstart.experiments.results import refuse_diverged
from headstart.flower.end_with_parent import end_with_parent
from headstart.flower.federation_config import FederationConfig
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.error_codes import FederationError, SupersededError
from headstart.flower.server.exchange import HeadstartStrategy
from headstart.flower.server.rejection import rejection
from headstart.flower.server.run_record import Ledger, run_id
from headstart.flower.server.session import Session

POLL_SECONDS = 0.25
HELLO_SECONDS = 60.0
HAND_OUT_SECONDS = 30.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What Flower starts; the folder of the federation and of the run come as run configuration."""
    end_with_parent()
    options = context.run_config
    conduct(
        grid,
        Path(str(options["federation"])),
        Path(str(options["out"])),
        resume=bool(options["resume"]),
        hand_out=bool(options["hand-out"]),
    )


def conduct(
    grid: Grid, federation: Path, out: Path, *, resume: bool = False, hand_out: bool = False
) -> None:
    """Train, or with ``hand_out`` only give the finished model to every site that is there."""
    session = read_session(federation, run_id(out, resume=resume or hand_out))
    ledger = Ledger(out, session)
    ledger.begin(resume=resume or hand_out)
    try:
        _Conduct(grid, session, ledger).all(hand_out)
    except SupersededError:
        raise
    except HeadstartError as error:
        ledger.say("failed", why=str(error), kind=type(error).__name__)
        raise


def read_session(folder: Path, run: str) -> Session:
    """A federation's folder as ``headstart federate init`` writes it."""
    federation = FederationConfig.read(folder / "federation.toml")
    table = read_toml(folder / "experiment.toml")
    # Data of their own stay where they are: the table says so instead of naming a source.
    table.setdefault("data", {"path": str(folder.absolute() / "sites")})
    schema = Schema.from_table(json.loads((folder / "schema.json").read_text(encoding="utf-8")))
    return Session(Experiment.from_table(table), schema, federation, run)


class _Conduct:
    """One run over one grid."""

    def __init__(self, grid: Grid, session: Session, ledger: Ledger) -> None:
        self.grid, self.session, self.ledger = grid, session, ledger
        self.names: dict[int, str | None] = {}
        self.strategy = HeadstartStrategy(session, self.connected)

    def all(self, hand_out: bool) -> None:
        self.strategy.summary()
        rounds = self.session.experiment.rounds
        if hand_out and self.session.round < rounds:
            raise FederationError(
                f"there is no trained model yet to hand out: {self.session.round} of {rounds} "
                "rounds are done"
            )
        while self.session.round < rounds:
            self.train()
        if hand_out:
            self._wait(self.session.clients, 1)
            self._wait_a_little()
        else:
            self._wait(range(self.session.roster.known_clients), 1)
        self.last()

    def train(self) -> None:
        """One round, tried again while it gets too few answers."""
        federation, number = self.session.federation, self.session.round
        for attempt in range(federation.retries + 1):
            self._wait(self.session.chosen(), self.strategy.needed)
            begin = time.monotonic()
            messages = self.strategy.configure_train(number + 1, *NOTHING, self.grid)
            replies = self.exchange(messages)
            _, metrics = self.strategy.aggregate_train(number + 1, replies)
            found = self.strategy.exchange
            loss = None if metrics is None else float(metrics["loss"])  # type: ignore[arg-type]
            self.ledger.exchanged(found, number, time.monotonic() - begin, loss)
            fresh = not self.ledger.evaluations or self.ledger.evaluations[-1].round != number
            if fresh:
                self._kept_apart(number, loss)
            if loss is not None:
                self.ledger.save()
                return
            self.ledger.say("again", round=number, attempt=attempt + 1)
            time.sleep(min(2.0**attempt, federation.deadline / 10))
        if found.all_updates_diverged:
            raise DivergedError(
                f"round {number + 1}: every site diverged{self._reasons()}; the step is too large: "
                "lower algorithm.local_lr",
                round=number,
            )
        raise FederationError(
            f"round {number + 1} got {len(found.updates)} usable answers, {self.strategy.needed} "
            f"are needed, {federation.retries + 1} times{self._reasons()}"
        )

    def _reasons(self) -> str:
        """Why answers of the present exchange were rejected, in brackets; nothing if none was."""
        name, rejected = self.session.roster.name, self.strategy.exchange.rejected
        reasons = "; ".join(f"{name(client)} {why}" for client, why in rejected.items())
        return f" ({reasons})" if reasons else ""

    def _kept_apart(self, number: int, loss: float | None) -> None:
        """The scores are of the model before this round: its loss belongs to the next record."""
        held = self.ledger.log
        newest = held[-1:] if loss is not None else []
        self.ledger.log = held[: len(held) - len(newest)]
        found = self.strategy.exchange
        if loss is not None:  # Of a round that is tried again, the next attempt decides.
            self._refuse_divergence_of_all(found.scores, number)
        if found.scores:
            self.ledger.evaluated(number, self.session.scores_from(found.scores, found.steps))
        self.ledger.log += newest

    def _refuse_divergence_of_all(self, usable: Iterable[int], number: int) -> None:
        """One site may diverge; if no site that trains has a usable score, training has."""
        session, found = self.session, self.strategy.exchange
        known = session.roster.known_clients
        if any(client < known for client in usable):
            return
        diverged = {c: sums for c, sums in found.diverged.items() if c < known}
        if diverged:
            scores = session.scores_from(diverged, found.steps)
            steps = session.experiment.evaluation.adapt_steps
            refuse_diverged(scores, session.roster, steps, number)

    def last(self) -> None:
        """Scores after 0, 1, 2 … steps; every site keeps the start and its own model.

        Scores of an earlier last exchange stay for the sites that are not there this time.
        """
        begin = time.monotonic()
        messages = self.strategy.configure_evaluate(self.session.round, *NOTHING, self.grid)
        replies = self.exchange(messages)
        self.strategy.aggregate_evaluate(self.session.round, replies)
        found = self.strategy.exchange
        self.ledger.exchanged(found, self.session.round, time.monotonic() - begin, None)
        self.ledger.last.update(found.scores)
        for client in found.diverged:
            self.ledger.last.pop(client, None)
        self._refuse_divergence_of_all(self.ledger.last, self.session.round)
        if not any(c < self.session.roster.known_clients for c in self.ledger.last):
            raise FederationError(
                f"no site that trained gave a usable answer to the last evaluation{self._reasons()}"
            )
        scores = self.session.scores_from(self.ledger.last, found.steps)
        evaluations = self.ledger.evaluations
        if evaluations and evaluations[-1].round == self.session.round:
            evaluations.pop()
        self.ledger.evaluated(self.session.round, scores)
        self.ledger.save()
        self.ledger.finish(scores)

    def connected(self, grid: Grid) -> Mapping[int, int]:
        """The node of every site that is there now; strangers are left alone."""
        nodes = {node.node_id: node.name for node in grid.get_nodes()}
        nameless = [n for n, name in nodes.items() if not name and n not in self.names]
        self._ask_names(nameless)
        numbers = {name: number for number, name in enumerate(self.session.roster.names)}
        found: dict[int, int] = {}
        for node, registered in nodes.items():
            name = registered or self.names.get(node)
            if name in numbers:
                found.setdefault(numbers[name], node)
        return dict(sorted(found.items()))

    def _ask_names(self, nodes: list[int]) -> None:
        """Only a federation without node keys has nodes the server has no name for."""
        if not nodes or not self.session.federation.insecure:
            return
        hello = wire.to_records(wire.parcel({"hello": True}, {}))
        messages = [Message(hello, dst_node_id=n, message_type=MessageType.QUERY) for n in nodes]
        for reply in self.exchange(messages, HELLO_SECONDS):
            node = reply.metadata.src_node_id
            why = rejection(self._take_name, node, reply)
            if why is not None:
                self.names[node] = None
                self.ledger.notice(
                    f"node {node} does not say which site it is and is not used: {why}"
                )

    def _take_name(self, node: int, reply: Message) -> None:
        """A node that reports an error is asked again the next time."""
        if reply.has_error():
            return
        name = wire.from_records(reply.content, self.session.answer_bounds).text.get("name")
        if not isinstance(name, str):
            raise DataError("its answer holds no name")
        self.names[node] = name

    def _wait(self, clients: Iterable[int], needed: int) -> None:
        """Until enough of these sites are there; a clear end if they do not come."""
        wanted, limit = list(clients), self.session.federation.wait
        begin, said = time.monotonic(), False
        while True:
            there = [c for c in self.connected(self.grid) if c in wanted]
            if len(there) >= min(needed, len(wanted)):
                return
            absent = [self.session.roster.name(c) for c in wanted if c not in there]
            if not said:
                self.ledger.say("waiting", needed=needed, there=len(there), absent=absent)
                said = True
            if time.monotonic() - begin > limit:
                raise FederationError(
                    f"{len(there)} of the {needed} sites needed were there after waiting "
                    f"{limit:g} s; absent: {', '.join(absent)}"
                )
            time.sleep(min(1.0, limit / 10))

    def _wait_a_little(self) -> None:
        """For the rest of the sites, but not long: who is not there now can be served later."""
        until = time.monotonic() + min(HAND_OUT_SECONDS, self.session.federation.wait)
        while time.monotonic() < until:
            if len(self.connected(self.grid)) == len(self.session.clients):
                return
            time.sleep(0.5)

    def exchange(self, messages: Iterable[Message], deadline: float | None = None) -> list[Message]:
        """Send, and collect what comes back until the deadline, looking more often than Flower."""
        messages = list(messages)
        if not messages:
            return []
        deadline = deadline or self.session.federation.deadline
        clients = [self.strategy.client_of_node.get(m.metadata.dst_node_id, -1) for m in messages]
        ids = list(self.grid.push_messages(messages))
        self.strategy.client_of_message = {
            sent: client for sent, client in zip(ids, clients, strict=True) if sent and client >= 0
        }
        waiting, replies = {i for i in ids if i}, []
        until = time.monotonic() + deadline
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                replies.append(reply)
            if waiting:
                time.sleep(POLL_SECONDS)
        return replies


NOTHING = (ArrayRecord(), ConfigRecord())
"""Flower passes the model round here; ours is in the session."""
