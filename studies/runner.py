"""Run a study piece by piece: skip what is done, resume what was interrupted, store results.

Pieces on the same clients run one after the other, so that data is read once for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from headstart._diagnosis import Diagnosis, assess_diagnosis, diagnose
from headstart._experiments import Listener
from headstart._experiments.comparison import slug
from headstart._experiments.configuration import Experiment
from headstart._experiments.finished_run import Run
from headstart._experiments.recommendation import recommend_for_experiment
from headstart._experiments.results import host_facts
from headstart._experiments.training import run_experiment, score_again
from headstart.data._federated import FederatedDataset
from headstart.errors import DivergedError
from headstart.records import RunSummary
from headstart.records._base import JsonTable
from studies.stored_results import Results
from studies.study import MethodSearch, Piece, Study

ListenerFor = Callable[[str], Listener]
PIECES_PER_CACHE = 50
"""Compiled programs are forgotten after this many pieces, and after a search, which compiles many:
every one of them maps memory, and with some thousands a process runs into the system's limit."""
DIGITS = 5
"""Decimals of stored accuracies: a client has at most some hundred test examples."""


def run_study(
    study: Study,
    results: Results,
    work: Path,
    *,
    seeds: Sequence[int],
    quick: bool = False,
    listener: ListenerFor | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Run every piece that has no result yet; return their number.

    A piece's own run folder is in ``work``; ``results`` gets a line as soon as it is done.
    """
    listener = listener or (lambda label: Listener())
    clients = _Clients()
    count = 0
    while todo := _open_pieces(study, results, seeds, quick):
        pace = _Pace(todo)
        for number, piece in enumerate(todo, 1):
            say(f"{study.name}: {number} of {len(todo)}, {piece}{pace.left()}")
            begin = time.monotonic()
            results.add(_result(piece, work, clients, listener(str(piece))))
            pace.done(piece, time.monotonic() - begin)
            count += 1
            if piece.search is not None or count % PIECES_PER_CACHE == 0:
                jax.clear_caches()
    return count


def _open_pieces(study: Study, results: Results, seeds: Sequence[int], quick: bool) -> list[Piece]:
    """Return the open pieces, seed by seed: an early stop leaves whole tables with fewer seeds."""
    pieces = study.pieces(seeds, quick, results.seen)
    todo = [piece for piece in pieces if results.of(piece) is None]
    return sorted(todo, key=lambda piece: (piece.seed, str(piece.experiment.data)))


def _result(piece: Piece, work: Path, clients: _Clients, listener: Listener) -> JsonTable:
    folder = work / Path(*map(slug, piece.cell.split("/"))) / _folder_name(piece)
    experiment, data = piece.experiment, clients.of(piece)
    about = {
        "cell": piece.cell,
        "seed": piece.seed,
        "fingerprint": piece.fingerprint,
        "config": piece.table(),
    }
    if piece.diagnosed_against is not None:
        diagnosis = diagnose(experiment, baseline=piece.diagnosed_against, data=data)
        return {**about, **_summarize_diagnosis(diagnosis)}
    if piece.search is not None:
        return {**about, **_search_method(experiment, piece.search, listener)}
    started = (folder / "config.toml").exists()
    try:
        run = run_experiment(experiment, folder, resume=started, listener=listener, data=data)
    except DivergedError as error:
        listener.note(str(error))
        return {**about, "diverged": str(error).partition("; the last good checkpoint")[0]}
    return {**about, **summarize_run(run, piece, data)}


def _folder_name(piece: Piece) -> str:
    """Return the name of the run's folder; with other settings a piece is another run."""
    return f"seed-{piece.seed}-{piece.fingerprint[:8]}"


def summarize_run(run: Run, piece: Piece, data: FederatedDataset) -> JsonTable:
    """Return what is stored of a run: enough for every table and figure."""
    summary = run.summary
    metric = summary.metric.name
    record: JsonTable = {
        "data_digest": summary.data_digest,
        "seconds": summary.seconds,
        "evaluation_seconds": summary.evaluation_seconds,
        "gradient_evaluations": summary.gradient_evaluations,
        "known": _group(summary, "known"),
        "new": _group(summary, "new"),
        "training": [
            {
                "round": evaluation.round,
                "seconds": evaluation.seconds,
                "gradient_evaluations": evaluation.gradient_evaluations,
                "before": _round_floats(evaluation.known[metric].before.mean),
                "after": _round_floats(evaluation.known[metric].after.mean),
            }
            for evaluation in run.evaluations
        ],
        "host": host_facts().to_table(),
    }
    if summary.shots is not None:
        record["bytes"] = None if summary.bytes is None else summary.bytes.to_table()
        record["shots"] = [
            {
                "shots": each.shots,
                **{
                    group: _round_floats(curve.means[metric])
                    for group, curve in each.adaptation.groups.items()
                },
            }
            for each in summary.shots
        ]
    if piece.on_test:
        again = score_again(piece.experiment, run, data, adapt_on="test")
        record["known_adapted_on_test"] = _round_floats(again.groups["known"].means["accuracy"])
    if piece.each_client:
        columns = ("kind", "train_examples", "test_examples", "accuracy_before", "accuracy_after")
        record["clients"] = {
            name: [_round_floats(client.to_row()[name]) for client in run.clients]
            for name in columns
        }
    return record


def _summarize_diagnosis(diagnosis: Diagnosis) -> JsonTable:
    table = diagnosis.to_table()
    numbers = {key: table[key] for key in ("labels", "examples", "gammas", "pilot")}
    return {
        "diagnosis": _round_floats(
            {**numbers, "recommendation": assess_diagnosis(diagnosis).recommendation}
        ),
        "seconds": table["seconds"],
        "evaluation_seconds": 0.0,
        "host": host_facts().to_table(),
    }


def _search_method(experiment: Experiment, wanted: MethodSearch, listener: Listener) -> JsonTable:
    begin = time.monotonic()
    found = recommend_for_experiment(
        experiment, budget=wanted.budget, candidates=wanted.candidates, goal="new",
        validation_splits=wanted.splits, shots=wanted.shots, say=listener.note,
    )  # fmt: skip
    seen = found.winner.seen[-1]
    return {
        "chosen": {
            "algorithm": dict(found.experiment.algorithm),
            "rounds": found.experiment.rounds,
            "validation": round(seen.value, DIGITS),
        },
        "gradient_evaluations": found.search.spent,
        "seconds": round(time.monotonic() - begin, 1),
        "evaluation_seconds": 0.0,
        "host": host_facts().to_table(),
    }


def _group(summary: RunSummary, group: str) -> JsonTable | None:
    """Return the mean metric after 0, 1, 2 … adaptation steps, and its tenth percentile."""
    if summary.adaptation is None or group not in summary.adaptation.groups:
        return None
    curve, scores = summary.adaptation.groups[group], summary.scores.groups[group]
    metric = summary.metric.name
    return {
        metric: _round_floats(curve.means[metric]),
        "p10_after": _round_floats(scores[metric].after.p10),
        "loss_after": _round_floats(scores.loss and scores.loss.after.mean),
    }


def _round_floats(value: object) -> object:
    if isinstance(value, dict):
        return {key: _round_floats(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_round_floats(v) for v in value]
    return round(value, DIGITS) if isinstance(value, float) else value


class _Clients:
    """The data of the latest pieces; the next often have the same."""

    def __init__(self) -> None:
        self.key: tuple[str, int, bool] | None = None
        self.data: FederatedDataset | None = None

    def of(self, piece: Piece) -> FederatedDataset:
        key = (str(sorted(piece.experiment.data.items())), piece.seed, piece.tuning)
        if self.key != key or self.data is None:
            data = piece.experiment.build_data()
            self.key, self.data = key, data.for_tuning() if piece.tuning else data
        return self.data


class _Pace:
    """Time left, from seconds per gradient evaluation on the same kind of data."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.todo = list(pieces)
        self.spent: dict[str, tuple[float, float]] = {}

    def done(self, piece: Piece, seconds: float) -> None:
        """Record a finished piece."""
        self.todo.remove(piece)
        before = self.spent.get(_kind(piece), (0.0, 0.0))
        self.spent[_kind(piece)] = (before[0] + seconds, before[1] + _work(piece))

    def left(self) -> str:
        """Return the time left in words; empty until a piece is finished."""
        if not self.spent:
            return ""
        seconds = sum(self._rate(_kind(piece)) * _work(piece) for piece in self.todo)
        return f", about {max(1, round(seconds / 60))} min left"

    def _rate(self, kind: str) -> float:
        """Return seconds per unit of work on this kind of data, or on all if none is done yet."""
        spent = [self.spent[kind]] if kind in self.spent else list(self.spent.values())
        return sum(s for s, _ in spent) / sum(w for _, w in spent)


def _kind(piece: Piece) -> str:
    kind = f"{piece.experiment.data.get('source')} {piece.experiment.model}"
    return kind if piece.search is None else f"search {kind}"


def _work(piece: Piece) -> float:
    if piece.search is not None:
        return piece.search.budget * (piece.search.splits or 1)
    experiment = piece.experiment
    algorithm = experiment.build_algorithm()
    return experiment.rounds * algorithm.gradients_per_update(algorithm.largest_batch)
