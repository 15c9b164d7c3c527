"""One exchange with the sites: send orders, then receive and check the answers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flwr.app import Error, Message, MessageType

from headstart.flower.protocol._encoding import encode
from headstart.flower.protocol._error_codes import CODES, NO_ANSWER_IN_TIME, NOT_CONNECTED, explain
from headstart.flower.protocol._flower_records import from_records
from headstart.flower.server._answer_checks import AnswerChecks
from headstart.flower.server._rejection import reason_to_reject
from headstart.flower.server._session import Session, Update
from headstart.flower.server._site_links import Parcel, SiteLinks
from headstart.records._federation_events import SiteScores


@dataclass
class Exchange:
    """The result of one exchange; sites are numbers."""

    steps: Sequence[int] = ()
    """The numbers of adaptation steps to score; empty if no scores were requested."""
    asked: dict[int, bool] = field(default_factory=dict)
    """Sites that received an order, and whether they were asked to train."""
    missing: list[int] = field(default_factory=list)
    """Sites that were to be asked but were not connected."""
    updates: dict[int, Update] = field(default_factory=dict)
    scores: dict[int, SiteScores] = field(default_factory=dict)
    diverged: dict[int, SiteScores] = field(default_factory=dict)
    """Scores of models that are not finite; they are left out of the evaluation."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Sites whose answer was not used, with the reason."""
    diverged_updates: set[int] = field(default_factory=set)
    """Sites that report an update that is not finite, or whose update has an absurd norm."""
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def silent(self) -> list[int]:
        """Sites that were asked but did not answer in time."""
        heard = {*self.updates, *self.scores, *self.diverged, *self.rejected}
        return [client for client in self.asked if client not in heard]

    @property
    def all_updates_diverged(self) -> bool:
        """Whether the update of every site that was asked to train diverged."""
        training = {client for client, trains in self.asked.items() if trains}
        return bool(training) and training <= self.diverged_updates


class Exchanges:
    """Carries out the exchanges of one session."""

    def __init__(self, session: Session, links: SiteLinks) -> None:
        self.session, self.links = session, links
        self.checks = AnswerChecks(session)

    def train(self) -> Exchange:
        """Have the chosen sites train; when an evaluation is due, all sites score as well."""
        session = self.session
        steps = sorted({0, session.experiment.evaluation.adapt_steps})
        due, chosen = session.evaluation_due(), session.choose_clients()
        clients = [client for client in session.clients if due or client in chosen]
        exchange = self._exchange(clients, chosen, steps if due else [], keep=False)
        for client, why in self.checks.find_outliers(list(exchange.updates.values())).items():
            del exchange.updates[client]
            exchange.rejected[client] = why
            exchange.diverged_updates.add(client)
        return exchange

    def finish(self) -> Exchange:
        """Have every site score after 0, 1, 2 … steps, and keep the start and its own model."""
        steps = list(range(self.session.most_steps + 1))
        return self._exchange(list(self.session.clients), [], steps, keep=True)

    def _exchange(
        self, clients: Sequence[int], training: Sequence[int], steps: Sequence[int], *, keep: bool
    ) -> Exchange:
        session, nodes = self.session, self.links.connected()
        exchange, parcels = Exchange(steps), []
        for client in clients:
            if client in nodes:
                order = session.order(client, train=client in training, steps=steps, keep=keep)
                kind = MessageType.EVALUATE if keep else MessageType.TRAIN
                parcels.append(Parcel(client, nodes[client], encode(order), kind))
                exchange.asked[client] = client in training
            elif keep or client < session.roster.known_clients:  # Late sites may come at the end.
                exchange.missing.append(client)
        exchange.bytes_down = sum(len(parcel.content) for parcel in parcels)
        deadline = session.federation.deadline
        replies = self.links.exchange(parcels, group=str(session.round), deadline=deadline)
        for client, reply in replies:
            why = reason_to_reject(self._take, exchange, client, reply)
            if why is not None:
                exchange.rejected[client] = why
        return exchange

    def _take(self, exchange: Exchange, client: int, reply: Message) -> None:
        """Use one answer as a whole, or nothing of it if any part is wrong."""
        if reply.has_error():
            _take_error(exchange, client, reply.error)
            return
        content = from_records(reply.content)
        answer = self.checks.read(content)
        exchange.bytes_up += len(content)
        update = self.checks.update(client, answer) if exchange.asked[client] else None
        scores = self.checks.scores(answer) if exchange.steps else None
        self.session.roster.sizes[client] = answer.sizes
        if update is not None:
            exchange.updates[client] = update
        if scores is not None:
            diverged = self.checks.has_diverged(scores)
            (exchange.diverged if diverged else exchange.scores)[client] = scores


def _take_error(exchange: Exchange, client: int, error: Error) -> None:
    if error.code in NO_ANSWER_IN_TIME:
        return  # It counts as silent.
    if error.code in NOT_CONNECTED:
        del exchange.asked[client]
        exchange.missing.append(client)
    else:
        exchange.rejected[client] = explain(error.code, _class_name(error.reason))
    if error.code == CODES["DivergedError"]:
        exchange.diverged_updates.add(client)


def _class_name(reason: str | None) -> str:
    """Return what an error says of itself if it looks like the name of a class, else "Error"."""
    return reason if reason and reason.isidentifier() and len(reason) < 60 else "Error"
