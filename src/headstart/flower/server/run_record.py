"""What a federated run leaves behind: the same folder as ``headstart run``, and ``rounds.jsonl``.

``rounds.jsonl`` has a line per exchange: who answered, who did not and why, how long it took, how
many bytes went down and up. Whoever shows progress reads it as it grows.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common.logger import log

from headstart.atomic_files import append_line, write_text
from headstart.errors import CheckpointError, ConfigError
from headstart.experiments import PersonalModel, results
from headstart.flower.protocol.error_codes import SupersededError
from headstart.flower.server.exchange import Exchange
from headstart.flower.server.session import Session
from headstart.parts import merge_frozen
from headstart.records import (
    ADAPTED_ON_TEST,
    ByteCounts,
    ClientCounts,
    Evaluation,
    GradientsPerClient,
    RunDirectory,
    RunSummary,
    ScoreSummary,
)
from headstart.records.checkpoint import Checkpoint, load_newest, save_checkpoint
from headstart.records.federation_events import FederationProgress
from headstart.simulation.evaluation import Scores
from headstart.simulation.simulation import LOSS

ROUNDS = "rounds.jsonl"
RUN_ID = "run.id"
OWNER = "run.owner"
"""Which server process writes here: one whose Flower was killed may live on for a while."""


class Ledger:
    """Reads and writes the folder of one federated run."""

    def __init__(self, folder: Path, session: Session) -> None:
        self.folder, self.session = RunDirectory(folder), session
        self.evaluations: list[Evaluation] = []
        self.log: list[dict[str, float]] = []
        """What sites (their mean) and server reported in each round since the last evaluation."""
        self.gradients = 0
        """Gradient evaluations so far, counted by who answered: partial rounds have fewer."""
        self.seconds = self.evaluation_seconds = 0.0
        self.traffic = {"down": 0, "up": 0}
        self.last: dict[int, Any] = {}
        """Every site's scores in the last exchange; a later hand-out adds to them."""
        self.skipped: list[str] = []
        """A line for every newer checkpoint that could not be used."""
        self._owner = os.urandom(8).hex()
        self._unsaid: list[str] = []

    @property
    def fingerprint(self) -> str:
        """What must agree for a checkpoint to be continued."""
        session = self.session
        return f"{session.experiment.fingerprint(with_data=False)}-{digest_of(session)}"

    def begin(self, *, resume: bool) -> None:
        """Claim the folder, or take up the newest checkpoint in it."""
        found = self.newest() if resume else None
        self.folder.claim(self.session.experiment.to_toml(), resume=resume)
        self.folder.write_schema(self.session.schema)
        write_text(self.folder.path / RUN_ID, self.session.run + "\n")
        write_text(self.folder.path / OWNER, self._owner)
        if found is not None:
            self._take_up(found)
        self.folder.write_evaluations(self.evaluations)
        for line in self.skipped:
            self.notice(f"{line}; it is not used")
        self.say("started", round=self.session.round, rounds=self.session.experiment.rounds)

    def exchanged(
        self, exchange: Exchange, number: int, seconds: float, loss: float | None
    ) -> None:
        """One exchange is over; a round only counts as done if there is a loss."""
        name = self.session.roster.name
        self.seconds += seconds
        self.traffic["down"] += exchange.bytes_down
        self.traffic["up"] += exchange.bytes_up
        if loss is not None:
            reported = {f"server.{k}": float(v) for k, v in self.session.reported.items()}
            self.log.append({LOSS: loss, **reported})
            self.gradients += self.session.gradients_of(list(exchange.updates.values()))
        self._will_say(
            "round",
            round=number,
            done=loss is not None,
            loss=loss,
            seconds=round(seconds, 3),
            trained=[name(c) for c in sorted(exchange.updates)],
            scored=[name(c) for c in sorted(exchange.scores)],
            not_connected=[name(c) for c in exchange.missing],
            silent=[name(c) for c in exchange.silent],
            rejected={name(c): why for c, why in sorted(exchange.rejected.items())},
            bytes_down=exchange.bytes_down,
            bytes_up=exchange.bytes_up,
        )
        for client in sorted(exchange.diverged):
            self.notice(
                f"{name(client)} is left out of the evaluation at round {number}: its model is not "
                "finite there; check the scale of its data"
            )

    def evaluated(self, number: int, scores: Scores) -> None:
        """An evaluation of the model as it was before round ``number``; known clients in it."""
        steps = self.session.experiment.evaluation.adapt_steps
        if not np.any(scores.clients < self.session.roster.known_clients):
            return
        results.refuse_diverged(scores, self.session.roster, steps, number)
        log, self.log = arrays_of(self.log), []
        evaluation = Evaluation(
            round=number,
            seconds=round(self.seconds, 3),
            evaluation_seconds=self.evaluation_seconds,
            gradient_evaluations=self.gradients,
            train_loss=float(np.mean(log[LOSS])) if log else None,
            reported={name: float(np.mean(values)) for name, values in log.items()},
            adapt_steps=steps,
            adapt_on=self.session.experiment.evaluation.adapt_on,
            scores=self._score_summary(scores, steps),
        )
        self.evaluations.append(evaluation)
        self.folder.append_evaluation(evaluation)
        self._will_say("evaluated", **evaluation.to_table())

    def save(self) -> None:
        """The state as it now is; only then is a round said to be done."""
        saved = Checkpoint(
            round=self.session.round,
            state=self.session.state,
            memory=(),
            log=arrays_of(self.log),
            seconds=self.seconds,
            evaluations=tuple(self.evaluations),
            federation=FederationProgress.from_table(
                {
                    "gradients": self.gradients,
                    "sizes": self.session.roster.sizes,
                    "traffic": self.traffic,
                    "last": self.last,
                }
            ),
        )
        self._refuse_other_owner()
        save_checkpoint(self.folder.checkpoints, saved, self.fingerprint)
        self.tell()

    def finish(self, scores: Scores) -> RunSummary:
        """Results, model and summary."""
        session, options = self.session, self.session.experiment.evaluation
        results.refuse_diverged(scores, session.roster, options.adapt_steps, session.round)
        self.folder.write_evaluations(self.evaluations)  # A hand-out replaces the last evaluation.
        summary = self._summary(scores)
        clients = results.client_results(scores, session.roster, options.adapt_steps)
        params = merge_frozen(session.algorithm.model(session.state), session.parts)
        objective = session.experiment.objective
        model = PersonalModel(params, session.model, session.schema, objective)
        model.save(self.folder.model_file, algorithm=summary.algorithm)
        self.folder.write_results(summary, clients)
        self.say("finished")
        return summary

    def say(self, event: str, **facts: Any) -> None:
        """A line for whoever watches."""
        self._will_say(event, **facts)
        self.tell()

    def notice(self, text: str) -> None:
        """One line for people: to those who watch with the next event, and to Flower's log now."""
        log(WARNING, "%s", text)
        self._will_say("notice", text=text)

    def tell(self) -> None:
        """Write what is still unsaid."""
        self._refuse_other_owner()
        for line in self._unsaid:
            append_line(self.folder.path / ROUNDS, line)
        self._unsaid.clear()

    def _refuse_other_owner(self) -> None:
        path = self.folder.path / OWNER
        if not path.exists() or path.read_text(encoding="utf-8") != self._owner:
            raise SupersededError(f"another server process has taken up the run in {path.parent}")

    def _will_say(self, event: str, **facts: Any) -> None:
        line = {"event": event, "time": round(time.time(), 3), **facts}
        self._unsaid.append(json.dumps(line, allow_nan=False))

    def _summary(self, scores: Scores) -> RunSummary:
        session, options = self.session, self.session.experiment.evaluation
        present = _Present(session.roster, scores)
        first = self.evaluations[0] if self.evaluations else None
        return RunSummary(
            algorithm=session.algorithm.name,
            label=session.experiment.label,
            engine="flower",
            data=f"{len(session.roster.names)} sites' own data",
            data_digest=digest_of(session),
            clients=ClientCounts(
                known=session.roster.known_clients, new=session.roster.new_clients
            ),
            evaluated_clients=results.count_evaluated(scores, session.roster),
            active_clients=session.active,
            rounds=session.round,
            seed=session.experiment.seed,
            seconds=round(self.seconds, 3),
            gradient_evaluations=self.gradients,
            gradient_evaluations_per_client=GradientsPerClient(
                round=session.gradients_per_client,
                adaptation=options.adapt_steps * session.algorithm.gradients_per_step,
            ),
            bytes=ByteCounts.from_table(self.traffic),
            adapt_steps=options.adapt_steps,
            adapt_on=options.adapt_on,
            warning=ADAPTED_ON_TEST if options.adapt_on == "test" else None,
            failures=results.find_failures(scores, present, options.adapt_steps, first),
            scores=self._score_summary(scores, options.adapt_steps),
            adaptation=results.adaptation_curves(scores, present),
            host=results.host_facts(),
        )

    def _score_summary(self, scores: Scores, steps: int) -> ScoreSummary:
        return results.summarize_scores(scores, _Present(self.session.roster, scores), steps)

    def newest(self) -> Checkpoint | None:
        """The checkpoint to go on from; a clear line if there are only unusable ones."""
        found, self.skipped = load_newest(
            self.folder.checkpoints, self.session.state, (), self.fingerprint
        )
        if found is None and self.skipped:
            raise CheckpointError(
                f"no checkpoint can be used ({self.skipped[0]}); nothing was changed"
            )
        if found is not None and found.round > self.session.experiment.rounds:
            raise ConfigError(
                f"rounds={self.session.experiment.rounds} is less than the "
                f"{found.round} rounds already done"
            )
        return found

    def _take_up(self, found: Checkpoint) -> None:
        self.session.state, self.session.round = found.state, found.round
        self.evaluations, self.log = list(found.evaluations), rounds_of(found.log)
        self.seconds = found.seconds
        if found.federation is None:
            raise CheckpointError("the checkpoint is not one of a federation")
        self.gradients = found.federation.gradients
        self.traffic = found.federation.traffic.to_table()
        self.last = {c: scores.to_table() for c, scores in found.federation.last.items()}
        self.session.roster.sizes.update(
            {c: sizes.to_table() for c, sizes in found.federation.sizes.items()}
        )


def arrays_of(log: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Values by name, each with a number per round."""
    return {name: np.array([each[name] for each in log]) for name in (log[0] if log else {})}


def rounds_of(log: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """The inverse of :func:`arrays_of`."""
    count = len(next(iter(log.values()), ()))
    return [{name: float(values[i]) for name, values in log.items()} for i in range(count)]


class _Present:
    """The roster as far as there are scores: a late site that has not come is not in the tables."""

    def __init__(self, roster: Any, scores: Scores) -> None:
        self._roster = roster
        self.known_clients = roster.known_clients
        self.new_clients = int(np.sum(scores.clients >= roster.known_clients))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._roster, name)


def digest_of(session: Session) -> str:
    """Stands for the data, which the server does not see: who trains, and what all share.

    Who joins later is not part of it, because that is not known beforehand.
    """
    content = json.dumps([list(session.federation.sites), repr(session.schema)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def run_id(folder: Path, *, resume: bool) -> str:
    """The name under which sites keep what they keep; a resumed run has its old one."""
    kept = folder / RUN_ID
    if resume and kept.exists():
        return kept.read_text(encoding="utf-8").strip()
    return os.urandom(8).hex()


def follow(path: Path, seen: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines of ``rounds.jsonl`` from byte ``seen`` on, each with where it ends."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(seen)
        for line in file:
            if not line.endswith(b"\n"):
                return
            seen += len(line)
            yield seen, json.loads(line)
