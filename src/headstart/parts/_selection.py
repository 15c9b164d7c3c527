"""Parts of a model: which leaves are trained, adapted, and kept at the client.

Every leaf of a model's parameters has a name (``layers.0.weight``). Patterns select leaves by name,
as in a shell; ``head`` selects what the model calls its head, and ``body`` the rest.

    trained   what training moves; the rest is frozen: it costs no gradient and is not sent
    adapted   what adaptation moves, also inside a meta-gradient; the rest stays as it is
    kept      what stays at the client: trained there, never sent, never averaged
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from headstart.algorithms._contract import Algorithm, ModelParts
from headstart.errors import ConfigError
from headstart.models._model import Examples, Model, find_head
from headstart.parts._kept_at_client import KeptAtClient
from headstart.trees import Tree, leaf_names, select_leaves

Patterns = tuple[str, ...]
EVERYTHING: Patterns = ("*",)


@dataclass(frozen=True)
class Parts:
    """The ``[parts]`` table of an experiment; by default the whole model is trained and adapted."""

    trained: Patterns = EVERYTHING
    adapted: Patterns = EVERYTHING
    kept: Patterns = ()

    @property
    def everything(self) -> bool:
        """Whether the whole model is trained, adapted and shared."""
        return self.trained == EVERYTHING and self.adapted == EVERYTHING and not self.kept


class TrainingSetup(NamedTuple):
    """What an engine trains: an algorithm, its initial parameters, and the parts of the model."""

    algorithm: Algorithm
    params: Tree
    parts: ModelParts | None


def prepare_training(
    parts: Parts, model: Model, algorithm: Algorithm, key: PRNGKeyArray, examples: Examples
) -> TrainingSetup:
    """Initialise the model's parameters and divide them as the parts say."""
    params = model.init(key, examples)
    if parts.everything:
        return TrainingSetup(algorithm, params, None)
    labels, head = leaf_names(params), find_head(model)
    trained = match_patterns(parts.trained, labels, head, "trained")
    inside = [label for label, chosen in zip(labels, trained, strict=True) if chosen]
    adapted = match_patterns(parts.adapted, inside, head, "adapted")
    frozen = select_leaves(params, [not chosen for chosen in trained])
    mine = None if all(adapted) else tuple(adapted)
    if parts.kept:
        kept = match_patterns(parts.kept, inside, head, "kept")
        if all(kept):
            raise ConfigError(
                f"parts.kept={list(parts.kept)} keeps everything that is trained at the client; "
                "use algorithm.name='local' for that"
            )
        algorithm = KeptAtClient(algorithm, tuple(kept))
    return TrainingSetup(algorithm, select_leaves(params, trained), ModelParts(frozen, mine))


def prepare_algorithm(
    parts: Parts, model: Model, algorithm: Algorithm, examples: Examples
) -> Algorithm:
    """Return only the algorithm, without computing parameters."""
    prepared: list[Algorithm] = []

    def prepare() -> Tree:
        setup = prepare_training(parts, model, algorithm, jax.random.key(0), examples)
        prepared.append(setup.algorithm)
        return setup.params

    jax.eval_shape(prepare)
    return prepared[0]


def match_patterns(
    patterns: Sequence[str], labels: Sequence[str], head: Sequence[str] | None, option: str
) -> list[bool]:
    """Return which of the labels the patterns select; a pattern without a match is an error.

    >>> match_patterns(["body"], ["a.w", "b.w"], ["b.*"], "trained")
    [True, False]
    """
    chosen = [False] * len(labels)
    for pattern in patterns:
        hits = [_matches(pattern, label, head) for label in labels]
        if not any(hits):
            raise ConfigError(
                f"parts.{option}: {pattern!r} selects nothing; there are {', '.join(labels[:12])}"
                + (", …" if len(labels) > 12 else "")
                + (" and the words head and body" if head else "")
            )
        chosen = [a or b for a, b in zip(chosen, hits, strict=True)]
    return chosen


def _matches(pattern: str, label: str, head: Sequence[str] | None) -> bool:
    if pattern in ("head", "body") and head:
        inside = any(fnmatchcase(label, part) for part in head)
        return inside if pattern == "head" else not inside
    return fnmatchcase(label, pattern)


def merge_frozen(params: Tree, parts: ModelParts | None) -> Tree:
    """Return all parameters, including the frozen ones."""
    return params if parts is None else eqx.combine(params, parts.frozen)
