"""The page of a diagnosis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headstart._atomic_files import write_text
from headstart._diagnosis.assessment import Assessment, explain_label_bound
from headstart._diagnosis.measuring import Diagnosis, summarize_distances
from headstart._diagnosis.pilot import Pilot
from headstart._experiments.recommendation import Recommendation
from headstart._metric import DASH
from headstart.heterogeneity import Distances
from headstart.records._base import JsonTable
from headstart.report import (
    Axis,
    Chart,
    Command,
    Details,
    Glossary,
    Guide,
    HeatMap,
    Page,
    PageSection,
    Panel,
    Points,
    Table,
    View,
    write_page,
)
from headstart.report._charts import shorten
from headstart.report._palette import BLUE
from headstart.report._shared_parts import quote_path

MOST_SHOWN = 50
"""Clients in a heat map."""
MOST_NAMED = 30
"""Columns of a heat map with names."""
FARTHEST = 10
"""Clients in the table of those farthest from the mean."""
RECOMMENDED = "recommended.toml"
GAMMAS = ("gamma_G", "gamma_H")


def write_diagnosis(
    diagnosis: Diagnosis,
    assessment: Assessment,
    command: str,
    folder: Path,
    advice: Recommendation | None = None,
) -> Path:
    """Write ``report.html``, figures as PNG and SVG, and the numbers as ``diagnosis.json``.

    With ``advice`` also the recommended experiment, as ``recommended.toml``.
    """
    table = {
        "recommendation": assessment.recommendation,
        "reading": [assessment.title, *assessment.sentences],
        **diagnosis.to_table(),
        "recommended": None if advice is None else advice.to_table(),
    }
    if advice is not None:
        write_text(folder / RECOMMENDED, advice.experiment.to_toml())
    write_text(folder / "diagnosis.json", json.dumps(table, indent=2, ensure_ascii=False) + "\n")
    recommended = None if advice is None else folder / RECOMMENDED
    page = diagnosis_page(diagnosis, assessment, command, recommended)
    return write_page(page, folder / "report.html")


def diagnosis_page(
    diagnosis: Diagnosis, assessment: Assessment, command: str, recommended: Path | None = None
) -> Page:
    """Return the page of a diagnosis; ``recommended`` is the file of the recommended experiment."""
    about = diagnosis.about
    return Page(
        title="Would personalisation pay here?",
        subtitle=f"{about['description']} · {about['known_clients']:,} clients in training · "
        f"{_labels(about)}",
        headline=[assessment.title, *assessment.sentences],
        sections=[
            PageSection(
                "Results",
                [
                    clients_table(diagnosis),
                    distances_table(diagnosis),
                    gammas_table(diagnosis),
                    pilot_table(diagnosis),
                ],
            ),
            distances_chart(diagnosis),
            labels_chart(diagnosis),
            gains_chart(diagnosis),
            PageSection("Clients to look at", [farthest_table(diagnosis)]),
            PageSection("What to do next", next_commands(assessment, recommended)),
            PageSection("How to read this page", [WORDS]),
            PageSection(
                "How it was made", [Details("Cost and command", facts=facts(diagnosis, command))]
            ),
        ],
    )


def facts(diagnosis: Diagnosis, command: str) -> list[tuple[str, str]]:
    """Return what the diagnosis cost, and the command."""
    part = diagnosis.label_part
    gradients = diagnosis.estimate.gradients + (0 if part is None else part.gradients)
    return [
        ("gradient evaluations of the pilot", f"{diagnosis.pilot.gradient_evaluations:,}"),
        ("gradients of single examples for the constants", f"{gradients:,}"),
        ("seconds", f"{diagnosis.seconds:.0f}"),
        ("command", command),
    ]


def _labels(about: JsonTable) -> str:
    """Say how many classes or labels there are, or that labels are numbers."""
    kind = next((kind for kind in ("classes", "labels") if kind in about), None)
    return "numbers to predict" if kind is None else f"{about[kind]} {kind}"


WORDS = Glossary([
    ("total variation", "half the sum of the differences between two label distributions: 0 for "
     "equal ones, 1 if no label is shared"),
    ("Wasserstein distance", "how far examples must be moved, on average, to turn one client's "
     "data into another's; a changed label counts as much as another picture"),
    ("by chance", "what 95 % of clients of the same size stay below if all draw from one "
     "distribution"),
    ("γ", "root mean square over clients of the distance of their gradient (G) or Hessian (H) from "
     "the mean: what the convergence theorems call the clients' difference"),
    ("pilot", "a short training on a part of the training data, scored on the rest of it; held-out "
     "data and new clients were not used"),
])  # fmt: skip


def clients_table(diagnosis: Diagnosis) -> Table:
    """Return how many examples and labels clients have."""
    about = diagnosis.about
    rows = [
        [name, *(f"{about[key][part]:g}" for part in ("min", "median", "max"))]
        for name, key in (("training examples", "train_examples"),
                          ("held-out examples", "held_out_examples"),
                          ("classes", "classes_per_client"), ("labels", "labels_per_client"))
        if key in about
    ]  # fmt: skip
    return Table("Clients", ["of a client", "least", "median", "most"], rows)


def distances_table(diagnosis: Diagnosis) -> Table:
    """Return both distances to the mean, with what chance explains."""
    rows = []
    for name, distances in (("labels (total variation)", diagnosis.labels),
                            ("examples (Wasserstein)", diagnosis.examples)):  # fmt: skip
        facts = summarize_distances(distances)
        rows.append([name, f"{facts['mean']:.3g}", f"{facts['by_chance']:.3g}",
                     f"{100 * facts['share_beyond_chance']:.0f} %", facts["how"]])  # fmt: skip
    head = ["distance to the mean", "mean", "by chance up to", "clients beyond chance", "how"]
    return Table("How different the clients' data are", head, rows)


def gammas_table(diagnosis: Diagnosis) -> Table:
    """Return γ_G and γ_H as measured, what explains them, and their bound and estimate."""
    gammas, part = diagnosis.gammas(), diagnosis.label_part
    applies = part is None or part.bound_applies
    names = {
        "measured": "measured",
        "by chance": "few examples alone would give",
        "labels explain": "labels alone would give",
        "label bound": "labels allow at most" + " (does not apply)" * (not applies),
        "examples suggest": "examples suggest about",
    }
    rows = [
        [name, *(f"{gammas[key][g]:.3g}" if g in gammas[key] else DASH for g in GAMMAS)]
        for key, name in names.items()
        if key in gammas
    ]
    note = " ".join([
        f"At FedAvg's model after the pilot; {diagnosis.estimate.describe()}.",
        *_about_labels(diagnosis), ESTIMATE,
    ])  # fmt: skip
    return Table("How different the clients' gradients are", ["", "γ_G", "γ_H"], rows, note)


ESTIMATE = (
    "Examples suggest L_Z·W₁ and ρ_Z·W₁ (P §4.1): an estimate, not a bound, as L_Z and ρ_Z are the "
    "largest values over some pairs of examples and a sliced W₁ is a lower estimate."
)


def _about_labels(diagnosis: Diagnosis) -> list[str]:
    """Say where the label bound comes from, and whether its premise holds."""
    part = diagnosis.label_part
    if part is None:
        return ["There is no label bound, as every example has several labels."]
    return [
        f"If clients differ in their labels alone, γ_G is at most 2B·TV (P §4.1), with B = "
        f"{part.B:.3g} the largest gradient of an example; TV and B are those of the "
        f"{part.examples:,} examples that γ_G is measured on; for all training data B is a lower "
        "estimate.",
        *(explain_label_bound(part) or [
            f"Labels explain {100 * part.share_explained:.0f} % of γ_G², and chance may explain "
            "the rest."]),
    ]  # fmt: skip


def pilot_table(diagnosis: Diagnosis) -> Table:
    """Return what the pilot reached, and what each method gained."""
    pilot = diagnosis.pilot
    steps = f"{pilot.adapt_steps} step{'s' * (pilot.adapt_steps != 1)} on own data"
    rows = [
        ["FedAvg as it is", pilot.text(pilot.common), DASH,
         _format_step_sizes(pilot.options["fedavg"])],
        [f"FedAvg, {steps}", pilot.text(pilot.updated), f"{pilot.of_updating}",
         _format_step_sizes(pilot.options["fedavg"])],
        [f"Per-FedAvg, {steps}", pilot.text(pilot.meta), f"{pilot.of_meta_learning}",
         _format_step_sizes(pilot.options["per-fedavg"])],
    ]  # fmt: skip
    note = (
        f"{pilot.rounds} rounds, {len(pilot.meta)} repetitions; mean over clients. Gain: how much "
        "better than the row above, ± 95 % (over clients or repetitions, whichever is wider)."
    )
    return Table("Pilot", ["", pilot.metric.word, "gain", "options"], rows, note)


def _gains(pilot: Pilot) -> tuple[np.ndarray, np.ndarray]:
    """Return every client's gain by own steps after FedAvg, and by meta-learning on top."""
    gain = pilot.metric.gain
    own, meta = gain(pilot.updated, pilot.common), gain(pilot.meta, pilot.updated)
    return own.mean(axis=0), meta.mean(axis=0)


def _signed(diagnosis: Diagnosis, value: float) -> str:
    metric = diagnosis.pilot.metric
    return DASH if np.isnan(value) else metric.signed(value / metric.scale)


def _unit(diagnosis: Diagnosis) -> str:
    """Return the unit of gains: points of a share, else the metric itself."""
    metric = diagnosis.pilot.metric
    return metric.difference_unit.strip() or metric.word


def _in_unit(diagnosis: Diagnosis) -> str:
    return f", in {_unit(diagnosis)}"


def _format_step_sizes(options: JsonTable) -> str:
    return f"α = {options['inner_lr']:g}, β = {options['local_lr']:g}, τ = {options['local_steps']}"


def farthest_table(diagnosis: Diagnosis) -> Table:
    """Return the clients that differ most, and what they gain."""
    distances = diagnosis.examples
    _, meta = _gains(diagnosis.pilot)
    rows = []
    for place in np.argsort(-distances.to_mean, kind="stable")[:FARTHEST]:
        client = int(distances.clients[place])
        top = int(np.argmax(diagnosis.label_shares[client]))
        share = f"({100 * diagnosis.label_shares[client, top]:.0f} %)"
        rows.append([
            str(diagnosis.names[client]), f"{distances.to_mean[place]:.3g}",
            "yes" if distances.beyond_chance[place] else "no",
            f"{diagnosis.train_counts[client]:,}",
            f"{shorten(diagnosis.class_names[top], 14)} {share}", _signed(diagnosis, meta[client]),
        ])  # fmt: skip
    label = "class" if "classes" in diagnosis.about else "label"
    head = ["client", "distance", "beyond chance", "training examples", f"most frequent {label}",
            "gain of meta-learning"]  # fmt: skip
    note = f"Wasserstein distance to the mean; gain in the pilot{_in_unit(diagnosis)}."
    return Table("Farthest from the mean", head, rows, note)


def next_commands(assessment: Assessment, recommended: Path | None = None) -> list[Command]:
    """Return what to do with the recommendation."""
    if recommended is not None:
        file = quote_path(recommended)
        return [
            Command("Train as recommended", [f"headstart run {file}"]),
            Command("Be sure: compare it with your own settings over several seeds",
                    [f"headstart compare {file} EXPERIMENT.toml --seeds 5"]),
        ]  # fmt: skip
    name = "per-fedavg" if assessment.recommendation == "per-fedavg" else "fedavg"
    return [
        Command("Train as recommended",
                [f"headstart run EXPERIMENT.toml --set algorithm.name={name}"]),
        Command("Find good step sizes first", ["headstart plan EXPERIMENT.toml --search"]),
        Command("Be sure: both methods in full, over several seeds",
                ["headstart compare EXPERIMENT.toml --algorithms fedavg,per-fedavg --seeds 5"]),
    ]  # fmt: skip


def distances_chart(diagnosis: Diagnosis) -> Chart:
    """Return heat maps of the distances between every two clients."""
    kinds = [
        ("examples", diagnosis.examples, "Wasserstein"),
        ("labels", diagnosis.labels, "total variation"),
    ]
    return Chart(
        "distances",
        "Which clients are alike",
        "Dark: far apart. Clients that are alike are next to each other.",
        [
            View(name, [_distances_panel(diagnosis, distances, measure, name.title())], "distances")
            for name, distances, measure in kinds
        ],
    )


def labels_chart(diagnosis: Diagnosis) -> Chart:
    """Return a heat map of label shares, clients in the order of their distances."""
    order = diagnosis.labels.clients[order_by_similarity(diagnosis.labels)]
    classes = [shorten(name, 14) for name in diagnosis.class_names]
    panel = _heat_panel(
        diagnosis.label_shares[order], "class", classes, _client_names(diagnosis, order), "share"
    )
    return Chart(
        "classes",
        "Which labels each client has",
        "Share of each class (of numbers: of each tenth) in a client's training data.",
        [View("", [panel])],
    )


def gains_chart(diagnosis: Diagnosis) -> Chart:
    """Return a dot per client: its gain by own steps, and by meta-learning on top."""
    unit, (own, meta) = _unit(diagnosis), _gains(diagnosis.pilot)
    names = _client_names(diagnosis, np.arange(len(own)))
    hovers = [
        [f"client {name}", f"own steps {_signed(diagnosis, x)}",
         f"meta-learning {_signed(diagnosis, y)}"]
        for name, x, y in zip(names, own, meta, strict=True)
    ]  # fmt: skip
    defined = np.isfinite(own) & np.isfinite(meta)
    panel = Panel(
        Axis(f"own steps after FedAvg ({unit})"),
        Axis(f"meta-learning on top ({unit})"),
        [Points(own[defined].tolist(), meta[defined].tolist(), BLUE, 8,
                [hover for hover, there in zip(hovers, defined, strict=True) if there],
                opacity=0.7)],
        guides=[Guide(x=0, solid=True), Guide(y=0, solid=True)],
    )  # fmt: skip
    return Chart(
        "gains",
        "What each client gains in the pilot",
        "Across: a few steps on own data from FedAvg's model. Up: starting from Per-FedAvg's "
        f"model instead. Mean over repetitions{_in_unit(diagnosis)}.",
        [View("", [panel], "gains")],
    )


def order_by_similarity(distances: Distances) -> np.ndarray:
    """Return places of at most 50 clients, similar ones adjacent (hierarchical clustering)."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    size = min(len(distances.clients), MOST_SHOWN)
    if size < 3:
        return np.arange(size)
    near = squareform(distances.pairwise[:size, :size], checks=False)
    return leaves_list(linkage(near, "average", optimal_ordering=True))


def _distances_panel(diagnosis: Diagnosis, distances: Distances, measure: str, title: str) -> Panel:
    order = order_by_similarity(distances)
    names = _client_names(diagnosis, distances.clients[order])
    values = distances.pairwise[np.ix_(order, order)].copy()
    np.fill_diagonal(values, np.nan)  # distances of 0 to itself would only widen the scale
    return _heat_panel(values, "client", names, names, measure, title)


def _heat_panel(
    values: np.ndarray,
    x_title: str,
    x_names: Sequence[str],
    y_names: Sequence[str],
    measure: str,
    title: str = "",
) -> Panel:
    shown = [[None if np.isnan(v) else round(float(v), 4) for v in row] for row in values]
    texts = [
        [f"{y}, {x}: {v:.3g}" for x, v in zip(x_names, row, strict=True)]
        for y, row in zip(y_names, values, strict=True)
    ]
    few = tuple(x_names) if len(x_names) <= MOST_NAMED else ()
    return Panel(
        Axis(x_title, (-0.5, len(x_names) - 0.5), few),
        Axis("client", (len(y_names) - 0.5, -0.5), tuple(y_names)),
        [HeatMap(shown, texts, measure)],
        title,
        height=max(260, 110 + 15 * len(y_names)),
    )


def _client_names(diagnosis: Diagnosis, clients: np.ndarray) -> list[str]:
    return [shorten(str(diagnosis.names[int(client)]), 14) for client in clients]
