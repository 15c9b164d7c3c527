"""Beyond the papers: clients that differ by nature, not by our design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.reproduction.settings import NETWORK, algorithm
from headstart.reproduction.study import Piece, Record
from headstart.reproduction.tuning import Contender, grid

ADAPT_STEPS = 3


@dataclass(frozen=True)
class People:
    """A data set whose clients are who they are, and how it is learned."""

    key: str
    title: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    rounds: int
    participation: float
    common: Mapping[str, Any]
    """Options of every method."""
    tries: Sequence[Mapping[str, float]]

    def table(self) -> dict[str, Any]:
        """The experiment without its algorithm."""
        return {
            "rounds": self.rounds,
            "participation": self.participation,
            "data": dict(self.data),
            "model": dict(self.model),
            "evaluation": {"every": self.rounds // 5, "adapt_steps": ADAPT_STEPS},
        }

    def contenders(self) -> list[Contender]:
        """FedAvg and two meta-gradients, each with the same tries."""
        inner = {"inner_steps": ADAPT_STEPS}
        return [
            Contender(f"{self.key}/{key}", label, algorithm(key, **self.common, **more), self.tries)
            for key, label, more in (
                ("fedavg", "FedAvg + update", {}),
                ("first-order", "Per-FedAvg (FO)", inner),
                ("exact", "Per-FedAvg (exact)", inner),
            )
        ]


WRITERS = People(
    "writers", "MNIST by writer",
    {"source": "qmnist-writers"}, NETWORK, 400, 0.05,
    {"local_steps": 5, "batch_size": 20},
    grid(inner_lr=[0.01, 0.03, 0.1], local_lr=[0.03, 0.1]),
)  # fmt: skip
ROLES = People(
    "roles", "Shakespeare by role",
    {"source": "shakespeare", "new_clients": 89}, {"name": "char-lstm"}, 100, 0.03,
    {"local_steps": 5, "batch_size": 8},
    grid(inner_lr=[0.1, 0.3, 1.0], local_lr=[0.3, 1.0]),
)  # fmt: skip
HOSPITALS = People(
    "hospitals", "four hospitals",
    {"source": "heart-disease", "new_clients": 1}, {"name": "mlp", "hidden": [16]}, 200, 1.0,
    {"local_steps": 5, "batch_size": 16},
    grid(inner_lr=[0.01, 0.03, 0.1], local_lr=[0.01, 0.03]),
)  # fmt: skip
WALKERS = People(
    "walkers", "WISDM by person",
    {"source": "wisdm", "new_clients": 9}, {"name": "mlp", "hidden": [80, 60]}, 400, 0.3,
    {"local_steps": 5, "batch_size": 16},
    grid(inner_lr=[0.01, 0.03, 0.1], local_lr=[0.03, 0.1]),
)  # fmt: skip
EVERYONE = (WRITERS, ROLES, HOSPITALS, WALKERS)


class NaturalClients:
    """The study."""

    name = "natural"
    title = "Beyond the papers: naturally different clients"
    summary = "writers, Shakespeare's roles, hospitals, people with phones; known and new clients"

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Tries of every method on every data set, then the best ones."""
        return [
            piece
            for people in EVERYONE
            for contender in people.contenders()
            for piece in contender.pieces(people.table(), seeds, quick, done, each_client=True)
        ]
