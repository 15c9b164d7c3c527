"""The one Strategy, for every algorithm of the contract: it serialises, calls, aggregates.

Flower's five methods, and no mathematics: orders come from the session, answers go to it.
``configure_train`` also asks for scores when an evaluation is due, of the sites that do not train
as well; ``configure_evaluate`` is the last exchange, in which every site keeps its own model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.error_codes import CODES, NO_ANSWER_IN_TIME, NOT_THERE, meaning
from headstart.flower.server.rejection import rejection
from headstart.flower.server.session import Session, Update
from headstart.parts import merge_frozen
from headstart.records.tensor_files import named_arrays


@dataclass
class Exchange:
    """What became of one round of messages."""

    asked: dict[int, bool] = field(default_factory=dict)
    """Client: whether it was to train."""
    missing: list[int] = field(default_factory=list)
    """Clients whose turn it was, but who were not connected."""
    updates: dict[int, Update] = field(default_factory=dict)
    scores: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    diverged: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Client: scores of a model that is not finite; they are left out of the evaluation."""
    steps: Sequence[int] = ()
    rejected: dict[int, str] = field(default_factory=dict)
    """Client: why its answer was not used."""
    diverged_updates: set[int] = field(default_factory=set)
    """Clients whose update is not finite, as they report themselves, or of absurd norm."""
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def silent(self) -> list[int]:
        """Asked, but no answer came in time."""
        heard = {*self.updates, *self.scores, *self.diverged, *self.rejected}
        return [client for client in self.asked if client not in heard]

    @property
    def all_updates_diverged(self) -> bool:
        """Whether every site that was to train is one of them."""
        training = {client for client, trains in self.asked.items() if trains}
        return bool(training) and training <= self.diverged_updates


class HeadstartStrategy(Strategy):
    """Drives any algorithm of the contract."""

    def __init__(self, session: Session, connected: Callable[[Grid], Mapping[int, int]]) -> None:
        """``connected`` gives the node of every site (by number) that can be reached now."""
        self.session = session
        self.connected = connected
        self.exchange = Exchange()
        self.client_of_node: dict[int, int] = {}
        self.client_of_message: dict[str, int] = {}
        """Filled by who sends the messages: the answer to one that could not be delivered does not
        come from the node it was sent to."""

    def summary(self) -> None:
        """One line in Flower's log."""
        session = self.session
        log(
            INFO, "Headstart %s: %d of %d sites a round, %d rounds",
            session.algorithm.name, session.active, session.roster.known_clients,
            session.experiment.rounds,
        )  # fmt: skip

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Training orders for the chosen sites; when due, all sites are to score as well."""
        session = self.session
        options = session.experiment.evaluation
        due = session.evaluation_due()
        steps = sorted({0, options.adapt_steps}) if due else []
        chosen = session.chosen()
        everyone = [c for c in session.clients if due or c in chosen]
        return self._orders(grid, MessageType.TRAIN, everyone, chosen, steps, keep=False)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every answer; the mean of the good ones makes the next state.

        With fewer than the federation's minimum the state stays, and the caller tries again.
        """
        self._collect(replies)
        exchange, session = self.exchange, self.session
        for client, why in session.norms_too_large(list(exchange.updates.values())).items():
            del exchange.updates[client]
            exchange.rejected[client] = why
            exchange.diverged_updates.add(client)
        if len(exchange.updates) < self.needed:
            return None, None
        loss = session.advance(list(exchange.updates.values()))
        model = named_arrays(merge_frozen(session.algorithm.model(session.state), session.parts))
        return wire.array_record(model), MetricRecord({"loss": loss})

    @property
    def needed(self) -> int:
        """Answers that a round must have."""
        return min(self.session.federation.min_sites, self.session.active)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The last exchange: every site scores, and keeps the start and its own model."""
        if self.session.round < self.session.experiment.rounds:
            return []
        steps = list(range(self.session.most_steps + 1))
        return self._orders(
            grid, MessageType.EVALUATE, list(self.session.clients), [], steps, keep=True
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Only collects: what is made of the scores, the caller decides."""
        self._collect(replies)
        return MetricRecord({"sites": len(self.exchange.scores)})

    def _orders(
        self, grid: Grid, kind: str, clients: Sequence[int], training: Sequence[int],
        steps: Sequence[int], *, keep: bool,
    ) -> list[Message]:  # fmt: skip
        nodes = self.connected(grid)
        exchange = self.exchange = Exchange(steps=steps)
        # Who joins later is not missed before the end.
        known = self.session.roster.known_clients
        exchange.missing = [c for c in clients if c not in nodes and (keep or c < known)]
        self.client_of_node = {node: client for client, node in nodes.items()}
        self.client_of_message = {}
        messages = []
        for client in clients:
            if client not in nodes:
                continue
            order = self.session.order(client, train=client in training, steps=steps, keep=keep)
            exchange.asked[client] = client in training
            exchange.bytes_down += order.size
            messages.append(
                Message(
                    wire.to_records(order), dst_node_id=nodes[client], message_type=kind,
                    group_id=str(self.session.round), ttl=self.session.federation.deadline,
                )
            )  # fmt: skip
        return messages

    def _collect(self, replies: Iterable[Message]) -> None:
        """Answers by client; a bad one is rejected with its reason and spoils nothing."""
        for message in replies:
            about = message.metadata
            client = self.client_of_message.get(
                about.reply_to_message_id, self.client_of_node.get(about.src_node_id)
            )
            if client is None or client not in self.exchange.asked:
                continue
            why = rejection(self._take, client, message)
            if why is not None:
                self.exchange.rejected[client] = why

    def _note_error(self, client: int, error: Error) -> None:
        if error.code in NO_ANSWER_IN_TIME:
            return  # It counts as silent.
        if error.code in NOT_THERE:
            del self.exchange.asked[client]
            self.exchange.missing.append(client)
        else:
            self.exchange.rejected[client] = meaning(error.code, _class_name(error.reason))
        if error.code == CODES["DivergedError"]:
            self.exchange.diverged_updates.add(client)

    def _take(self, client: int, message: Message) -> None:
        """Use one answer, all of it or, if any part is wrong, nothing."""
        if message.has_error():
            self._note_error(client, message.error)
            return
        session, exchange = self.session, self.exchange
        answer = wire.from_records(message.content, session.answer_bounds)
        exchange.bytes_up += answer.size
        sizes = session.sizes_from(answer)
        trains, scores = exchange.asked[client], bool(exchange.steps)
        update = session.update_from(client, answer, sizes) if trains else None
        sums = session.sums_from(answer, sizes) if scores else None
        session.roster.sizes[client] = sizes
        if update is not None:
            exchange.updates[client] = update
        if sums is not None:
            kept = exchange.diverged if session.has_diverged(sums) else exchange.scores
            kept[client] = {"sums": sums.tolist()}


def _class_name(reason: str | None) -> str:
    """What an error says of itself, as long as it looks like a class and carries nothing else."""
    return reason if reason and reason.isidentifier() and len(reason) < 60 else "Error"
