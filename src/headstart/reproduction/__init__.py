"""The papers' experiments, from raw data to a page with verdicts: ``headstart reproduce NAME``."""

from __future__ import annotations

from headstart.reproduction.page import build_page
from headstart.reproduction.results import Results
from headstart.reproduction.runner import carry_out
from headstart.reproduction.studies import STUDIES
from headstart.reproduction.study import Piece, Study

__all__ = ["STUDIES", "Piece", "Results", "Study", "build_page", "carry_out"]
