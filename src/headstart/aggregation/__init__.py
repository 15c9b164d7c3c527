"""What happens to updates between client and server: a chain of steps, or a rule."""

from headstart._extensions import collect_builtin, require_subclass
from headstart.aggregation._chain import AggregatedAlgorithm, with_aggregation
from headstart.aggregation._interfaces import AggregationRule, AggregationStep
from headstart.aggregation._rules import GeometricMedian, Krum, Median, TrimmedMean
from headstart.aggregation._steps import Clip, Noise, Quantise

RULES: dict[str, type[AggregationRule]] = collect_builtin(
    __name__, require_subclass(AggregationRule)
)
"""Every built-in rule by the name an experiment file uses; the default is the weighted mean."""

STEPS: dict[str, type[AggregationStep]] = collect_builtin(
    __name__, require_subclass(AggregationStep)
)
"""Every built-in step by the name an experiment file uses."""

__all__ = [
    "RULES",
    "STEPS",
    "AggregatedAlgorithm",
    "AggregationRule",
    "AggregationStep",
    "Clip",
    "GeometricMedian",
    "Krum",
    "Median",
    "Noise",
    "Quantise",
    "TrimmedMean",
    "with_aggregation",
]
