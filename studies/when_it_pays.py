"""Beyond the papers: when is a meta-learned start, or are learned rates, worth their cost?

Embedded digits, 16 clients in training and 8 new ones. What varies: the degree of conflict (the
share of classes that every client renames, ``data.own_labels``), the gradient evaluations of
training, local steps, the examples a client adapts to, and the steps it takes. Every method has its
step sizes chosen once per degree and budget, on training data alone, with a seed that no result
uses. FedAvg and Per-FedAvg have six trials (plain averaging or Adam at the server, three values of
α), ARUBA and local training three, learned rates two. All degrees have 3,200 gradient evaluations;
no conflict and complete conflict also have a tenth and ten times as many. With 3,200 there are also
other *kinds* of conflict: rotated images, and clients that hold only some of the classes.

Closed forms of the same questions are in :mod:`headstart.theory.when_it_pays`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart._experiments.configuration import Experiment
from headstart._experiments.recommendation import ADAM, STABLE
from headstart.report import Axis, Line, Panel, Points, SeriesStyle
from studies.seed_curves import label_styles
from studies.seed_statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Gap,
    Measure,
    after,
    describe_seeds,
    gap,
    make_claim,
    markdown_table,
    mean,
    records_of_cell,
)
from studies.settings import PLAIN as PAPER_STEPS
from studies.study import Claim, Piece, Record, Section
from studies.tuning import TUNING_SEED, Contender, grid

KNOWN, NEW, ACTIVE = 16, 8, 8
BATCH, STEPS = 20, 3
DEGREES = (0.0, 0.3, 0.6, 1.0)
BUDGETS = (320, 3_200, 32_000)
MIDDLE = 3_200
"""The budget of all degrees."""
CELLS = [
    (degree, budget)
    for degree in DEGREES
    for budget in BUDGETS
    if budget == MIDDLE or degree in (DEGREES[0], DEGREES[-1])
]
SHOTS = (1, 2, 5, 10, 20)
EQUAL_ROUNDS = 200
LEVEL = 2.0
"""Differences up to this many percentage points count as none: a run has 150 test digits."""


@dataclass(frozen=True)
class Kind:
    """A way in which clients differ, beside the degrees of conflict."""

    key: str
    title: str
    condition: str
    """The first half of its claim."""
    data: dict[str, Any]


KINDS = (
    Kind("rotated", "rotated images", "if clients see their images at different angles",
         {"partition": "iid", "own_rotation": 180.0}),
    Kind("groups", "class groups", "if clients hold different groups of classes",
         {"partition": "class-groups"}),
    Kind("dirichlet", "Dirichlet(0.1)", "if clients hold classes in shares from Dirichlet(0.1)",
         {"partition": "dirichlet", "alpha": 0.1, "examples": 74}),
)  # fmt: skip
QUICK_KIND, QUICK_METHODS = KINDS[0].key, ("fedavg-5", "rates")
Where = float | str
"""A degree of conflict, or the key of a kind."""
COMPARED: dict[Where, str] = {
    DEGREES[0]: "no conflict", DEGREES[-1]: "own labels", **{kind.key: kind.title for kind in KINDS}
}  # fmt: skip
"""What the tables of kinds show, with their titles."""
Point = tuple[float, str, Measure]
"""x, the name of the cell with a place for the method, and the measure."""


@dataclass(frozen=True)
class Method:
    """A method, its cost, and the options to try."""

    key: str
    label: str
    algorithm: dict[str, Any]
    tries: Sequence[dict[str, Any]]

    def contender(self, where: Where, budget: int) -> Contender:
        """Return the method for one degree or kind of conflict and one budget."""
        options = {**self.algorithm, "batch_size": BATCH}
        return Contender(cell(where, self.key, budget), self.label, options, self.tries)

    def rounds(self, budget: int) -> int:
        """Return the rounds that use up a budget; 0 if it is too small for one."""
        table = {"data": {"source": "digits"}, "algorithm": {**self.algorithm, **self.tries[0]}}
        algorithm = Experiment.from_table(table).build_algorithm()
        return budget // (ACTIVE * algorithm.gradients_per_update(BATCH))


SERVERS: list[dict[str, Any]] = [{**STABLE, "local_lr": 0.5}, {**ADAM, "local_lr": 0.2}]
TRIES = [
    {**server, "inner_lr": alpha} for server in SERVERS for alpha in (0.03, 0.1, 0.3)
]  # plain averaging first: the small version tries only the first two
NU: dict[str, Any] = {"name": "per-fedavg", "inner_steps": STEPS, "local_steps": 1}
METHODS = [
    Method("fedavg-1", "FedAvg + update, τ = 1", {"name": "fedavg", "local_steps": 1}, TRIES),
    Method("fedavg-5", "FedAvg + update, τ = 5", {"name": "fedavg", "local_steps": 5}, TRIES),
    Method("fedavg-20", "FedAvg + update, τ = 20", {"name": "fedavg", "local_steps": 20}, TRIES),
    Method("fedavg-50", "FedAvg + update, τ = 50", {"name": "fedavg", "local_steps": 50}, TRIES),
    Method("first-order", "Per-FedAvg (FO)", {**NU, "method": "first-order"}, TRIES),
    Method("exact", "Per-FedAvg (exact)", {**NU, "method": "exact"}, TRIES),
    Method("aruba", "ARUBA, τ = 5", {"name": "aruba", "local_steps": 5, **PAPER_STEPS},
           grid(local_lr=[0.03, 0.1, 0.3])),
    Method("rates", "learned rates",
           {**NU, "method": "first-order", **ADAM, "local_lr": 0.2, "rates": "per-array",
            "rates_per_step": True, "earlier_losses": 0.3}, grid(inner_lr=[0.1, 0.3])),
    Method("local", "local training", {"name": "local", "local_steps": 20, **PAPER_STEPS},
           [{"local_lr": step, "inner_lr": step} for step in (0.03, 0.1, 0.3)]),
]  # fmt: skip
PLAIN = ("fedavg-1", "fedavg-5", "fedavg-20", "fedavg-50")


def cell(where: Where, method: str, budget: int) -> str:
    """Return the name of a cell.

    >>> cell(0.3, "rates", 3200), cell("rotated", "rates", 3200)
    ('0.3/rates/3200', 'rotated/rates/3200')
    """
    return f"{where if isinstance(where, str) else f'{where:g}'}/{method}/{budget}"


def differences(where: Where) -> dict[str, Any]:
    """Return the options of ``[data]`` that make clients differ."""
    if isinstance(where, str):
        return next(kind.data for kind in KINDS if kind.key == where)
    return {"partition": "iid", "own_labels": where}


def setting(where: Where, rounds: int) -> dict[str, Any]:
    """Return the experiment without its algorithm."""
    return {
        "rounds": rounds,
        "participation": ACTIVE / KNOWN,
        "data": {
            "source": "digits", "clients": KNOWN + NEW, "new_clients": NEW,
            "test_fraction": 0.25, **differences(where),
        },
        "model": {"name": "mlp", "hidden": [80, 60]},
        "evaluation": {
            "every": max(1, rounds // 8), "adapt_steps": STEPS, "shots": list(SHOTS),
            "choose_steps": False,
        },
    }  # fmt: skip


class WhenItPays:
    """The study."""

    name = "when-it-pays"
    title = "When meta-learning pays"
    summary = "digits: degree and kind of conflict, budget, local steps, examples, adaptation steps"
    reads: Sequence[str] = ()

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return the trials, then every method, degree or kind, budget and seed."""
        pieces: list[Piece] = []
        for where, budget, method in _chosen(quick):
            table = setting(where, method.rounds(budget))
            contender = method.contender(where, budget)
            pieces += contender.pieces(table, seeds, quick, done)
        return pieces

    def section(self, records: Sequence[Record]) -> Section:
        """Show tables of accuracy and figures, by degree of conflict and by kind."""
        results = [r for r in records if r["seed"] != TUNING_SEED]
        degrees: dict[tuple[Where, int], str] = {(d, b): f"{d:g}: {b:,}" for d, b in CELLS}
        text = TEXT.format(
            seeds=describe_seeds(results) if results else "no seeds",
            new=_table(results, degrees, new_after_steps), known=_table(results, degrees, after),
            costs=markdown_table(*_costs(results)),
        )  # fmt: skip
        figures = {"where": _panels(results)}
        if _columns(results, [(kind.key, MIDDLE) for kind in KINDS]):
            kinds = {(where, MIDDLE): title for where, title in COMPARED.items()}
            text += KINDS_TEXT.format(
                new=_table(results, kinds, new_after_steps), known=_table(results, kinds, after),
                differences=_differences(results),
            )  # fmt: skip
            figures["kinds"] = _kind_panels(results)
        return Section(text, figures, _claims(results))


def _chosen(quick: bool) -> list[tuple[Where, int, Method]]:
    """Return all cells; the small version has both extremes, and two methods of one kind."""
    cells: list[tuple[Where, int]] = [*CELLS, *((kind.key, MIDDLE) for kind in KINDS)]
    chosen = [(w, b, m) for w, b in cells for m in METHODS if m.rounds(b)]
    small: set[tuple[Where, str]] = {(w, m.key) for w in (DEGREES[0], DEGREES[-1]) for m in METHODS}
    small |= {(QUICK_KIND, key) for key in QUICK_METHODS}
    return [(w, b, m) for w, b, m in chosen if not quick or (b == MIDDLE and (w, m.key) in small)]


TEXT = """\
Embedded digits: 16 clients in training, 8 new ones, with about 56 training digits each. The *degree
of conflict* is the share of classes that every client renames (`data.own_labels`). The tables show
the accuracy in percent after three adaptation steps, mean ± 95 % interval over {seeds}, by degree
and by gradient evaluations of training. Step sizes and server were chosen for every method, degree
and budget on training data of the known clients, with a separate seed: six trials for FedAvg and
Per-FedAvg, three for ARUBA and local training, two for learned rates. Per-FedAvg has ν = 3;
*learned rates* is first-order with a rate for each array and step and earlier losses (c = 0.3).

New clients:

{new}

Clients in training:

{known}

![Accuracy of new clients by conflict, gradient evaluations, examples and adaptation steps](where)

The figure shows means over seeds. In the lower panels clients contradict each other completely
(degree 1) and training had 3,200 gradient evaluations.

What 3,200 gradient evaluations cost in communication, and the accuracy of clients in training at
degree 1 at the last evaluation in the first 200 rounds, that is for about equal bytes (ARUBA sends
more, local training none; τ = 50 has 80 rounds at most):

{costs}

A round of FedAvg with τ = 50 needs 400 gradient evaluations, so it has no column with 320. In the
claims, *the best FedAvg + update* is the one of τ = 1, 5, 20 and 50 that reaches most.
"""
KINDS_TEXT = """
Kinds of conflict, with the same methods, trials and 3,200 gradient evaluations. *Own labels* is
degree 1 from above. *Rotated images*: every client sees its digits at an angle of its own, uniform
in ±180° (`data.own_rotation`). *Class groups*: half of the clients hold five classes, the others
two (`partition = "class-groups"`), with 22 or 45 training digits each. *Dirichlet(0.1)*: every
client has class shares of its own. In the last three, all clients name the classes alike.

New clients:

{new}

Clients in training:

{known}

Learned rates minus the best FedAvg + update, paired by seed. *Ahead* or *behind*: the 95 %
interval lies above or below 0; *level*: it lies within ±2 points.

{differences}

![Accuracy of every method for each kind of conflict](kinds)

Dots are new clients with their 95 % interval, hollow dots clients in training.
"""


def _table(
    records: Sequence[Record],
    titles: Mapping[tuple[Where, int], str],
    measure: Measure,
) -> str:
    """Return a table with a row for each method and a column for each cell with results."""
    columns = _columns(records, list(titles))
    rows = [
        [method.label, *(mean(records, cell(w, method.key, b), measure) or "–" for w, b in columns)]
        for method in METHODS
    ]
    return markdown_table(["method", *(titles[column] for column in columns)], rows)


def _differences(records: Sequence[Record]) -> str:
    """Return a table of learned rates against the best FedAvg + update for each kind."""
    rows = []
    for where, title in COMPARED.items():
        row: list[Any] = [title]
        for measure in (new_after_steps, after):
            theirs = best_plain(records, where, MIDDLE, measure)
            ours = cell(where, "rates", MIDDLE)
            found = gap(records, ours, theirs, measure) if theirs else None
            if theirs and found:
                row += [theirs.split("/")[1].removeprefix("fedavg-"), found, standing(found)]
        rows += [row] if len(row) > 1 else []
    head = ["kind", "best τ, new", "difference", "", "best τ, in training", "difference", ""]
    return markdown_table(head, rows)


def standing(found: Gap) -> str:
    """Return where the first method stands: ahead, behind, level or undecided.

    >>> [standing(Gap(values)) for values in ([3, 3.1], [-3.1, -3], [0, 0.1], [-5, 5], [1])]
    ['ahead', 'behind', 'level', 'undecided', 'undecided']
    """
    if found.above() == HOLDS and found.mean > 0:
        return "ahead"
    if found.above() == FAILS:
        return "behind"
    return "level" if found.within(LEVEL) == HOLDS else OPEN


def new_after_steps(record: Record) -> float:
    """Return the accuracy of new clients after the adaptation steps, in percent."""
    return 100 * record["new"]["accuracy"][STEPS]


def new_after_shots(shots: int) -> Measure:
    """Return a measure: the accuracy of new clients that adapt to this many examples."""

    def measure(record: Record) -> float:
        curve = next(each["new"] for each in record["shots"] if each["shots"] == shots)
        return 100 * curve[STEPS]

    return measure


def new_after(steps: int) -> Measure:
    """Return a measure: the accuracy of new clients after this many adaptation steps."""
    return lambda record: 100 * record["new"]["accuracy"][steps]


def last_round(record: Record, most: int) -> int:
    """Return the last evaluated round up to this one."""
    return max(e["round"] for e in record["training"] if e["round"] <= most)


def known_at_round(number: int) -> Measure:
    """Return a measure: the accuracy of clients in training at an evaluated round, in percent."""
    return lambda record: next(100 * e["after"] for e in record["training"] if e["round"] == number)


def _columns(
    records: Sequence[Record], wanted: Sequence[tuple[Where, int]]
) -> list[tuple[Where, int]]:
    """Return those of the wanted cells that have results."""
    cells = {r["cell"] for r in records}
    return [
        (where, budget)
        for where, budget in wanted
        if any(cell(where, method.key, budget) in cells for method in METHODS)
    ]


def _kind_panels(records: Sequence[Record]) -> list[Panel]:
    """Return a panel for each kind of conflict with a row for each method."""
    rows = Axis(limits=(len(METHODS) - 0.5, -0.5), names=tuple(m.label for m in METHODS))
    panels = []
    for where, title in list(COMPARED.items())[1:]:
        marks = [
            mark
            for row, method in enumerate(METHODS)
            for mark in _dots(records, cell(where, method.key, MIDDLE), row, _styles()[method.key])
        ]
        panels.append(Panel(Axis("accuracy (%)", (0, 101)), rows, marks, title))
    return panels


def _dots(records: Sequence[Record], name: str, row: int, style: SeriesStyle) -> list[Points]:
    """Return the dots of a method in its row: clients in training, and new ones on top."""
    known, new = mean(records, name), mean(records, name, new_after_steps)
    if known is None or new is None:
        return []
    hover = [(style.label,)]
    return [
        Points([known.mean], [row], style.colour, 11, hover, shape="hollow dot", key=style.key),
        Points([new.mean], [row], style.colour, 11, hover, half_width=new.ci95, key=style.key),
    ]


def _panels(records: Sequence[Record]) -> list[Panel]:
    """Return accuracy against conflict, budget, examples and steps."""
    top, y = DEGREES[-1], Axis("accuracy of new clients (%)")
    panels: list[tuple[Axis, str, list[Point]]] = [
        (Axis("degree of conflict"), "3,200 gradient evaluations",
         [(d, cell(d, "{}", MIDDLE), new_after_steps) for d in DEGREES]),
        (Axis("gradient evaluations", log=True), "degree of conflict 1",
         [(b, cell(top, "{}", b), new_after_steps) for b in BUDGETS]),
        (Axis("examples that a client adapts to", log=True), "few examples",
         [(s, cell(top, "{}", MIDDLE), new_after_shots(s)) for s in SHOTS]),
        (Axis("adaptation steps", whole=True), "steps",
         [(n, cell(top, "{}", MIDDLE), new_after(n)) for n in range(11)]),
    ]  # fmt: skip
    return [
        Panel(x, y, [line for line in _lines(records, points) if line.x], title)
        for x, title, points in panels
    ]


def _lines(records: Sequence[Record], points: Sequence[Point]) -> list[Line]:
    """Return a line for each method through the means that exist."""
    styles = _styles()
    lines = []
    for method in METHODS:
        found = [
            (x, mean(records, name.format(method.key), measure)) for x, name, measure in points
        ]
        known = [(x, value.mean) for x, value in found if value is not None]
        lines.append(Line(styles[method.key], [x for x, _ in known], [y for _, y in known]))
    return lines


def _styles() -> dict[str, SeriesStyle]:
    """Return the styles by method; τ = 50 comes last and is dashed, so others keep a colour."""
    methods = sorted(METHODS, key=lambda method: method.key == "fedavg-50")
    styles = label_styles([method.label for method in methods])
    return {method.key: styles[method.label] for method in methods}


def _costs(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
    """Return a table of rounds and bytes, and accuracy after equally many rounds."""
    head = ["method", "gradients per client and round", "rounds", "MB sent", "known clients, round"]
    rows = []
    for method in METHODS:
        found = records_of_cell(records, cell(DEGREES[-1], method.key, MIDDLE))
        if found:
            record = next(iter(found.values()))
            rounds = record["config"]["rounds"]
            rows.append([
                method.label, record["gradient_evaluations"] // (ACTIVE * rounds), rounds,
                f"{sum(record['bytes'].values()) / 1e6:,.0f}", _at_equal_rounds(records, method),
            ])  # fmt: skip
    return head, rows


def _at_equal_rounds(records: Sequence[Record], method: Method) -> str:
    """Return the accuracy at the evaluation nearest to 200 rounds, of either longer budget."""
    ends = {}
    for budget in BUDGETS[1:]:
        name = cell(DEGREES[-1], method.key, budget)
        for record in records_of_cell(records, name).values():
            ends[name] = last_round(record, EQUAL_ROUNDS)
    name = max(ends, key=lambda name: ends[name])
    return f"{mean(records, name, known_at_round(ends[name]))} ({ends[name]})"


def best_plain(
    records: Sequence[Record], where: Where, budget: int, measure: Measure = new_after_steps
) -> str | None:
    """Return the FedAvg + update with the highest mean; None if there is none."""
    names = [cell(where, key, budget) for key in PLAIN]
    found = {name: value.mean for name in names if (value := mean(records, name, measure))}
    return max(found, key=lambda name: found[name], default=None)


def _claims(records: Sequence[Record]) -> list[Claim]:
    """Return the claims that have results; a small version has a single budget."""
    claims = [
        make_claim(
            "if clients agree, learned rates are level with the best FedAvg + update "
            f"(within {LEVEL:g} points)",
            _parts(records, [(DEGREES[0], MIDDLE)], lambda gap: gap.within(LEVEL)),
        ),
        make_claim(
            "if clients contradict each other, learned rates are ahead of the best FedAvg + update",
            _parts(records, [(degree, MIDDLE) for degree in DEGREES[1:]], Gap.above),
        ),
        make_claim(
            "if all classes conflict, they are still ahead with ten times the gradient evaluations",
            _parts(records, [(DEGREES[-1], BUDGETS[-1])], Gap.above),
        ),
        make_claim(
            "if all classes conflict, FedAvg with 20 local steps is a better start than with 1, "
            "for the same gradient evaluations",
            _parts(records, [(DEGREES[-1], b) for b in BUDGETS], Gap.above, one="fedavg-20",
                   other="fedavg-1"),
        ),
        *(
            make_claim(
                f"{kind.condition}, learned rates are ahead of the best FedAvg + update",
                _parts(records, [(kind.key, MIDDLE)], Gap.above),
            )
            for kind in KINDS
        ),
    ]  # fmt: skip
    return [claim for claim in claims if claim.evidence]


def _parts(
    records: Sequence[Record], cells: Sequence[tuple[Where, int]], judge: Callable[[Gap], str], *,
    one: str = "rates", other: str | None = None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Return verdict and evidence for new clients; the other method is by default the best."""
    parts = []
    for where, budget in cells:
        theirs = cell(where, other, budget) if other else best_plain(records, where, budget)
        ours = cell(where, one, budget)
        difference = gap(records, ours, theirs, new_after_steps) if theirs else None
        if difference is not None:
            title = COMPARED[where] if isinstance(where, str) else f"degree {where:g}"
            evidence = f"{title}, {budget:,} gradient evaluations: {difference}"
            parts.append((judge(difference), evidence))
    return parts
