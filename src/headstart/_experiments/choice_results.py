"""From clients' choices of steps to records: what the choice changes, and who is worse off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from headstart._experiments.results import ClientFacts, adaptation_curves, rows_by_group
from headstart._simulation.scoring import Scores
from headstart._simulation.step_choice import FOLDS, Choices
from headstart.records import (
    KNOWN,
    NEW,
    ClientResult,
    GroupChoice,
    ShotScores,
    StepChoices,
    WorseOff,
    describe_defined,
    worse_beyond_chance,
)


def summarize_choices(
    scores: Scores, choices: Choices, clients: ClientFacts, steps: int
) -> StepChoices:
    """Return what known and new clients reach with the configured and with chosen steps."""
    groups = {
        group: _summarize_group(scores, choices, rows, steps)
        for group, rows in rows_by_group(scores, clients).items()
    }
    return StepChoices(most_steps=steps, folds=FOLDS, known=groups[KNOWN], new=groups.get(NEW))


def add_choices(results: Sequence[ClientResult], choices: Choices) -> tuple[ClientResult, ...]:
    """Return the clients' results with the number of steps that each chose."""
    steps = dict(zip(choices.clients.tolist(), choices.steps.tolist(), strict=True))
    return tuple(
        result.model_copy(update={"chosen_steps": steps.get(result.client)}) for result in results
    )


def summarize_shots(
    scores: dict[int, Scores], clients: ClientFacts
) -> tuple[ShotScores, ...] | None:
    """Return mean metrics by number of examples and of steps; None if nothing was measured."""
    return (
        tuple(
            ShotScores(shots=shots, adaptation=adaptation_curves(each, clients))
            for shots, each in scores.items()
        )
        or None
    )


def _summarize_group(
    scores: Scores, choices: Choices, rows: Int[np.ndarray, " rows"], steps: int
) -> GroupChoice:
    before, fixed = scores.primary[rows, 0], scores.primary[rows, steps]
    chosen = scores.primary[rows, choices.steps[rows]]
    return GroupChoice(
        metric=describe_defined(chosen),
        mean_steps=float(np.mean(choices.steps[rows])),
        unadapted=float(np.mean(choices.steps[rows] == 0)),
        fixed=_worse_off(scores, before, fixed, choices.fixed[rows]),
        chosen=_worse_off(scores, before, chosen, choices.chosen[rows]),
    )


def _worse_off(
    scores: Scores,
    before: Float[np.ndarray, " rows"],
    after: Float[np.ndarray, " rows"],
    pairs: Int[np.ndarray, "rows 2"],
) -> WorseOff:
    change = after - before if scores.metric.direction == "higher" else before - after
    defined = change[np.isfinite(change)]
    beyond = [worse_beyond_chance(better, worse) for better, worse in pairs.tolist()]
    return WorseOff(
        lower=float(np.mean(defined < 0)) if len(defined) else None,
        beyond_chance=float(np.mean(beyond)),
    )
