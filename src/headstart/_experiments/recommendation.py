"""Recommend a method for a federation: which one, how many local steps, which step sizes.

The candidates are few and always the same, so that nobody needs to know step sizes. They were
chosen in trials that are not stored, on digits, MNIST, QMNIST writers, WISDM and synthetic clients:
with Adam at the server the length of an update does not matter, a norm of 5 stops the rare huge
gradients that ruin a run, and a little weight decay keeps the model from learning few clients by
heart. What remains to be found is how much clients contradict each other. The more they do, the
more the loss *after* adaptation should count; the less they do, the more plain local steps achieve
with the same gradients. Hence two families:

- **FedAvg + update**: local steps on the client's loss, then adaptation with one α.
- **Per-FedAvg with learned rates**, mostly first-order: the losses before and between the
  adaptation steps count with a weight c beside the last. c = 0 is Per-FedAvg; a large c comes close
  to FedAvg.

:func:`headstart._experiments.search.search` trains all of them for the same number of gradient
evaluations and judges them by validation clients, without held-out examples and new clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headstart._experiments.arguments import check_arguments
from headstart._experiments.configuration import (
    EvaluationOptions,
    Experiment,
    Table,
    build_algorithm,
)
from headstart._experiments.description import describe_experiment
from headstart._experiments.search import Goal, Say, Search, Subject, Trial, search
from headstart._simulation.sampling import count_active_clients
from headstart._simulation.simulation import Simulation
from headstart.algorithms import Algorithm, FedAvg
from headstart.data._federated import FederatedDataset
from headstart.models._model import Model
from headstart.models.objectives import ObjectiveLike
from headstart.options import require_at_least
from headstart.parts import Parts
from headstart.records._base import JsonTable

STABLE: dict[str, object] = {"max_gradient_norm": 5.0}
"""What every candidate shares in training."""
FULL: dict[str, object] = {"full_batch_adaptation": True}
"""What every candidate shares in adaptation: steps on all of a client's examples."""
ADAM: dict[str, object] = {**STABLE, "server_optimizer": "adam", "server_lr": 0.01}
MEAN: dict[str, object] = {**STABLE, "server_optimizer": "none", "server_lr": 1.0}
"""The server's two ways: Adam, and the mean of the clients' models."""
KEPT = ("batch_size", "weights")
"""What candidates take from the experiment's own algorithm."""
TIMES = 6
"""A search spends this many times the gradient evaluations of one training run: then the last
candidates are trained for about as long as the run."""


@dataclass(frozen=True)
class Recommendation:
    """The experiment to run, and the search that found it."""

    experiment: Experiment
    search: Search

    @property
    def algorithm(self) -> Algorithm:
        """The recommended method, for :func:`headstart.train`."""
        return self.experiment.build_algorithm()

    @property
    def rounds(self) -> int:
        """Rounds of training that keep to the budget."""
        return self.experiment.rounds

    @property
    def winner(self) -> Trial:
        """The best candidate."""
        return self.search.winner

    @property
    def best_plain(self) -> Trial | None:
        """The FedAvg + update that came farthest."""
        plain = [t for t in self.search.trials if t.options.get("name") == "fedavg" and t.seen]
        return max(plain, key=lambda t: (len(t.seen), t.rank), default=None)

    def describe(self) -> list[str]:
        """Say what is recommended, what it reached, and how FedAvg + update compares."""
        found, metric = self.search, self.search.metric
        judges = {
            "new": f"{len(found.validation_clients)} clients that were kept out of training",
            "known": "further examples of the clients in training",
            "both": "clients in training and clients kept out of it",
        }
        sentences = [
            f"Recommended: {describe_method(self.experiment.algorithm)}. A search over "
            f"{len(found.trials)} candidates, judged by {judges[found.goal]}, found that it "
            f"reaches {metric.text(self.winner.value)} with {self.winner.seen[-1].gradients:,} "
            "gradient evaluations."
        ]
        plain = self.best_plain
        if plain is not None and plain is not self.winner and plain.value is not None:
            sentences.append(
                f"The best FedAvg + update of the search, {describe_method(plain.options)}, "
                f"reached {metric.text(plain.value)} with {plain.seen[-1].gradients:,}."
            )
        return sentences

    def to_table(self) -> JsonTable:
        """Return the recommendation and every candidate, for ``diagnosis.json``."""
        return {
            "algorithm": dict(self.experiment.algorithm),
            "rounds": self.experiment.rounds,
            "goal": self.search.goal,
            "validation_clients": list(self.search.validation_clients),
            "gradient_evaluations": self.search.spent,
            "candidates": [
                {
                    "options": dict(trial.options),
                    "seen": [[seen.gradients, seen.value] for seen in trial.seen],
                    "discarded": trial.discarded,
                }
                for trial in self.search.trials
            ],
        }


def describe_method(algorithm: Table) -> str:
    """Describe an ``[algorithm]`` table by what distinguishes the candidates.

    >>> describe_method({"name": "fedavg", "local_steps": 5, "local_lr": 0.2, "inner_lr": 0.1})
    'FedAvg with 5 local steps of β = 0.2, then adaptation with α = 0.1'
    """
    steps = int(str(algorithm["local_steps"]))
    local = f"{steps} local step{'s' * (steps != 1)} of β = {algorithm['local_lr']:g}"
    server = algorithm.get("server_optimizer")
    if server not in (None, "none"):
        local += f", {str(server).capitalize()} at the server ({algorithm['server_lr']:g})"
    if algorithm.get("weight_decay"):
        local += f", weight decay {algorithm['weight_decay']:g}"
    examples = " to all examples" if algorithm.get("full_batch_adaptation") else ""
    if algorithm["name"] == "fedavg":
        return f"FedAvg with {local}, then adaptation{examples} with α = {algorithm['inner_lr']:g}"
    words = f"Per-FedAvg ({algorithm['method']}, ν = {algorithm['inner_steps']}) with {local}"
    if algorithm.get("rates", "fixed") != "fixed":
        words += f", rates learned {algorithm['rates']} from α = {algorithm['inner_lr']:g}"
    else:
        words += f", α = {algorithm['inner_lr']:g}"
    if algorithm.get("earlier_losses"):
        words += f", losses before the last step counting {algorithm['earlier_losses']:g}"
    return f"{words}, adaptation{examples}" if examples else words


def all_candidates(adapt_steps: int) -> list[Table]:
    """Return every candidate for clients that take this many adaptation steps."""
    return [*fedavg_candidates(), *learned_rates_candidates(adapt_steps)]


def fedavg_candidates() -> list[Table]:
    """Return FedAvg with several servers, local steps and values of α."""
    kinds = [  # server, weight decay, τ, α
        (ADAM, 0.01, 1, 0.03), (ADAM, 0.01, 5, 0.01), (ADAM, 0.01, 5, 0.03), (ADAM, 0.01, 5, 0.1),
        (ADAM, 0.01, 5, 0.3), (ADAM, 0.01, 20, 0.3), (ADAM, 0.0, 5, 0.3), (MEAN, 0.0, 5, 0.3),
        (MEAN, 0.0, 20, 0.1),
    ]  # fmt: skip
    return [
        {"name": "fedavg", **server, **FULL, "local_lr": 0.5, "weight_decay": decay,
         "local_steps": tau, "inner_lr": alpha}
        for server, decay, tau, alpha in kinds
    ]  # fmt: skip


def learned_rates_candidates(adapt_steps: int) -> list[Table]:
    """Return Per-FedAvg with learned rates for this many adaptation steps; none for 0."""
    if adapt_steps == 0:
        return []
    common: Table = {
        "name": "per-fedavg", **ADAM, **FULL, "inner_steps": adapt_steps, "rates": "per-array",
        "rates_per_step": True, "local_steps": 1, "local_lr": 0.2,
    }  # fmt: skip
    kinds = [  # method, α, c, weight decay
        ("first-order", 0.3, 0.3, 0.01), ("first-order", 0.1, 0.3, 0.01),
        ("first-order", 0.1, 1.0, 0.01), ("first-order", 0.03, 1.0, 0.01),
        ("first-order", 0.01, 0.3, 0.0),
        ("first-order", 0.3, 0.3, 0.0), ("first-order", 0.1, 0.3, 0.0),
        ("first-order", 0.3, 0.0, 0.003), ("first-order", 0.3, 0.0, 0.0),
        ("exact", 0.3, 0.3, 0.01), ("exact", 0.3, 0.0, 0.0),
    ]  # fmt: skip
    return [
        {**common, "method": method, "inner_lr": alpha, "earlier_losses": c, "weight_decay": decay}
        for method, alpha, c, decay in kinds
    ]  # fmt: skip


def recommend_for_experiment(
    experiment: Experiment,
    *,
    budget: int | None = None,
    candidates: Sequence[Table] | None = None,
    goal: Goal | None = None,
    validation_splits: int | None = None,
    final_seeds: int = 1,
    shots: int | None = None,
    seed: int = 0,
    say: Say = lambda line: None,
    subject: Subject | None = None,
) -> Recommendation:
    """Find the best method for an experiment's clients and model.

    ``budget`` is the number of gradient evaluations of one training run; by default that of the
    experiment. The search spends about six times as many. Rounds are chosen so that the recommended
    experiment keeps to the budget.
    """
    subject = subject or Subject.from_experiment(experiment)
    budget = gradient_budget(experiment, subject) if budget is None else budget
    if candidates is None:
        candidates = all_candidates(experiment.evaluation.adapt_steps)
    first, *others = _affordable(experiment, subject, candidates, budget, say)
    result = search(
        _with_algorithm(experiment, first), candidates=others, goal=goal,
        budget=TIMES * (validation_splits or 1) * budget,
        validation_splits=validation_splits,
        final_seeds=final_seeds, shots=shots, seed=seed, say=say, subject=subject,
    )  # fmt: skip
    best = replace(result.best, label="recommended")
    return Recommendation(replace(best, rounds=rounds_within(best, budget, subject)), result)


def recommend(
    data: FederatedDataset,
    model: Model,
    *,
    budget: int,
    adapt_steps: int = 3,
    batch_size: int = 20,
    participation: float = 0.5,
    seed: int = 0,
    objective: ObjectiveLike = None,
    parts: Parts | None = None,
    candidates: Sequence[Table] | None = None,
    goal: Goal | None = None,
    validation_splits: int | None = None,
    final_seeds: int = 1,
    shots: int | None = None,
    say: Say = lambda line: None,
) -> Recommendation:
    """Find the best method for these clients and this model, as ``headstart diagnose`` does.

    Candidates are judged by known clients that are kept out of training. Held-out examples and new
    clients are never used.

    Args:
        data: Clients' examples, split.
        model: What is trained.
        budget: Gradient evaluations of one training run; the search spends about six times as many.
        adapt_steps: Adaptation steps after which clients are judged.
        batch_size: Examples of a training batch.
        participation: Fraction of the known clients that take part in a round.
        seed: Decides the first model, every draw and the validation clients.
        objective: An objective, its class or its name; by default what fits the labels.
        parts: Which parameters are trained, adapted and kept at the client; by default all.
        candidates: Tables of options as in ``[algorithm]``, each with a ``name``, which may be of
            an algorithm of your own (``package.module:Class``); by default a fixed list.
        goal: ``new`` (validation clients), ``known`` (further examples of known clients) or both.
        validation_splits: How often each candidate is trained, each time without other clients.
        final_seeds: Seeds that each candidate of the last stage is trained with.
        shots: Clients are judged after adapting to at most this many examples; by default to all.
        say: Receives a line for each candidate and stage, such as ``print``.

    Train what it returns: ``hs.train(data, model, found.algorithm, rounds=found.rounds, …)``.
    """
    require_at_least(1, budget=budget)
    placeholder = FedAvg(batch_size=batch_size)
    check_arguments(data, model, placeholder, rounds=1)
    experiment = describe_experiment(
        data, model, placeholder, rounds=1, participation=participation, seed=seed,
        evaluation=EvaluationOptions(adapt_steps=adapt_steps), objective=objective,
        parts=parts or Parts(),
    )  # fmt: skip
    return recommend_for_experiment(
        experiment, budget=budget, candidates=candidates, goal=goal,
        validation_splits=validation_splits, final_seeds=final_seeds, shots=shots, seed=seed,
        say=say, subject=Subject(data, model, objective),
    )  # fmt: skip


def _affordable(
    experiment: Experiment, subject: Subject, candidates: Sequence[Table], budget: int, say: Say
) -> list[Table]:
    """Return the candidates that can train for at least one round in the first stage.

    Of n candidates each gets about a third of the search's budget divided by n. Leaving one out
    gives more to the others, so the dearest is left out first.
    """
    clients = count_active_clients(experiment.participation, subject.data.known_clients)
    examples = int(np.median(subject.data.train_counts))
    cost = {
        number: clients * build_algorithm(_whole(experiment, table)).gradients_per_update(examples)
        for number, table in enumerate(candidates)
    }
    kept = sorted(cost, key=lambda number: cost[number])
    while len(kept) > 2 and cost[kept[-1]] > TIMES * budget / (3 * len(kept)):
        say(f"too dear for {budget:,} gradients: {describe_method(candidates[kept.pop()])}")
    return [candidates[number] for number in sorted(kept)]


def _with_algorithm(experiment: Experiment, options: Table) -> Experiment:
    """Return the experiment with the options of a candidate, and of its own only ``KEPT``."""
    table = {k: v for k, v in experiment.to_table().items() if k != "label"}
    return Experiment.from_table({**table, "algorithm": _whole(experiment, options)})


def _whole(experiment: Experiment, options: Table) -> dict[str, object]:
    kept = {name: experiment.algorithm[name] for name in KEPT if name in experiment.algorithm}
    return {**kept, **options}


def gradient_budget(experiment: Experiment, subject: Subject | None = None) -> int:
    """Return the gradient evaluations of the experiment's training."""
    return _simulation(experiment, subject).gradient_evaluations(experiment.rounds)


def rounds_within(experiment: Experiment, budget: int, subject: Subject | None = None) -> int:
    """Return the most rounds that keep to a budget, at least 1."""
    return max(1, int(budget / _simulation(experiment, subject).gradient_evaluations(1)))


def _simulation(experiment: Experiment, subject: Subject | None) -> Simulation:
    subject = subject or Subject.from_experiment(experiment)
    return Simulation(
        subject.data,
        subject.model,
        experiment.build_algorithm(),
        participation=experiment.participation,
        seed=experiment.seed,
        parts=experiment.parts,
        objective=subject.objective,
    )
