"""Beyond the papers: clients that differ naturally, not by a constructed partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headstart.report import Panel
from studies.seed_curves import curve_panels, label_styles, mean_curve, over_steps
from studies.seed_statistics import (
    Gap,
    after,
    gap,
    make_claim,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import NETWORK, algorithm
from studies.study import Claim, Piece, Record, Section
from studies.tuning import Contender, grid

ADAPT_STEPS = 3


@dataclass(frozen=True)
class NaturalDataset:
    """A data set with naturally given clients, and how it is trained."""

    key: str
    title: str
    description: str
    """One line for the page."""
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    rounds: int
    participation: float
    common: Mapping[str, Any]
    """Options shared by all methods."""
    tries: Sequence[Mapping[str, float]]
    seed_factor: int = 1
    """How many times the requested seeds to run: fast runs can have narrow intervals."""
    most_clients: int = 10_000
    """The most known clients, and new clients, that are scored."""

    def table(self) -> dict[str, Any]:
        """Return the experiment without its algorithm."""
        return {
            "rounds": self.rounds,
            "participation": self.participation,
            "data": dict(self.data),
            "model": dict(self.model),
            "evaluation": {
                "every": self.rounds // 4,
                "adapt_steps": ADAPT_STEPS,
                "max_clients": self.most_clients,
            },
        }

    def contenders(self) -> list[Contender]:
        """Return FedAvg and two meta-gradients, each with the same trials."""
        inner = {"inner_steps": ADAPT_STEPS}
        return [
            Contender(f"{self.key}/{key}", label, algorithm(key, **self.common, **more), self.tries)
            for key, label, more in (
                ("fedavg", "FedAvg + update", {}),
                ("first-order", "Per-FedAvg (FO)", inner),
                ("exact", "Per-FedAvg (exact)", inner),
            )
        ]


WRITERS = NaturalDataset(
    "writers", "MNIST by writer",
    "539 writers with 19 to 131 digits each train together; 297 other writers join later.",
    {"source": "qmnist-writers"}, NETWORK, 400, 0.05,
    {"local_steps": 5, "batch_size": 20},
    [
        *grid(inner_lr=[0.003, 0.01, 0.03], local_lr=[0.01, 0.03, 0.1]),
        *grid(inner_lr=[0.03, 0.01, 0.003], local_lr=[0.3]),
    ],
)  # fmt: skip
ROLES = NaturalDataset(
    "roles", "Shakespeare by role",
    "Next-character prediction for roles with 2,000 characters or more; 89 of 447 join later.",
    {"source": "shakespeare", "new_clients": 89}, {"name": "char-lstm", "hidden": 32}, 100, 0.03,
    {"local_steps": 5, "batch_size": 8},
    [
        *({"inner_lr": step, "local_lr": step} for step in (0.3, 1.0, 3.0, 10.0)),
        *grid(inner_lr=[0.3, 1.0], local_lr=[3.0, 10.0]),
        *grid(inner_lr=[0.3, 1.0], local_lr=[30.0]),
    ],
    most_clients=60,
)  # fmt: skip
HOSPITALS = NaturalDataset(
    "hospitals", "four hospitals",
    "Heart disease, yes or no; three hospitals train, the fourth (chosen by the seed) joins later.",
    {"source": "heart-disease", "new_clients": 1}, {"name": "mlp", "hidden": [16]}, 200, 1.0,
    {"local_steps": 5, "batch_size": 16},
    grid(inner_lr=[0.01, 0.03, 0.1], local_lr=[0.0003, 0.001, 0.003, 0.01, 0.03]),
    seed_factor=4,
)  # fmt: skip
WALKERS = NaturalDataset(
    "walkers", "WISDM by person",
    "Six activities from a phone's accelerometer; 27 people train, 9 join later.",
    {"source": "wisdm", "new_clients": 9}, {"name": "mlp", "hidden": [80, 60]}, 400, 0.3,
    {"local_steps": 5, "batch_size": 16},
    grid(inner_lr=[0.003, 0.01, 0.03], local_lr=[0.01, 0.03, 0.1]),
    seed_factor=4,
)  # fmt: skip
NATURAL_DATASETS = (WRITERS, ROLES, HOSPITALS, WALKERS)


class NaturalClients:
    """The study."""

    name = "natural"
    title = "Beyond the papers: naturally different clients"
    summary = "writers, Shakespeare's roles, hospitals, people with phones; known and new clients"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return the trials of every method on every data set, then the best with every seed.

        Quick: one data set, because the digits replace all of them.
        """
        pieces = []
        for dataset in NATURAL_DATASETS[:1] if quick else NATURAL_DATASETS:
            more = range(dataset.seed_factor * len(seeds))
            for contender in dataset.contenders():
                pieces += contender.pieces(dataset.table(), more, quick, done, each_client=True)
        return pieces

    def section(self, records: Sequence[Record]) -> Section:
        """Show for each data set the accuracies, the gain per step, and which clients gain."""
        parts, figures, claims = [TEXT.format(steps=ADAPT_STEPS)], {}, []
        for dataset in NATURAL_DATASETS:
            contenders = [c for c in dataset.contenders() if mean(records, c.key) is not None]
            if not contenders:
                continue
            parts += [f"### {dataset.title[0].upper()}{dataset.title[1:]}", dataset.description]
            parts.append(_table(records, contenders))
            parts.append(f"![{dataset.title}: accuracy after 0 to 10 steps]({dataset.key})")
            parts.append(_describe_gains(records, dataset))
            figures[dataset.key] = _curves(records, contenders)
            claims.append(_claim(records, dataset))
        return Section("\n\n".join(parts), figures, claims)


TEXT = """\
Clients that differ because they are different people, roles and hospitals. FedAvg and Per-FedAvg
(ν = {steps} in training) have the same trials for α and β (eight to fifteen), on the known clients'
training data only and with a separate seed. Accuracy in percent, mean over clients, then mean
± 95 % interval over seeds. *Known* clients participated in training, *new* clients did not."""
GROUPS = ("known", "new")


def _table(records: Sequence[Record], contenders: Sequence[Contender]) -> str:
    shown = [(group, steps) for group in GROUPS for steps in (0, 1, ADAPT_STEPS, 10)]
    head = ["method", "options", *(f"{group}, {steps} steps" for group, steps in shown)]
    rows = []
    for contender in contenders:
        config = next(iter(records_of_cell(records, contender.key).values()))["config"]["algorithm"]
        options = f"α = {config['inner_lr']:g}, β = {config['local_lr']:g}"
        numbers = [
            mean(records, contender.key, partial(after, steps=steps, group=group))
            for group, steps in shown
        ]
        rows.append([contender.label, options, *numbers])
    return markdown_table(head, rows)


def _curves(records: Sequence[Record], contenders: Sequence[Contender]) -> list[Panel]:
    styles = label_styles([contender.label for contender in contenders])
    return curve_panels(
        [
            (f"{group} clients", "adaptation steps",
             [mean_curve(records, c.key, styles[c.label], over_steps(group)) for c in contenders])
            for group in GROUPS
        ],
        y_title="accuracy (%)",
    )  # fmt: skip


def _gain(dataset: NaturalDataset, records: Sequence[Record], group: str) -> Gap | None:
    measure = partial(after, group=group)
    return gap(records, f"{dataset.key}/exact", f"{dataset.key}/fedavg", measure)


def _claim(records: Sequence[Record], dataset: NaturalDataset) -> Claim:
    found = [(group, _gain(dataset, records, group)) for group in GROUPS]
    parts = [
        (g.above(), f"{group} clients after {ADAPT_STEPS} steps: {g}") for group, g in found if g
    ]
    return make_claim(f"{dataset.title}: the meta-learned start beats FedAvg + update", parts)


def _describe_gains(records: Sequence[Record], dataset: NaturalDataset) -> str:
    """Describe which clients are better off with the meta-learned start, averaged over seeds."""
    ours, base = (records_of_cell(records, f"{dataset.key}/{m}") for m in ("exact", "fedavg"))
    lines = []
    for group, kind in zip(GROUPS, ("trained", "new"), strict=True):
        gains, sizes = [], []
        for seed in sorted(ours.keys() & base.keys()):
            one, other = ours[seed]["clients"], base[seed]["clients"]
            chosen = np.array(one["kind"]) == kind
            difference = np.subtract(one["accuracy_after"], other["accuracy_after"])
            gains.append(100 * difference[chosen])
            sizes.append(np.array(one["train_examples"])[chosen])
        gain, size = np.concatenate(gains), np.concatenate(sizes)
        small, large = gain[size <= np.median(size)], gain[size > np.median(size)]
        text = (
            f"{group.capitalize()} clients: {100 * np.mean(gain > 0):.0f} % are better off with "
            f"Per-FedAvg (exact) than with FedAvg + update after {ADAPT_STEPS} steps, "
            f"{100 * np.mean(gain < 0):.0f} % worse"
        )
        if len(large):
            text += (
                f"; the mean gain is {small.mean():+.1f} points for those with at most "
                f"{np.median(size):.0f} training examples and {large.mean():+.1f} for the others"
            )
        lines.append(text + ".")
    return "\n".join(lines)
