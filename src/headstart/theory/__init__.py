"""What the papers prove, made computable: constants, bounds, plans."""

from __future__ import annotations

from headstart.theory import bounds
from headstart.theory.assumptions import Constants

__all__ = ["Constants", "bounds"]
