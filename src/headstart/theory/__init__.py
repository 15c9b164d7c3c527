"""The papers' theory as code: constants, bounds and plans; and closed forms beyond them."""

from __future__ import annotations

from headstart.theory import bounds, when_it_pays
from headstart.theory._assumptions import Constants
from headstart.theory._convergence import ConvergenceBound
from headstart.theory._estimation import Estimate, compute_mean_loss, estimate_constants
from headstart.theory._label_part import LabelPart, measure_label_part
from headstart.theory._planning import FederationProfile, Plan, make_plan

__all__ = [
    "Constants", "ConvergenceBound", "Estimate", "FederationProfile", "LabelPart", "Plan",
    "bounds", "compute_mean_loss", "estimate_constants", "make_plan", "measure_label_part",
    "when_it_pays",
]  # fmt: skip
