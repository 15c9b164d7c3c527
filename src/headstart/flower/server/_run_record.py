"""The results of a federated run: the folder of ``headstart run``, and ``rounds.jsonl``.

``rounds.jsonl`` has a line per event: which sites answered, which did not and why, how long it
took, how many bytes went down and up. A program that shows progress reads it while it grows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from logging import WARNING
from pathlib import Path

import numpy as np
from flwr.common.logger import log

from headstart._atomic_files import append_line, write_text
from headstart._experiments import PersonalModel
from headstart._experiments.choice_results import add_choices, summarize_choices
from headstart._experiments.results import (
    adaptation_curves,
    client_results,
    count_evaluated,
    find_failures,
    host_facts,
    refuse_diverged,
    summarize_scores,
)
from headstart._simulation.scoring import Scores
from headstart._simulation.simulation import LOSS
from headstart._simulation.step_choice import Choices
from headstart.errors import CheckpointError, ConfigError
from headstart.flower._federation_errors import SupersededError
from headstart.flower.server._exchange import Exchange
from headstart.flower.server._session import Session
from headstart.parts import merge_frozen
from headstart.records import (
    ADAPTED_ON_TEST,
    ByteCounts,
    ClientCounts,
    Evaluation,
    GradientsPerClient,
    RunDirectory,
    RunSummary,
)
from headstart.records._checkpoint import Checkpoint, load_newest, save_checkpoint
from headstart.records._federation_events import (
    Evaluated,
    FederationEvent,
    FederationProgress,
    Notice,
    RoundEnded,
    RunFinished,
    RunStarted,
    SiteScores,
)

EVENTS_FILE = "rounds.jsonl"
RUN_ID_FILE = "run.id"
OWNER_FILE = "run.owner"
"""Which server process writes here; an old one may survive its Flower for a while."""

RoundLog = list[dict[str, float]]
"""What sites (as a mean) and server reported, one entry per round."""


class RunRecord:
    """Reads and writes the folder of one federated run."""

    def __init__(self, folder: Path, session: Session) -> None:
        self.folder, self.session = RunDirectory(folder), session
        self.evaluations: list[Evaluation] = []
        self.log: RoundLog = []
        """The rounds since the last evaluation."""
        self.gradients = 0
        """Gradient evaluations so far, counted by the sites that answered."""
        self.seconds = 0.0
        self.bytes = ByteCounts(down=0, up=0)
        self.last: dict[int, SiteScores] = {}
        """Every site's scores in the last exchange; a later distribution adds to them."""
        self.skipped: list[str] = []
        """A line for every newer checkpoint that could not be used."""
        self._owner = os.urandom(8).hex()
        self._unwritten: list[FederationEvent] = []

    def begin(self, *, resume: bool) -> None:
        """Claim the folder, or resume from the newest checkpoint in it."""
        checkpoint = self.newest_checkpoint() if resume else None
        self.folder.claim(self.session.experiment.to_toml(), resume=resume)
        self.folder.write_schema(self.session.schema)
        write_text(self.folder.path / RUN_ID_FILE, self.session.run + "\n")
        write_text(self.folder.path / OWNER_FILE, self._owner)
        if checkpoint is not None:
            self._resume_from(checkpoint)
        self.folder.write_evaluations(self.evaluations)
        for line in self.skipped:
            self.notice(f"{line}; it is not used")
        self.say(RunStarted(round=self.session.round, rounds=self.session.experiment.rounds))

    def add_exchange(
        self, exchange: Exchange, number: int, seconds: float, loss: float | None
    ) -> None:
        """Record an exchange; a round counts as done only if there is a loss."""
        name = self.session.roster.name
        self.seconds += seconds
        self.bytes = ByteCounts(
            down=self.bytes.down + exchange.bytes_down, up=self.bytes.up + exchange.bytes_up
        )
        if loss is not None:
            reported = {f"server.{k}": float(v) for k, v in self.session.reported.items()}
            self.log.append({LOSS: loss, **reported})
            self.gradients += self.session.count_gradients(list(exchange.updates.values()))
        self._add_event(
            RoundEnded(
                round=number,
                done=loss is not None,
                loss=loss,
                seconds=round(seconds, 3),
                trained=tuple(name(client) for client in sorted(exchange.updates)),
                scored=tuple(name(client) for client in sorted(exchange.scores)),
                not_connected=tuple(name(client) for client in exchange.missing),
                silent=tuple(name(client) for client in exchange.silent),
                rejected={name(client): why for client, why in sorted(exchange.rejected.items())},
                bytes_down=exchange.bytes_down,
                bytes_up=exchange.bytes_up,
            )
        )
        for client in sorted(exchange.diverged):
            self.notice(
                f"{name(client)} is left out of the evaluation at round {number}: its model is not "
                "finite there; check the scale of its data"
            )

    def has_evaluation(self, number: int) -> bool:
        """Return whether the newest evaluation is of the model before round ``number``."""
        return bool(self.evaluations) and self.evaluations[-1].round == number

    def add_evaluation(
        self, number: int, scores: Scores, *, without_last_round: bool = False
    ) -> None:
        """Record scores of the model as it was before round ``number``.

        ``without_last_round``: the newest entry of the log is that of this round, and belongs to
        the next evaluation.
        """
        session, options = self.session, self.session.experiment.evaluation
        if not np.any(scores.clients < session.roster.known_clients):
            return
        refuse_diverged(scores, session.roster, options.adapt_steps, number)
        newest = self.log[-1:] if without_last_round else []
        past = _columns(self.log[: len(self.log) - len(newest)])
        self.log = newest
        present = session.roster.present(scores.clients.tolist())
        evaluation = Evaluation(
            round=number,
            seconds=round(self.seconds, 3),
            gradient_evaluations=self.gradients,
            train_loss=float(np.mean(past[LOSS])) if past else None,
            reported={name: float(np.mean(values)) for name, values in past.items()},
            adapt_steps=options.adapt_steps,
            adapt_on=options.adapt_on,
            scores=summarize_scores(scores, present, options.adapt_steps),
        )
        self.evaluations.append(evaluation)
        self.folder.append_evaluation(evaluation)
        self._add_event(Evaluated.from_evaluation(evaluation, time=0.0))

    def replace_evaluation(self, number: int, scores: Scores) -> None:
        """Record an evaluation in place of an earlier one of the same round."""
        if self.has_evaluation(number):
            self.evaluations.pop()
        self.add_evaluation(number, scores)

    def save(self) -> None:
        """Save the current state, then write the events of its round."""
        session = self.session
        checkpoint = Checkpoint(
            round=session.round,
            state=session.state,
            memory=(),
            log=_columns(self.log),
            seconds=self.seconds,
            evaluations=tuple(self.evaluations),
            federation=FederationProgress(
                gradients=self.gradients,
                sizes=session.roster.sizes,
                traffic=self.bytes,
                last=self.last,
            ),
        )
        self._refuse_other_owner()
        save_checkpoint(self.folder.checkpoints, checkpoint, session.fingerprint)
        self._write_events()

    def finish(self, scores: Scores) -> None:
        """Write results, model and summary."""
        session, steps = self.session, self.session.experiment.evaluation.adapt_steps
        refuse_diverged(scores, session.roster, steps, session.round)
        self.folder.write_evaluations(self.evaluations)  # The last one may have been replaced.
        params = merge_frozen(session.algorithm.model(session.state), session.parts)
        model = PersonalModel(params, session.model, session.schema, session.experiment.objective)
        model.save(self.folder.model_file, algorithm=session.algorithm.name)
        clients, choices = client_results(scores, session.roster, steps), session.choices(self.last)
        if choices is not None:
            clients = add_choices(clients, choices)
        self.folder.write_results(self._summary(scores, choices), clients)
        self.say(RunFinished())

    def say(self, event: FederationEvent) -> None:
        """Write an event now."""
        self._add_event(event)
        self._write_events()

    def notice(self, text: str) -> None:
        """Add a line for people to the events, and write it to Flower's log now."""
        log(WARNING, "%s", text)
        self._add_event(Notice(text=text))

    def newest_checkpoint(self) -> Checkpoint | None:
        """Read the checkpoint to resume from; raise CheckpointError if all are unusable."""
        session = self.session
        checkpoint, self.skipped = load_newest(
            self.folder.checkpoints, session.state, (), session.fingerprint
        )
        if checkpoint is None and self.skipped:
            raise CheckpointError(
                f"no checkpoint can be used ({self.skipped[0]}); nothing was changed"
            )
        if checkpoint is not None and checkpoint.round > session.experiment.rounds:
            raise ConfigError(
                f"rounds={session.experiment.rounds} is less than the {checkpoint.round} rounds "
                "already done"
            )
        return checkpoint

    def _resume_from(self, checkpoint: Checkpoint) -> None:
        progress = checkpoint.federation
        if progress is None:
            raise CheckpointError(
                f"the checkpoint in {self.folder.checkpoints} is not of a federation; resume it "
                "with: headstart run --resume"
            )
        self.session.state, self.session.round = checkpoint.state, checkpoint.round
        self.session.roster.sizes.update(progress.sizes)
        self.evaluations, self.log = list(checkpoint.evaluations), _rows(checkpoint.log)
        self.seconds, self.gradients = checkpoint.seconds, progress.gradients
        self.bytes, self.last = progress.traffic, dict(progress.last)

    def _summary(self, scores: Scores, choices: Choices | None) -> RunSummary:
        session, options = self.session, self.session.experiment.evaluation
        roster, steps = session.roster, options.adapt_steps
        present = roster.present(scores.clients.tolist())
        return RunSummary(
            algorithm=session.algorithm.name,
            label=session.experiment.label,
            engine="flower",
            data=f"{len(roster.names)} sites' own data",
            data_digest=session.data_digest,
            clients=ClientCounts(known=roster.known_clients, new=roster.new_clients),
            evaluated_clients=count_evaluated(scores, roster),
            active_clients=session.active,
            rounds=session.round,
            seed=session.experiment.seed,
            seconds=round(self.seconds, 3),
            gradient_evaluations=self.gradients,
            gradient_evaluations_per_client=GradientsPerClient(
                round=session.gradients_per_client,
                adaptation=steps * session.algorithm.gradients_per_step,
            ),
            bytes=self.bytes,
            adapt_steps=steps,
            adapt_on=options.adapt_on,
            warning=ADAPTED_ON_TEST if options.adapt_on == "test" else None,
            failures=find_failures(scores, present, steps, self.evaluations),
            scores=summarize_scores(scores, present, steps),
            adaptation=adaptation_curves(scores, present),
            choice=None if choices is None else summarize_choices(scores, choices, present, steps),
            host=host_facts(),
        )

    def _add_event(self, event: FederationEvent) -> None:
        self._unwritten.append(event.model_copy(update={"time": round(time.time(), 3)}))

    def _write_events(self) -> None:
        self._refuse_other_owner()
        for event in self._unwritten:
            append_line(self.folder.path / EVENTS_FILE, event.to_json())
        self._unwritten.clear()

    def _refuse_other_owner(self) -> None:
        path = self.folder.path / OWNER_FILE
        if not path.exists() or path.read_text(encoding="utf-8") != self._owner:
            raise SupersededError(f"another server process has resumed the run in {path.parent}")


def read_run_id(folder: Path, *, resume: bool) -> str:
    """Return the name under which sites store their part; resumed runs keep theirs."""
    path = folder / RUN_ID_FILE
    if resume and path.exists():
        return path.read_text(encoding="utf-8").strip()
    return os.urandom(8).hex()


def _columns(log: RoundLog) -> dict[str, np.ndarray]:
    """Return values by name, each with a number per round."""
    return {name: np.array([each[name] for each in log]) for name in (log[0] if log else {})}


def _rows(columns: Mapping[str, np.ndarray]) -> RoundLog:
    """Return the inverse of :func:`_columns`."""
    count = len(next(iter(columns.values()), ()))
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(count)]
