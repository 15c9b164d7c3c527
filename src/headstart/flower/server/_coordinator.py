"""A whole run on the server: rounds, retries, waiting for sites, evaluations, the last exchange.

A round with too few answers is repeated. With too few sites the server waits, says so, and ends
after a while with a checkpoint to resume from. The state is saved after every round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from logging import INFO
from pathlib import Path

from flwr.common.logger import log
from flwr.serverapp import Grid

from headstart._experiments.results import refuse_diverged
from headstart.errors import DivergedError, HeadstartError
from headstart.flower._federation_errors import FederationError, SupersededError
from headstart.flower.server._exchange import Exchange, Exchanges
from headstart.flower.server._run_record import RunRecord, read_run_id
from headstart.flower.server._session import Session
from headstart.flower.server._site_links import SiteLinks
from headstart.records._federation_events import RoundRepeated, RunFailed, WaitingForSites

DISTRIBUTION_SECONDS = 30.0


def conduct(
    grid: Grid, federation: Path, out: Path, *, resume: bool = False, distribute: bool = False,
    wait_for_all: bool = False,
) -> None:  # fmt: skip
    """Train across the sites of a federation's folder; results go to ``out``.

    With ``distribute`` nothing is trained: every connected site receives the finished model. With
    ``wait_for_all`` every round waits for all sites that take part in it, not only for
    ``min_sites`` of them.
    """
    continued = resume or distribute
    session = Session.from_folder(federation, read_run_id(out, resume=continued))
    record = RunRecord(out, session)
    record.begin(resume=continued)
    try:
        coordinator = Coordinator(grid, session, record, wait_for_all=wait_for_all)
        if distribute:
            coordinator.distribute()
        else:
            coordinator.run()
    except SupersededError:
        raise
    except HeadstartError as error:
        record.say(RunFailed(why=str(error), kind=type(error).__name__))
        raise


class Coordinator:
    """One run over one grid."""

    def __init__(
        self, grid: Grid, session: Session, record: RunRecord, *, wait_for_all: bool = False
    ) -> None:
        self.session, self.record, self.wait_for_all = session, record, wait_for_all
        insecure = session.federation.insecure
        self.links = SiteLinks(grid, session.roster.names, insecure=insecure, notice=record.notice)
        self.exchanges = Exchanges(session, self.links)

    def run(self) -> None:
        """Train all rounds that are left, then have every site score and keep its model."""
        session = self.session
        log(
            INFO, "Headstart %s: %d of %d sites a round, %d rounds",
            session.algorithm.name, session.active, session.roster.known_clients,
            session.experiment.rounds,
        )  # fmt: skip
        while session.round < session.experiment.rounds:
            self.train_round()
        everyone = session.clients if self.wait_for_all else range(session.roster.known_clients)
        self._wait_for(everyone, 1)
        self.finish()

    def distribute(self) -> None:
        """Send the finished model to every connected site."""
        done, rounds = self.session.round, self.session.experiment.rounds
        if done < rounds:
            raise FederationError(
                f"there is no trained model yet to distribute: {done} of {rounds} rounds are done"
            )
        self._wait_for(self.session.clients, 1)
        self._wait_a_little_for_the_rest()
        self.finish()

    def train_round(self) -> Exchange:
        """Train one round; repeat it while it gets too few answers."""
        session, number = self.session, self.session.round
        federation, needed = session.federation, session.needed_answers
        for attempt in range(federation.retries + 1):
            self._wait_for(self._taking_part(), needed)
            begin = time.monotonic()
            exchange = self.exchanges.train()
            updates, loss = list(exchange.updates.values()), None
            if len(updates) >= needed:
                loss = session.advance(updates)
            self.record.add_exchange(exchange, number, time.monotonic() - begin, loss)
            if not self.record.has_evaluation(number):
                self._evaluate_before_round(exchange, number, loss)
            if loss is not None:
                self.record.save()
                return exchange
            self.record.say(RoundRepeated(round=number, attempt=attempt + 1))
            time.sleep(min(2.0**attempt, federation.deadline / 10))
        if exchange.all_updates_diverged:
            raise DivergedError(
                f"round {number + 1}: every site diverged{self._reasons(exchange)}; the step is "
                "too large: lower algorithm.local_lr",
                round=number,
            )
        raise FederationError(
            f"round {number + 1} got {len(exchange.updates)} usable answers, {needed} are needed, "
            f"{federation.retries + 1} times{self._reasons(exchange)}"
        )

    def finish(self) -> None:
        """Have every site score after 0, 1, 2 … steps and keep its model; write the results.

        Scores of an earlier last exchange stay for the sites that are not connected this time.
        """
        session, record, begin = self.session, self.record, time.monotonic()
        exchange = self.exchanges.finish()
        record.add_exchange(exchange, session.round, time.monotonic() - begin, None)
        record.last.update(exchange.scores)
        for client in exchange.diverged:
            record.last.pop(client, None)
        self._refuse_divergence_of_all(record.last, exchange, session.round)
        if not any(client < session.roster.known_clients for client in record.last):
            raise FederationError(
                "no site that trained gave a usable answer to the last evaluation"
                + self._reasons(exchange)
            )
        scores = session.scores(record.last, exchange.steps)
        record.replace_evaluation(session.round, scores)
        record.save()
        record.finish(scores)

    def _taking_part(self) -> Sequence[int]:
        """Return the sites that the current round waits for."""
        session = self.session
        everyone = self.wait_for_all and session.evaluation_due()
        return session.clients if everyone else session.choose_clients()

    def _evaluate_before_round(self, exchange: Exchange, number: int, loss: float | None) -> None:
        """Record the scores, which belong to the model before this round."""
        if loss is not None:  # If the round is repeated, the next attempt decides.
            self._refuse_divergence_of_all(exchange.scores, exchange, number)
        if exchange.scores:
            scores = self.session.scores(exchange.scores, exchange.steps)
            self.record.add_evaluation(number, scores, without_last_round=loss is not None)

    def _refuse_divergence_of_all(
        self, usable: Iterable[int], exchange: Exchange, number: int
    ) -> None:
        """Raise if no site that trains has a usable score; single sites may diverge."""
        session, known = self.session, self.session.roster.known_clients
        diverged = {client: s for client, s in exchange.diverged.items() if client < known}
        if diverged and not any(client < known for client in usable):
            scores = session.scores(diverged, exchange.steps)
            steps = session.experiment.evaluation.adapt_steps
            refuse_diverged(scores, session.roster, steps, number)

    def _reasons(self, exchange: Exchange) -> str:
        """Return why answers were rejected, in brackets; nothing if none was."""
        name = self.session.roster.name
        reasons = "; ".join(f"{name(client)} {why}" for client, why in exchange.rejected.items())
        return f" ({reasons})" if reasons else ""

    def _wait_for(self, clients: Iterable[int], needed: int) -> None:
        """Wait until enough of these sites are connected; end the run after too long."""
        wanted, limit = list(clients), self.session.federation.wait
        needed = len(wanted) if self.wait_for_all else min(needed, len(wanted))
        begin, announced = time.monotonic(), False
        while True:
            connected = [client for client in self.links.connected() if client in wanted]
            if len(connected) >= needed:
                return
            absent = tuple(self.session.roster.name(c) for c in wanted if c not in connected)
            if not announced:
                self.record.say(WaitingForSites(needed=needed, there=len(connected), absent=absent))
                announced = True
            if time.monotonic() - begin > limit:
                raise FederationError(
                    f"{len(connected)} of the {needed} sites needed were there after waiting "
                    f"{limit:g} s; absent: {', '.join(absent)}"
                )
            time.sleep(min(1.0, limit / 10))

    def _wait_a_little_for_the_rest(self) -> None:
        """Wait briefly for all sites; an absent site can receive the model later."""
        until = time.monotonic() + min(DISTRIBUTION_SECONDS, self.session.federation.wait)
        while time.monotonic() < until:
            if len(self.links.connected()) == len(self.session.clients):
                return
            time.sleep(0.5)
