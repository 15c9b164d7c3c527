"""Turn the numbers of a diagnosis into a recommendation with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headstart._diagnosis.measuring import Diagnosis
from headstart._diagnosis.pilot import Gain
from headstart._experiments.recommendation import Recommendation as MethodAdvice
from headstart.heterogeneity import Distances
from headstart.theory._label_part import LabelPart

Recommendation = Literal["per-fedavg", "fedavg-update", "one-model"]
TITLES: dict[Recommendation, str] = {
    "per-fedavg": "Yes: train a start for personalisation (Per-FedAvg).",
    "fedavg-update": "Personalise, but plain FedAvg is start enough.",
    "one-model": "No: one common model serves these clients as well.",
}
DIFFERENT, MIXED = 0.5, 0.2
"""Shares of clients beyond chance; one in twenty is expected by chance alone."""


@dataclass(frozen=True)
class Assessment:
    """A recommendation and its reasons."""

    recommendation: Recommendation
    sentences: Sequence[str]

    @property
    def title(self) -> str:
        """The recommendation in a sentence."""
        return TITLES[self.recommendation]


def assess_diagnosis(diagnosis: Diagnosis, advice: MethodAdvice | None = None) -> Assessment:
    """Return the recommendation: the pilot decides, the distances explain.

    ``advice`` is the result of a search over methods, if there was one. It then decides between
    Per-FedAvg and FedAvg; the pilot, whether personalising pays at all.
    """
    pilot = diagnosis.pilot
    meta, updating = pilot.of_meta_learning, pilot.of_updating
    recommendation: Recommendation = (
        "per-fedavg" if meta.pays else "fedavg-update" if updating.pays else "one-model"
    )
    searched = [] if advice is None else advice.describe()
    if advice is not None:
        if advice.experiment.algorithm["name"] == "per-fedavg":
            recommendation = "per-fedavg"
        elif recommendation == "per-fedavg":
            recommendation = "fedavg-update"
    steps = f"{pilot.adapt_steps} step{'s' * (pilot.adapt_steps != 1)}"
    sentences = [
        *searched,
        _differ("labels", "total variation", diagnosis.labels),
        _differ("examples", "Wasserstein distance", diagnosis.examples),
        f"In a pilot of {pilot.rounds} rounds, {steps} on own data "
        f"{'changed' if pilot.metric.is_share else 'improved'} FedAvg's {pilot.metric.word} by "
        f"{updating}{pilot.metric.difference_unit} "
        f"({pilot.text(pilot.common)} → {pilot.text(pilot.updated)}): "
        + _worth(updating, "personalising pays", "personalising does not pay by itself"),
        f"Starting from Per-FedAvg instead gave {pilot.text(pilot.meta)}, a gain of "
        f"{meta}{pilot.metric.difference_unit}: "
        + _worth(meta, "meta-learning pays", "meta-learning adds nothing that can be told"),
        _most_different(diagnosis),
        *explain_label_bound(diagnosis.label_part),
        *_caveats(diagnosis),
    ]
    return Assessment(recommendation, sentences)


def _differ(what: str, measure: str, distances: Distances) -> str:
    share = float(distances.beyond_chance.mean())
    if share >= DIFFERENT:
        words = f"Clients differ in their {what}"
    elif share >= MIXED:
        words = f"Some clients differ in their {what}"
    else:
        words = f"Clients differ in their {what} no more than chance explains"
    return (
        f"{words}: {100 * share:.0f} % are farther from the mean than 95 % of clients of their "
        f"size would be by chance (mean {measure} {distances.to_mean.mean():.2f}, by chance up to "
        f"{distances.chance.mean():.2f})."
    )


def _worth(gain: Gain, yes: str, no: str) -> str:
    if gain.pays:
        return f"{yes}."
    if gain.mean >= gain.worth:
        return f"{no}: it may be an accident; more repetitions can tell."
    least = "1 point" if gain.metric.is_share else f"{gain.metric.figure(gain.worth)}, or 1 %"
    return f"{no} (less than {least})."


def _most_different(diagnosis: Diagnosis) -> str:
    """Name the clients that are farthest from the mean."""
    distances = diagnosis.examples
    order = np.argsort(-distances.to_mean, kind="stable")[:5]
    names = ", ".join(str(diagnosis.names[int(distances.clients[i])]) for i in order)
    return f"Farthest from the mean: {names}."


def explain_label_bound(part: LabelPart | None) -> list[str]:
    """Say why the label bound does not apply; return nothing if it may apply."""
    if part is None or part.bound_applies:
        return []
    if part.beyond_chance:
        return [
            "Clients differ in more than their labels, so the label bound on γ_G does not apply: "
            f"labels explain {100 * part.share_explained:.0f} % of γ_G², and what they leave "
            f"({part.unexplained_G:.3g}) is more than chance would (up to {part.chance_G:.3g})."
        ]
    return [
        "Clients' examples differ in more than their labels, if only by chance, so the label bound "
        f"on γ_G does not apply: γ_G is {part.gamma_G:.3g}, the bound {part.bound_G:.3g}."
    ]


def _caveats(diagnosis: Diagnosis) -> list[str]:
    """Return what could make the recommendation wrong."""
    caveats = []
    meta = diagnosis.pilot.of_meta_learning
    alike = max(d.beyond_chance.mean() for d in (diagnosis.labels, diagnosis.examples)) < MIXED
    if meta.pays and alike:
        caveats.append(
            "The gain does not come from differences between clients, as they hardly differ: other "
            "step sizes for FedAvg may give it too."
        )
    if diagnosis.train_counts.min() < 10:
        few = int(np.sum(diagnosis.train_counts < 10))
        caveats.append(f"{few} clients have fewer than 10 training examples, which says little.")
    return caveats
