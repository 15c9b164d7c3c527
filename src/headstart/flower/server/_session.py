"""The server's side of the contract: its state, which sites train, and orders for them.

Knows no Flower: sites are numbers. Randomness is derived as in the simulation, so both engines
choose the same clients and draw the same batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from headstart._experiments.configuration import Experiment, read_toml, upgrade_stored_table
from headstart._keys import Keys
from headstart._simulation.sampling import choose_clients, count_active_clients
from headstart._simulation.scoring import Scores, scores_from_sums
from headstart._simulation.step_choice import Choices
from headstart.algorithms._cohort import build_cohort
from headstart.algorithms._contract import Info, Reply, Sent
from headstart.data._schema import Schema
from headstart.flower._federation_config import FederationConfig
from headstart.flower.protocol._messages import Assignment, Order, Scoring
from headstart.flower.server._roster import Roster
from headstart.parts import prepare_training
from headstart.records._federation_events import SiteScores
from headstart.records._tensor_files import named_arrays


@dataclass(frozen=True)
class Update:
    """One site's accepted answer to a training order."""

    client: int
    reply: Reply
    loss: float
    examples: int


class Session:
    """One training run, seen from the server."""

    def __init__(
        self, experiment: Experiment, schema: Schema, federation: FederationConfig, run: str
    ) -> None:
        self.experiment, self.schema, self.federation, self.run = (
            experiment, schema, federation, run,
        )  # fmt: skip
        self.model, self.keys = experiment.build_model(), Keys.from_seed(experiment.seed)
        self.algorithm, params, self.parts = prepare_training(
            experiment.parts, self.model, experiment.build_algorithm(), self.keys.init, schema
        )
        self.objective = experiment.build_objective(self.model, schema)
        self.roster = Roster((*federation.sites, *federation.late), len(federation.sites))
        self.active = count_active_clients(experiment.participation, len(federation.sites))
        self.state = self.algorithm.init(params)
        self.round = 0
        self.reported: Info = {}
        """What the algorithm's server reported in the last round."""

    @classmethod
    def from_folder(cls, folder: Path, run: str) -> Session:
        """Read a federation's folder, as ``headstart federate init`` writes it."""
        federation = FederationConfig.read(folder / "federation.toml")
        table = upgrade_stored_table(read_toml(folder / "experiment.toml"))
        # Sites with their own data: the table names their folders in place of a source.
        table.setdefault("data", {"path": str(folder.absolute() / "sites")})
        schema = Schema.from_table(json.loads((folder / "schema.json").read_text(encoding="utf-8")))
        return cls(Experiment.from_table(table), schema, federation, run)

    @property
    def data_digest(self) -> str:
        """A digest in place of the data's, which the server does not see.

        It covers the sites that train and the schema, but not late sites, because they are not
        known beforehand.
        """
        content = json.dumps([list(self.federation.sites), repr(self.schema)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """What must agree for a checkpoint to be resumed."""
        return f"{self.experiment.fingerprint(with_data=False)}-{self.data_digest}"

    @property
    def clients(self) -> range:
        """The numbers of all sites, late ones last."""
        return range(len(self.roster.names))

    @property
    def needed_answers(self) -> int:
        """The number of usable answers that a round needs."""
        return min(self.federation.min_sites, self.active)

    @property
    def most_steps(self) -> int:
        """The longest adaptation that is ever scored, so that one program serves all."""
        options = self.experiment.evaluation
        return max(options.curve_steps, options.adapt_steps)

    def choose_clients(self) -> list[int]:
        """Return the sites that train in the current round, as in the simulation."""
        key = self.keys.sampling(self.round)
        return choose_clients(key, self.roster.known_clients, self.active).tolist()

    def evaluation_due(self) -> bool:
        """Return whether the current model should be scored."""
        return self.round % self.experiment.evaluation.every == 0

    def order(self, client: int, *, train: bool, steps: Sequence[int], keep: bool) -> Order:
        """Return what one site is asked to do."""
        options = self.experiment.evaluation
        needs_state = bool(steps) or keep
        scoring = Scoring(
            steps=tuple(steps),
            most_steps=self.most_steps,
            adapt_on=options.adapt_on,
            choose_at_most=options.adapt_steps if keep and options.compares_steps else None,
        )
        return Order(
            assignment=self._assignment(client),
            round=self.round,
            content="state" if needs_state else "broadcast",
            train=train,
            scoring=scoring if steps else None,
            keep_steps=options.adapt_steps if keep else None,
            tensors=named_arrays(self.state if needs_state else self.broadcast()),
        )

    def _assignment(self, client: int) -> Assignment:
        experiment = self.experiment
        return Assignment(
            run=self.run,
            client=client,
            known=client < self.roster.known_clients,
            seed=experiment.seed,
            model=dict(experiment.model),
            algorithm=dict(experiment.algorithm),
            aggregation=dict(experiment.aggregation),
            parts=asdict(experiment.parts),
            objective=dict(experiment.objective),
            example_schema=asdict(self.schema),
        )

    def broadcast(self) -> Sent:
        """Return what the algorithm sends in the current round."""
        return self.algorithm.broadcast(self.state, self.keys.broadcast(self.round))

    def advance(self, updates: Sequence[Update]) -> float:
        """Make the next state from the updates and return their mean training loss.

        They are summed in the order of the clients' numbers, whichever site answers first.
        """
        ordered = sorted(updates, key=lambda update: update.client)
        cohort = build_cohort(
            [update.reply for update in ordered],
            asked=self.active,
            exist=self.roster.known_clients,
            rule=self.algorithm.rule,
        )
        key = self.keys.server(self.round)
        self.state, self.reported = self.algorithm.server_update(self.state, cohort, key)
        self.round += 1
        return float(np.mean([update.loss for update in ordered]))

    def choices(self, answers: Mapping[int, SiteScores]) -> Choices | None:
        """Return the sites' choices of steps; None unless all of them chose.

        A run that an earlier version finished, and that is distributed again, has none.
        """
        choices = {client: answers[client].choice for client in sorted(answers)}
        made = [choice for choice in choices.values() if choice is not None]
        if len(made) < len(choices) or not made:
            return None
        return Choices(
            np.array(list(choices)),
            np.array([choice.steps for choice in made]),
            np.array([choice.fixed for choice in made]),
            np.array([choice.chosen for choice in made]),
        )

    def scores(self, sums: Mapping[int, SiteScores], steps: Sequence[int]) -> Scores:
        """Return the sites' scores after each number of steps, from their sums."""
        clients = np.array(sorted(sums))
        table = np.array([sums[client].sums for client in clients.tolist()], float)
        counts = self.roster.test_counts[clients]
        wanted = np.isin(np.arange(self.most_steps + 1), steps)
        return scores_from_sums(self.objective, table, clients, counts, wanted)

    def count_gradients(self, updates: Sequence[Update]) -> int:
        """Return the gradient evaluations that these updates took."""
        return sum(self.algorithm.gradients_per_update(update.examples) for update in updates)

    @property
    def gradients_per_client(self) -> float:
        """Gradient evaluations of one site in a round, on average over sites of known size."""
        sizes = [int(n) for n in self.roster.train_counts[: self.roster.known_clients] if n]
        costs = [self.algorithm.gradients_per_update(n) for n in sizes or [1]]
        mean = float(np.mean(costs))
        return int(mean) if mean.is_integer() else mean
