"""The server's side of the contract: its state, whose turn it is, and what the answers say.

Knows no Flower: orders and answers are parcels, sites are numbers. Randomness is derived as in the
simulation, so both engines choose the same clients and draw the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms.cohort import build_cohort, pack_update, reply_arrays
from headstart.algorithms.contract import Info, Part, Reply, Sent, Task
from headstart.data.schema import Schema
from headstart.errors import CheckpointError, DataError
from headstart.experiments.configuration import Experiment
from headstart.flower.federation_config import FederationConfig
from headstart.flower.protocol import encoding as wire
from headstart.flower.protocol.encoding import Bounds, Parcel
from headstart.keys import Keys
from headstart.parts import prepare_training
from headstart.records.tensor_files import named_arrays, restore
from headstart.simulation.evaluation import Scores, scores_from_sums
from headstart.simulation.sampling import active_clients, choose_clients
from headstart.trees import Tree, add, all_finite, norm, scale

OUTLIER = 10.0
"""With three answers or more, one this many times the median norm is rejected. Chosen, like the
default of ``max_norm``, to catch the absurd: not measured, and no defence against a careful one."""
MOST_EXAMPLES = 2**31 - 1
"""Examples are counted with 32 bits (:class:`Task`), so no site can have more."""
LARGEST_LOSS = float(np.finfo(np.float32).max)
"""Of a loss or a sum of losses. Far larger ones overflow in the statistics over all sites."""
ANSWER_TEXT = 1 << 16
"""Bytes of an answer's text without its scores; ours have a few hundred."""
BYTES_PER_SCORE = 40
"""A number and its separator in JSON have at most 27."""


@dataclass
class Roster:
    """What the server knows of its sites; the shape of a federated data set, without data."""

    names: Sequence[str]
    known_clients: int
    sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    """Per client: training examples, held-out examples, classes; as the sites report them."""

    @property
    def new_clients(self) -> int:
        """Sites that join later."""
        return len(self.names) - self.known_clients

    @property
    def train_counts(self) -> np.ndarray:
        """Training examples of each; 0 where a site has not said."""
        return self._column("train_examples")

    @property
    def test_counts(self) -> np.ndarray:
        """Held-out examples of each."""
        return self._column("test_examples")

    def name(self, client: int) -> str:
        """The site's name."""
        return self.names[client]

    def classes_of(self, client: int) -> np.ndarray:
        """Only how many classes a site has is known, not how many examples of each."""
        return np.ones(self.sizes.get(client, {}).get("classes", 0), int)

    def _column(self, key: str) -> np.ndarray:
        return np.array([self.sizes.get(c, {}).get(key, 0) for c in range(len(self.names))])


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
        self.active = active_clients(experiment.participation, len(federation.sites))
        self.state = self.algorithm.init(params)
        self.round = 0
        self.reported: Info = {}
        """What the algorithm's server reported in the last round."""
        frame = self._reply_frame()
        self._update_frame = frame["update"]
        self.reply_frame = jax.eval_shape(
            lambda: pack_update(
                jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), frame),
                self.algorithm.bits_per_number,
            )
        )

    @property
    def clients(self) -> range:
        """The numbers of all sites, late ones last."""
        return range(len(self.roster.names))

    def chosen(self) -> list[int]:
        """Who trains in the present round, as in the simulation."""
        key = self.keys.sampling(self.round)
        return choose_clients(key, self.roster.known_clients, self.active).tolist()

    @property
    def most_steps(self) -> int:
        """The longest adaptation ever scored: with one width for all there is one program."""
        options = self.experiment.evaluation
        return max(options.curve_steps, options.adapt_steps)

    def evaluation_due(self) -> bool:
        """Whether the model as it now is should be scored."""
        return self.round % self.experiment.evaluation.every == 0

    def order(
        self, client: int, *, train: bool, steps: Sequence[int], keep: bool = False
    ) -> Parcel:
        """What one site is to do.

        Training alone needs the broadcast; to score or keep a model a site needs the state, and
        works the broadcast out from it.
        """
        options = self.experiment.evaluation
        whole = bool(steps) or keep
        text = {
            "protocol": wire.PROTOCOL,
            "run": self.run,
            "round": self.round,
            "client": client,
            "known": client < self.roster.known_clients,
            "seed": self.experiment.seed,
            "model": dict(self.experiment.model),
            "algorithm": dict(self.experiment.algorithm),
            "aggregation": dict(self.experiment.aggregation),
            "parts": asdict(self.experiment.parts),
            "objective": dict(self.experiment.objective),
            "schema": asdict(self.schema),
            "train": train,
            "steps": list(steps),
            "most_steps": self.most_steps,
            "adapt_on": options.adapt_on,
            "keep": keep,
            "keep_steps": options.adapt_steps,
            "holds": "state" if whole else "broadcast",
        }
        return wire.parcel(text, named_arrays(self.state if whole else self._broadcast()))

    @property
    def sums_width(self) -> int:
        """Numbers in a site's score sums: the loss, the metrics' statistics, what is not finite."""
        return self.objective.width + 2

    @property
    def answer_bounds(self) -> Bounds:
        """The most an answer can hold: the arrays of a reply, and a few numbers."""
        leaves = jax.tree.leaves(self.reply_frame)
        numbers = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        return Bounds(
            text=ANSWER_TEXT + BYTES_PER_SCORE * self.sums_width * (self.most_steps + 1),
            arrays=len(leaves),
            body=numbers + len(leaves) * wire.NPY_HEADER,
        )

    def sizes_from(self, answer: Parcel) -> dict[str, int]:
        """The sizes an answer states; DataError if no site can have them."""
        most = {
            "train_examples": MOST_EXAMPLES,
            "test_examples": MOST_EXAMPLES,
            "classes": self.schema.classes,
        }
        least = {"classes": 0} if self.schema.target != "class" else {}
        sizes: dict[str, Any] = {key: answer.text.get(key) for key in most}
        if any(
            type(size) is not int or not least.get(key, 1) <= size <= most[key]
            for key, size in sizes.items()
        ):
            raise DataError(f"states sizes no site can have: {sizes}")
        return sizes

    def update_from(self, client: int, answer: Parcel, sizes: Mapping[str, int]) -> Update:
        """A checked update; DataError says what is wrong with it."""
        text = answer.text
        if text.get("round") != self.round:
            raise DataError(f"answers round {text.get('round')}, not {self.round}")
        weight, loss = text.get("weight"), text.get("loss")
        stated = sizes["train_examples"]
        expected = float(self.algorithm.weight_of(jnp.int32(stated)))
        if weight != expected:
            raise DataError(f"claims the weight {weight}; with {stated} examples it is {expected}")
        if not isinstance(loss, float) or not abs(loss) <= LARGEST_LOSS:
            raise DataError(f"reports a loss that cannot be right: {loss}")
        try:
            content = restore(self.reply_frame, wire.tensors(answer), "its update")
        except CheckpointError as error:
            raise DataError(str(error)) from None
        if not bool(all_finite(content)):
            raise DataError("its update holds numbers that are not finite")
        # Whole numbers travel in few bytes, and are summed as the update's own type.
        content["update"] = jax.tree.map(
            lambda a, sent: a.astype(sent.dtype), content["update"], self._update_frame
        )
        weights = self._part_weights(text)
        parts = {
            name: Part(value, jnp.asarray(weights[name]))
            for name, value in content["parts"].items()
        }
        reply = Reply(content["update"], jnp.asarray(expected), parts)
        return Update(client, reply, loss, stated)

    def _part_weights(self, text: Mapping[str, Any]) -> dict[str, float]:
        """The weights of a reply's further parts; DataError if they cannot be right."""
        weights, names = text.get("part_weights"), self.reply_frame["parts"]
        fits = isinstance(weights, dict) and set(weights) == set(names)
        if not fits or any(
            type(weight) is not float or not 0 <= weight <= MOST_EXAMPLES
            for weight in weights.values()  # type: ignore[union-attr]
        ):
            raise DataError(f"claims weights {str(weights)[:80]} for the parts {sorted(names)}")
        return weights  # type: ignore[return-value]

    def norms_too_large(self, updates: Sequence[Update]) -> dict[int, str]:
        """Who sent an update of absurd norm, and why it is called so.

        Against what was sent, and, with three or more answers, against the others.
        """
        broadcast = self._broadcast()
        sent = max(1.0, _norm(broadcast))
        norms = {}
        for update in updates:
            # Models are compared, not updates: of these honest ones differ by large factors.
            moved = scale(update.reply.update, self.algorithm.update_scale)
            model = add(broadcast.params, moved)
            norms[update.client] = _norm((model, reply_arrays(update.reply)["parts"]))
        middle = float(np.median(list(norms.values()))) if len(norms) >= 3 else np.inf
        found = {}
        for client, size in norms.items():
            if size > self.federation.max_norm * sent:
                found[client] = f"its update has norm {size:.3g}; what was sent has {sent:.3g}"
            elif size > OUTLIER * max(middle, 1e-12):
                found[client] = f"its update has norm {size:.3g}; the median is {middle:.3g}"
        return found

    def advance(self, updates: Sequence[Update]) -> float:
        """The next state from the mean of the updates; their mean training loss.

        Summed in the order of the clients' numbers: who answers first does not matter.
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

    def scores_from(self, answers: Mapping[int, Mapping[str, Any]], steps: Sequence[int]) -> Scores:
        """The sites' scores after each number of steps."""
        clients = np.array(sorted(answers))
        width = self.most_steps + 1
        table = np.array([answers[c]["sums"] for c in clients.tolist()], float)
        table = table.reshape(len(clients), width, self.sums_width)
        counts, wanted = self.roster.test_counts[clients], np.isin(np.arange(width), steps)
        return scores_from_sums(self.objective, table, clients, counts, wanted)

    def sums_from(self, answer: Parcel, sizes: Mapping[str, int]) -> np.ndarray:
        """A site's checked score sums; DataError if they cannot be right."""
        shape, count = (self.most_steps + 1, self.sums_width), sizes["test_examples"]
        try:
            sums = np.array(answer.text["scores"]["sums"], float)
        except (TypeError, KeyError, ValueError, OverflowError):
            raise DataError("sends scores that are not a table of numbers") from None
        if sums.shape != shape or not np.isfinite(sums).all():
            raise DataError("sends scores of the wrong shape, or that are not finite")
        loss, bad = sums[:, 0], sums[:, -1]
        if (bad < 0).any() or (bad > count * (1 + 1e-6)).any():
            raise DataError(f"claims more broken outputs than its {count} held-out examples")
        self.objective.check_sums(sums[:, 1:-1], count)
        if (loss < 0).any() or (loss > LARGEST_LOSS).any():
            raise DataError(f"sends a sum of losses that cannot be right: {loss.max():.3g}")
        return sums

    def has_diverged(self, sums: np.ndarray) -> bool:
        """Whether a model that the evaluation reports gives outputs that are not finite."""
        reported = [0, self.experiment.evaluation.adapt_steps]
        return bool((sums[reported, -1] > 0).any())

    def gradients_of(self, updates: Sequence[Update]) -> int:
        """What these updates have cost."""
        return sum(self.algorithm.gradients_per_update(update.examples) for update in updates)

    @property
    def gradients_per_client(self) -> float:
        """What one site spends in a round, on average over those whose size is known."""
        sizes = [int(n) for n in self.roster.train_counts[: self.roster.known_clients] if n]
        costs = [self.algorithm.gradients_per_update(n) for n in sizes or [1]]
        mean = float(np.mean(costs))
        return int(mean) if mean.is_integer() else mean

    def _broadcast(self) -> Sent:
        return self.algorithm.broadcast(self.state, self.keys.broadcast(self.round))

    def _reply_frame(self) -> Tree:
        """The shapes of a reply, from shapes of examples alone."""
        tokens = self.schema.vocabulary > 0
        x = jax.ShapeDtypeStruct((1, *self.schema.shape), jnp.int32 if tokens else jnp.float32)
        y = jax.ShapeDtypeStruct((1, *self.schema.label_shape), self.schema.label_type)
        number = jax.ShapeDtypeStruct((), jnp.int32)

        def reply(state: Tree, x: Any, y: Any, start: Any, count: Any) -> Tree:
            sent = self.algorithm.broadcast(state, self.keys.init)
            memory = self.algorithm.init_memory(state)
            task = Task(self.objective, (x, y), start, count, 1, self.parts)
            return reply_arrays(self.algorithm.client_update(sent, memory, task, self.keys.init)[0])

        return jax.eval_shape(reply, self.state, x, y, number, number)


def _norm(tree: Tree) -> float:
    """Of the numbers that are no whole ones (a round counter is no part of a model)."""
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]
    return float(norm(leaves))
