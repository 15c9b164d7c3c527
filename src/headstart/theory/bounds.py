"""Every lemma and theorem of the two papers as a function named for what it bounds.

The functions here are paper G's: any number ν of adaptation steps, any α. ``bounds.one_step`` has
paper P's for ν = 1 and α ≤ 1/L under the same names. ``bounds.sharpest`` returns the smallest bound
that applies.

>>> from headstart.theory import Constants
>>> c = Constants(B=1, L=1, rho=0, sigma_G=0, sigma_H=0, kappa_G=0, kappa_H=0, gamma_G=0, gamma_H=0)
>>> smoothness(c, inner_lr=1.0, inner_steps=1), one_step.smoothness(c, inner_lr=1.0)
(4.0, 4.0)
"""

from __future__ import annotations

from headstart.theory import _one_step as one_step
from headstart.theory import _sharpest as sharpest
from headstart.theory._any_steps import (
    AdaptedModelError,
    adapted_model_error,
    gradient_bias,
    gradient_variance,
    meta_similarity,
    smoothness,
    stationarity,
)
from headstart.theory._convergence import ConvergenceBound

__all__ = [
    "AdaptedModelError", "ConvergenceBound", "adapted_model_error", "gradient_bias",
    "gradient_variance", "meta_similarity", "one_step", "sharpest", "smoothness", "stationarity",
]  # fmt: skip
