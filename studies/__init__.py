"""The papers' experiments, from raw data to a page with verdicts (``headstart reproduce NAME``)."""

from __future__ import annotations

from studies.registry import STUDIES
from studies.reproduction_page import build_page
from studies.runner import run_study
from studies.stored_results import Results
from studies.study import Piece, Study

__all__ = ["STUDIES", "Piece", "Results", "Study", "build_page", "run_study"]
