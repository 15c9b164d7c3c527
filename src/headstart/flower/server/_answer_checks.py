"""Checks of one site's answer, before it is used.

Every check raises DataError, which says what is wrong. An answer is used as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms._cohort import pack_update, reply_arrays
from headstart.algorithms._contract import Part, Reply, Task
from headstart.errors import CheckpointError, DataError
from headstart.flower.protocol._encoding import Bounds, decode
from headstart.flower.protocol._messages import Answer, TrainingReport
from headstart.flower.server._session import Session, Update
from headstart.records._federation_events import SiteChoice, SiteScores, SiteSizes
from headstart.records._tensor_files import restore
from headstart.trees import Tree, add, all_finite, norm, scale

OUTLIER = 10.0
"""With three or more answers, one of this many times the median norm is rejected. Like the default
of ``max_norm`` it catches absurd answers; it was not measured, and stops no careful attacker."""
MOST_EXAMPLES = 2**31 - 1
"""Examples are counted with 32 bits (:class:`Task`), so no site can have more."""
LARGEST_LOSS = float(np.finfo(np.float32).max)
"""The largest loss or sum of losses; larger ones overflow in statistics over all sites."""
RECORD_BYTES = 1 << 16
"""Bytes of an answer's record without its scores; ours have a few hundred."""
BYTES_PER_SCORE = 40
"""A number and its separator in JSON have at most 27."""
BYTES_PER_ARRAY = 1000
"""Name, type, shape and offsets of an array in a message's header."""


class AnswerChecks:
    """Reads and checks the answers to one session's orders."""

    def __init__(self, session: Session) -> None:
        self.session = session
        reply = self._reply_shapes()
        self._update_shapes = reply["update"]
        self.reply_shapes = jax.eval_shape(
            lambda: pack_update(
                jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), reply),
                session.algorithm.bits_per_number,
            )
        )

    @property
    def sums_width(self) -> int:
        """Numbers in a row of score sums: loss, the metrics' statistics, outputs not finite."""
        return self.session.objective.width + 2

    @property
    def bounds(self) -> Bounds:
        """The largest possible answer: the arrays of a reply, and a few numbers."""
        leaves = jax.tree.leaves(self.reply_shapes)
        scores = BYTES_PER_SCORE * self.sums_width * (self.session.most_steps + 1)
        return Bounds(
            header=RECORD_BYTES + scores + BYTES_PER_ARRAY * len(leaves),
            arrays=len(leaves),
            # Twice the size: an answer of another precision is read, and rejected with a reason.
            body=2 * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves),
        )

    def read(self, content: bytes) -> Answer:
        """Decode an answer and check the sizes it states."""
        answer = decode(content, self.bounds, Answer)
        self._check_sizes(answer.sizes)
        return answer

    def update(self, client: int, answer: Answer) -> Update:
        """Return the checked update of an answer."""
        session, report = self.session, answer.training
        if answer.round != session.round:
            raise DataError(f"answers round {answer.round}, not {session.round}")
        if report is None:
            raise DataError("sends no update, though it was asked to train")
        stated = answer.sizes.train_examples
        expected = float(session.algorithm.weight_of(jnp.int32(stated)))
        if report.weight != expected:
            raise DataError(
                f"claims the weight {report.weight}; with {stated} examples it is {expected}"
            )
        if not abs(report.loss) <= LARGEST_LOSS:
            raise DataError(f"reports a loss that cannot be right: {report.loss}")
        content = self._reply_content(answer)
        self._check_part_weights(report)
        parts = {
            name: Part(value, jnp.asarray(report.part_weights[name]))
            for name, value in content["parts"].items()
        }
        reply = Reply(content["update"], jnp.asarray(expected), parts)
        return Update(client, reply, report.loss, stated)

    def scores(self, answer: Answer) -> SiteScores:
        """Return the checked score sums of an answer."""
        if answer.scores is None:
            raise DataError("sends no scores, though it was asked for them")
        count, rows = answer.sizes.test_examples, answer.scores.sums
        if [len(row) for row in rows] != [self.sums_width] * (self.session.most_steps + 1):
            raise DataError("sends scores of the wrong shape")
        sums = np.array(rows, float)
        if not np.isfinite(sums).all():
            raise DataError("sends scores that are not finite")
        loss, bad = sums[:, 0], sums[:, -1]
        if (bad < 0).any() or (bad > count * (1 + 1e-6)).any():
            raise DataError(f"claims more broken outputs than its {count} held-out examples")
        self.session.objective.check_sums(sums[:, 1:-1], count)
        if (loss < 0).any() or (loss > LARGEST_LOSS).any():
            raise DataError(f"sends a sum of losses that cannot be right: {loss.max():.3g}")
        if answer.scores.choice is not None:
            self._check_choice(answer.scores.choice, count)
        return answer.scores

    def has_diverged(self, scores: SiteScores) -> bool:
        """Return whether a model that the evaluation reports has outputs that are not finite."""
        reported = (0, self.session.experiment.evaluation.adapt_steps)
        return any(scores.sums[step][-1] > 0 for step in reported)

    def find_outliers(self, updates: Sequence[Update]) -> dict[int, str]:
        """Return the clients whose update has an absurd norm, each with the reason.

        Compared with the norm of what was sent and, with three or more answers, of the others.
        """
        session, broadcast = self.session, self.session.broadcast()
        sent = max(1.0, _norm(broadcast))
        norms = {}
        for update in updates:
            # Models are compared, not updates: those of honest sites differ by large factors.
            moved = scale(update.reply.update, session.algorithm.update_scale)
            model = add(broadcast.params, moved)
            norms[update.client] = _norm((model, reply_arrays(update.reply)["parts"]))
        median = float(np.median(list(norms.values()))) if len(norms) >= 3 else np.inf
        outliers = {}
        for client, size in norms.items():
            if size > session.federation.max_norm * sent:
                outliers[client] = f"its update has norm {size:.3g}; what was sent has {sent:.3g}"
            elif size > OUTLIER * max(median, 1e-12):
                outliers[client] = f"its update has norm {size:.3g}; the median is {median:.3g}"
        return outliers

    def _check_sizes(self, sizes: SiteSizes) -> None:
        schema = self.session.schema
        fewest_classes = 1 if schema.target == "class" else 0
        possible = (
            1 <= sizes.train_examples <= MOST_EXAMPLES
            and 1 <= sizes.test_examples <= MOST_EXAMPLES
            and fewest_classes <= sizes.classes <= schema.classes
        )
        if not possible:
            raise DataError(f"states sizes no site can have: {sizes}")

    def _check_choice(self, choice: SiteChoice, count: int) -> None:
        """Check steps and counts; a site without a choice leaves the run without that summary."""
        most = self.session.experiment.evaluation.adapt_steps
        if choice.steps > most or max(sum(choice.fixed), sum(choice.chosen)) > count:
            raise DataError(
                f"claims a choice that cannot be right for at most {most} steps and {count} "
                f"held-out examples: {choice}"
            )

    def _check_part_weights(self, report: TrainingReport) -> None:
        weights, names = report.part_weights, self.reply_shapes["parts"]
        possible = all(0 <= weight <= MOST_EXAMPLES for weight in weights.values())
        if set(weights) != set(names) or not possible:
            raise DataError(f"claims weights {str(weights)[:80]} for the parts {sorted(names)}")

    def _reply_content(self, answer: Answer) -> Tree:
        """Return the arrays of a reply; integers get the update's own type again."""
        try:
            content = restore(self.reply_shapes, answer.tensors, "its update")
        except CheckpointError as error:
            raise DataError(str(error)) from None
        if not bool(all_finite(content)):
            raise DataError("its update holds numbers that are not finite")
        content["update"] = jax.tree.map(
            lambda a, shape: a.astype(shape.dtype), content["update"], self._update_shapes
        )
        return content

    def _reply_shapes(self) -> Tree:
        """Return the shapes of a reply, from the shapes of examples only."""
        session, schema = self.session, self.session.schema
        tokens = schema.vocabulary > 0
        x = jax.ShapeDtypeStruct((1, *schema.shape), jnp.int32 if tokens else jnp.float32)
        y = jax.ShapeDtypeStruct((1, *schema.label_shape), schema.label_type)
        number = jax.ShapeDtypeStruct((), jnp.int32)

        def reply(state: Tree, x: Any, y: Any, start: Any, count: Any) -> Tree:
            algorithm, key = session.algorithm, session.keys.init
            sent, memory = algorithm.broadcast(state, key), algorithm.init_memory(state)
            task = Task(session.objective, (x, y), start, count, 1, session.parts)
            return reply_arrays(algorithm.client_update(sent, memory, task, key)[0])

        return jax.eval_shape(reply, session.state, x, y, number, number)


def _norm(tree: Tree) -> float:
    """Return the norm over floating-point leaves: a round counter is not part of a model."""
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]
    return float(norm(leaves))
