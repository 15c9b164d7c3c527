"""The smallest valid bound: paper P's for ν = 1 and α ≤ 1/L, paper G's, or the corrected one.

Bounds of the papers that are false (:mod:`headstart.theory._corrected`) are left out.
"""

from __future__ import annotations

from typing import Any

from headstart.theory import _any_steps as any_steps
from headstart.theory import _corrected as corrected
from headstart.theory import _one_step as one_step
from headstart.theory._assumptions import Constants
from headstart.theory._convergence import ConvergenceBound, Lemmas, evaluate_theorem


def smoothness(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """L_F: the Lipschitz constant of ∇F_i."""
    return _take_smaller("smoothness", c, inner_lr=inner_lr, inner_steps=inner_steps)


def gradient_bias(c: Constants, **step: Any) -> float:
    """μ_F or m_F; takes the arguments of :func:`headstart.theory.bounds.gradient_bias`."""
    return _take_smaller("gradient_bias", c, **step)


def gradient_variance(c: Constants, **step: Any) -> float:
    """σ_F²; takes the arguments of :func:`headstart.theory.bounds.gradient_variance`."""
    return _take_smaller("gradient_variance", c, **step)


def meta_similarity(c: Constants, *, inner_lr: float, inner_steps: int) -> float:
    """γ_F²: the corrected bound, sharper than both papers' for ν = 1 and true for ν ≥ 2."""
    return corrected.meta_similarity(c, inner_lr=inner_lr, inner_steps=inner_steps)


def stationarity(c: Constants, **arguments: Any) -> ConvergenceBound:
    """Return the theorem with the smaller bound of each lemma, and the largest β it allows.

    Takes the arguments of :func:`headstart.theory._convergence.evaluate_theorem`.
    """
    lemmas = Lemmas(smoothness, gradient_bias, gradient_variance, meta_similarity)
    return evaluate_theorem(lemmas, c, corrected=True, **arguments)


def _take_smaller(name: str, c: Constants, **arguments: Any) -> float:
    value: float = getattr(any_steps, name)(c, **arguments)
    steps, rate = arguments["inner_steps"], arguments["inner_lr"]
    if one_step.applies(c, inner_lr=rate, inner_steps=steps):
        value = min(value, getattr(one_step, name)(c, **arguments))
    return value
