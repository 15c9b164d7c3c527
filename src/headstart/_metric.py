"""A metric: a named number with a direction and a unit, and its format in text.

Objectives compute metrics (:mod:`headstart.models.objectives`). This module is enough to store,
compare and show them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Direction = Literal["higher", "lower"]
Unit = Literal["%", ""]
DASH = "–"
DIGITS = 3
"""Significant digits of a metric that is not a share."""
ROUNDING = 0.0005
"""Shares that are equal in a table (one decimal of a percent) count as equal."""


@dataclass(frozen=True)
class Metric:
    """A name, which direction is better, and a unit: ``%`` marks a share between 0 and 1.

    >>> Metric("accuracy", "higher", "%").text(0.9714), Metric("rmse", "lower").text(12.3456)
    ('97.1 %', '12.3')
    """

    name: str
    direction: Direction = "higher"
    unit: Unit = ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Metric:
        """Return the primary metric of a summary, a comparison or an evaluation.

        Records written before metrics had names are about accuracy.

        >>> Metric.of({}).name
        'accuracy'
        """
        table = record.get("metric")
        return ACCURACY if table is None else cls(**table)

    def to_table(self) -> dict[str, str]:
        """Return the table in a record that :meth:`of` reads."""
        return {"name": self.name, "direction": self.direction, "unit": self.unit}

    @property
    def is_share(self) -> bool:
        """Whether values lie between 0 and 1 and are shown in percent."""
        return self.unit == "%"

    @property
    def scale(self) -> float:
        """The factor from a stored value to the one that is shown."""
        return 100.0 if self.is_share else 1.0

    @property
    def title(self) -> str:
        """The title of an axis: the name with its unit.

        >>> ACCURACY.title, Metric("rmse", "lower").title
        ('accuracy (%)', 'RMSE')
        """
        return self.titled("")

    def titled(self, when: str) -> str:
        """Return the title of an axis, for values before or after adaptation.

        >>> ACCURACY.titled("after"), ACCURACY.titled("")
        ('accuracy after (%)', 'accuracy (%)')
        """
        words = f"{self.word} {when}".rstrip()
        return f"{words} (%)" if self.is_share else words

    @property
    def word(self) -> str:
        """The name in a sentence.

        >>> Metric("balanced-accuracy").word, Metric("r2").word
        ('balanced accuracy', 'R²')
        """
        return _WORDS.get(self.name, self.name.replace("-", " "))

    @property
    def heading(self) -> str:
        """The name at the beginning of a title."""
        return self.word[:1].upper() + self.word[1:]

    @property
    def meaning(self) -> str:
        """What the metric measures, in a few words."""
        return MEANINGS.get(self.name, f"a score; {self.direction} is better")

    @property
    def difference_unit(self) -> str:
        """The unit of differences, with a space before it; empty if there is none."""
        return " points" if self.is_share else ""

    def gain(self, value: Any, against: Any) -> Any:
        """Return how much better a value is than another; negative if it is worse.

        >>> Metric("rmse", "lower").gain(2.0, 3.0)
        1.0
        """
        return value - against if self.direction == "higher" else against - value

    def is_worse(self, value: float, than: float) -> bool:
        """Return whether a value is worse, by more than rounding in a table hides."""
        margin = ROUNDING if self.is_share else ROUNDING * max(abs(value), abs(than))
        return self.gain(value, than) < -margin

    def figure(self, value: float) -> str:
        """Format a number without its unit.

        >>> Metric("rmse", "lower").figure(0.00123456), Metric("mae", "lower").figure(123456.7)
        ('0.00123', '123,000')
        """
        return f"{100 * value:.1f}" if self.is_share else _significant(value)

    def text(self, value: float | None) -> str:
        """Format a number with its unit; a dash for None."""
        if value is None:
            return DASH
        return self.figure(value) + (" %" if self.is_share else "")

    def with_interval(self, mean: float | None, half_width: float | None) -> str:
        """Format a mean and half the width of its interval.

        >>> ACCURACY.with_interval(0.971, 0.008), ACCURACY.with_interval(0.971, None)
        ('97.1 % ± 0.8', '97.1 %')
        """
        if mean is None or half_width is None:
            return self.text(mean)
        return f"{self.text(mean)} ± {self.figure(half_width)}"

    def signed(self, difference: float) -> str:
        """Format a difference with its sign.

        >>> ACCURACY.signed(0.012), ACCURACY.signed(-0.00001), Metric("rmse").signed(-0.5)
        ('+1.2', '0.0', '−0.500')
        """
        if self.is_share:
            rounded = round(100 * difference, 1)
            return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"
        sign = "−" if difference < 0 else "+" if difference > 0 else ""
        return sign + _significant(abs(difference))


_WORDS = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "auc": "AUC", "macro-f1": "macro-F1"}
MEANINGS = {
    "accuracy": "share of right answers",
    "balanced-accuracy": "share of right answers, every class counting the same",
    "macro-f1": "mean over classes of the harmonic mean of precision and recall",
    "auc": "how often an example of a class is ranked above one of the others",
    "calibration-error": "how far the model's confidence is from its share of right answers",
    "rmse": "root of the mean squared error, in the label's units; lower is better",
    "mae": "mean absolute error, in the label's units; lower is better",
    "r2": "share of the label's variance that is explained; 0 is no better than the mean",
    "label-accuracy": "share of labels answered right",
    "exact-match": "share of examples with every label right",
}
"""What the built-in metrics measure."""

ACCURACY = Metric("accuracy", "higher", "%")
"""The metric of classification, and of every record that names none."""


def _significant(value: float) -> str:
    """Format with three significant digits, without an exponent unless the number needs one."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{DIGITS - 1}e}")
    size = math.floor(math.log10(abs(rounded)))
    if not -5 <= size <= 8:
        return f"{rounded:.{DIGITS}g}"
    return f"{rounded:,.{max(0, DIGITS - 1 - size)}f}"
