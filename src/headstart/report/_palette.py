"""One look for all charts: colours that colour-blind readers can distinguish (Okabe and Ito).

The baseline is grey, because the others are compared with it. A method keeps its colour in every
chart. All colours are legible on white and on near-black.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.records import KNOWN, NEW

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, GREY = "#56B4E9", "#E69F00", "#7A7A7A"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
PALE = "#F4F8FB"
"""The other end of a colour scale that ends in blue."""
DASHES = ("solid", "dash", "dot", "dashdot")
GROUP_COLOURS = {KNOWN: BLUE, NEW: VERMILION}


@dataclass(frozen=True)
class SeriesStyle:
    """How one series is named and drawn; ``key`` identifies it in the page's code."""

    key: str
    label: str
    colour: str
    dash: str = "solid"


def method_styles(labels: Sequence[str], baseline: str | None) -> dict[str, SeriesStyle]:
    """Return a style for every method; when colours run out, dashes distinguish methods.

    >>> [style.colour for style in method_styles(["a", "b"], baseline="a").values()]
    ['#7A7A7A', '#0072B2']
    """
    styles, used = {}, 0
    for index, label in enumerate(labels):
        if label == baseline:
            styles[label] = SeriesStyle(f"m{index}", label, GREY)
            continue
        dash = DASHES[used // len(COLOURS) % len(DASHES)]
        styles[label] = SeriesStyle(f"m{index}", label, COLOURS[used % len(COLOURS)], dash)
        used += 1
    return styles
