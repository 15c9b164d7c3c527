"""One look for all figures: colours that colour-blind readers can tell apart (Okabe and Ito).

The baseline is grey, as what the others are measured against; a method keeps its colour in every
figure. All colours stand out on white and on near-black.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.report.records import KNOWN, NEW

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, GREY = "#56B4E9", "#E69F00", "#7A7A7A"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("solid", "dash", "dot", "dashdot")
GROUP_COLOURS = {KNOWN: BLUE, NEW: VERMILION}
ADAPTED_ON_TEST = (
    "adapted on the data that is scored (adapt_on = test): no estimate for unseen data"
)


@dataclass(frozen=True)
class Look:
    """How one series is drawn; ``key`` is its name in the page's own code."""

    key: str
    label: str
    colour: str
    dash: str = "solid"


def method_looks(labels: Sequence[str], baseline: str | None) -> dict[str, Look]:
    """A look for every method; when colours run out, dashes tell methods apart.

    >>> [look.colour for look in method_looks(["a", "b"], baseline="a").values()]
    ['#7A7A7A', '#0072B2']
    """
    looks, used = {}, 0
    for index, label in enumerate(labels):
        if label == baseline:
            looks[label] = Look(f"m{index}", label, GREY)
            continue
        dash = DASHES[used // len(COLOURS) % len(DASHES)]
        looks[label] = Look(f"m{index}", label, COLOURS[used % len(COLOURS)], dash)
        used += 1
    return looks


def translucent(colour: str, opacity: float) -> str:
    """The colour as CSS rgba.

    >>> translucent("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"
