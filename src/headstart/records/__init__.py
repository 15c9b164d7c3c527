"""What a run, an evaluation, a comparison, a federation's round is: typed, versioned records.

Every file that Headstart writes about results is read and written here. The classes are immutable;
``from_json`` and ``to_json`` check and write them, and files of version 0.1 are read.
Arrays are in :mod:`headstart.records._checkpoint` and :mod:`headstart.records._tensor_files`, which
need JAX; everything listed here does without.
"""

from headstart.records._base import Record
from headstart.records._client_result import Change, ClientResult, CsvCell, to_csv
from headstart.records._comparison_record import ComparisonRecord, ComparisonRow, Differences
from headstart.records._evaluation import ADAPTED_ON_TEST, AdaptOn, Evaluation
from headstart.records._personal_result import PersonalResult
from headstart.records._run_directory import RunDirectory, next_free
from headstart.records._run_summary import (
    SMALLER_STEPS,
    ByteCounts,
    ClientCounts,
    GradientsPerClient,
    HostFacts,
    RunSummary,
)
from headstart.records._scores import (
    GROUPS,
    KNOWN,
    NEW,
    AdaptationCurves,
    BeforeAfter,
    GroupCurve,
    GroupScores,
    ScoreSummary,
)
from headstart.records._seed_means import curves_over_seeds, scores_over_seeds
from headstart.records._statistics import (
    BETTER,
    FAILED,
    NOT_SHOWN,
    UNDECIDED,
    WORSE,
    PairedDifference,
    Statistic,
    describe,
    describe_defined,
    half_width,
    mean_or_none,
    over_seeds,
    paired_difference,
    verdict_of,
    worse_beyond_chance,
)
from headstart.records._step_choice import (
    ChosenSteps,
    GroupChoice,
    ShotScores,
    StepChoices,
    WorseOff,
)
from headstart.records._stored_runs import (
    StoredComparison,
    StoredMethod,
    StoredRun,
    is_comparison,
    read_comparison,
    read_folder,
    read_run,
    write_comparison,
)
from headstart.records._theory_bound import BoundByRounds, TheoryBound

__all__ = [
    "ADAPTED_ON_TEST",
    "BETTER",
    "FAILED",
    "GROUPS",
    "KNOWN",
    "NEW",
    "NOT_SHOWN",
    "SMALLER_STEPS",
    "UNDECIDED",
    "WORSE",
    "AdaptOn",
    "AdaptationCurves",
    "BeforeAfter",
    "BoundByRounds",
    "ByteCounts",
    "Change",
    "ChosenSteps",
    "ClientCounts",
    "ClientResult",
    "ComparisonRecord",
    "ComparisonRow",
    "CsvCell",
    "Differences",
    "Evaluation",
    "GradientsPerClient",
    "GroupChoice",
    "GroupCurve",
    "GroupScores",
    "HostFacts",
    "PairedDifference",
    "PersonalResult",
    "Record",
    "RunDirectory",
    "RunSummary",
    "ScoreSummary",
    "ShotScores",
    "Statistic",
    "StepChoices",
    "StoredComparison",
    "StoredMethod",
    "StoredRun",
    "TheoryBound",
    "WorseOff",
    "curves_over_seeds",
    "describe",
    "describe_defined",
    "half_width",
    "is_comparison",
    "mean_or_none",
    "next_free",
    "over_seeds",
    "paired_difference",
    "read_comparison",
    "read_folder",
    "read_run",
    "scores_over_seeds",
    "to_csv",
    "verdict_of",
    "worse_beyond_chance",
    "write_comparison",
]
