"""The smallest of the bounds that are true: paper P's for ν = 1 and α ≤ 1/L, paper G's, and ours.

Where a paper's bound is not true (:mod:`headstart.theory.mended`), it is left out.
"""

from __future__ import annotations

from typing import Any

from headstart.theory import general, mended, one_step
from headstart.theory.assumptions import Constants
from headstart.theory.stationarity import Lemmas, Stationarity, bound


def smoothness(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """L_F: how fast ∇F_i can change."""
    return _smaller("smoothness", c, inner_lr=inner_lr, inner_steps=inner_steps)


def gradient_bias(c: Constants, **step: Any) -> float:
    """μ_F or m_F; arguments as in :func:`headstart.theory.bounds.gradient_bias`."""
    return _smaller("gradient_bias", c, **step)


def gradient_variance(c: Constants, **step: Any) -> float:
    """σ_F²; arguments as in :func:`headstart.theory.bounds.gradient_variance`."""
    return _smaller("gradient_variance", c, **step)


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """γ_F²: ours is sharper than both papers' for ν = 1, and true also for ν ≥ 2."""
    return mended.meta_similarity(c, inner_lr=inner_lr, inner_steps=inner_steps)


def stationarity(c: Constants, **arguments: Any) -> Stationarity:
    """The theorem with the smaller of each lemma's bounds, and the largest β it allows.

    Arguments are those of :func:`headstart.theory.stationarity.bound`.
    """
    lemmas = Lemmas(smoothness, gradient_bias, gradient_variance, meta_similarity)
    return bound(lemmas, c, mended=True, **arguments)


def _smaller(name: str, c: Constants, **arguments: Any) -> float:
    value: float = getattr(general, name)(c, **arguments)
    steps, rate = arguments["inner_steps"], arguments["inner_lr"]
    if one_step.applies(c, inner_lr=rate, inner_steps=steps):
        value = min(value, getattr(one_step, name)(c, **arguments))
    return value
