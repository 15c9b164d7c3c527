"""Closed forms that say when a meta-learned start, or learned rates, are worth their cost.

``QuadraticClients`` and the functions beside it are about the start, with full gradients: clients
that differ in where their optimum is give FedAvg and Per-FedAvg the same start; clients that also
differ in curvature do not. The functions on few examples are about the rates of adaptation.

>>> clients = QuadraticClients(curvatures=[[[1.0]], [[4.0]]], optima=[[-1.0], [1.0]])
>>> fedavg = clients.start(fedavg_weights(clients.curvatures, local_lr=0.01, local_steps=1))
>>> meta = clients.start(meta_weights(clients.curvatures, inner_lr=0.2, inner_steps=1))
>>> round(float(fedavg[0]), 3), round(float(meta[0]), 3)
(0.6, -0.6)
"""

from __future__ import annotations

from headstart.theory._few_examples import (
    best_rate,
    best_rates,
    excess_loss,
    largest_useful_examples,
)
from headstart.theory._quadratic_clients import (
    QuadraticClients,
    fedavg_elasticity,
    fedavg_weights,
    matching_local_steps,
    meta_elasticity,
    meta_weights,
    one_rate_contraction,
)

__all__ = [
    "QuadraticClients", "best_rate", "best_rates", "excess_loss", "fedavg_elasticity",
    "fedavg_weights", "largest_useful_examples", "matching_local_steps", "meta_elasticity",
    "meta_weights", "one_rate_contraction",
]  # fmt: skip
