"""The diagnosis as a page of its own, with its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.atomic_files import write_bytes, write_text
from headstart.diagnosis.measuring import Diagnosis, distance_facts
from headstart.diagnosis.pilot import Pilot
from headstart.diagnosis.reading import Reading, more_than_labels
from headstart.heterogeneity import Distances
from headstart.metric import DASH
from headstart.report.content import Cells, Command, Content
from headstart.report.drawing import short
from headstart.report.figures import panels, save_figures, style
from headstart.report.page import PAGE, assemble
from headstart.report.palette import BLUE, GREY
from headstart.report.panels import figure as panel
from headstart.report.panels import safe
from headstart.report.plots import Plot, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as Panel

MOST_SHOWN = 50
"""Clients in a heat map."""
FARTHEST = 10


def write_diagnosis(diagnosis: Diagnosis, reading: Reading, command: str, folder: Path) -> Path:
    """``report.html``, figures as PNG and SVG, and the numbers as ``diagnosis.json``."""
    table = {
        "recommendation": reading.recommendation,
        "reading": [reading.title, *reading.sentences],
        **diagnosis.to_table(),
    }
    write_text(folder / "diagnosis.json", json.dumps(table, indent=2, ensure_ascii=False) + "\n")
    save_figures(figures_of(diagnosis), folder / "figures")
    page = folder / PAGE
    text = assemble(content_of(diagnosis, reading, command), plots_of(diagnosis), "figures")
    write_bytes(page, text.encode("utf-8", "replace"))
    return page


def content_of(diagnosis: Diagnosis, reading: Reading, command: str) -> Content:
    """All texts of the page."""
    about = diagnosis.about
    return Content(
        title="Would personalisation pay here?",
        subtitle=f"{about['description']} · {about['known_clients']:,} clients in training · "
        f"{_labels(about)}",
        headline=[reading.title, *reading.sentences],
        tables=[clients_table(diagnosis), distances_table(diagnosis), gammas_table(diagnosis),
                pilot_table(diagnosis)],
        details=[farthest_table(diagnosis)],
        configs=[],
        facts=[("gradient evaluations of the pilot", f"{diagnosis.pilot.gradient_evaluations:,}"),
               ("gradients of single examples for the constants",
                f"{_gradients(diagnosis):,}"),
               ("seconds", f"{diagnosis.seconds:.0f}"), ("command", command)],
        commands=next_commands(reading),
        reading=WORDS,
    )  # fmt: skip


def _labels(about: Mapping[str, Any]) -> str:
    """How many classes or labels there are, or that labels are numbers."""
    found = next((kind for kind in ("classes", "labels") if kind in about), None)
    return "numbers to predict" if found is None else f"{about[found]} {found}"


def _gradients(diagnosis: Diagnosis) -> int:
    part = diagnosis.label_part
    return diagnosis.estimate.gradients + (0 if part is None else part.gradients)


WORDS = [
    ("total variation", "half the sum of the differences between two label distributions: 0 for "
     "equal ones, 1 if no label is shared"),
    ("Wasserstein distance", "how far examples must be moved, on average, to turn one client's "
     "data into another's; a changed label counts as much as another picture"),
    ("by chance", "what 95 % of clients of the same size stay below if all draw from one "
     "distribution"),
    ("γ", "root mean square over clients of the distance of their gradient (G) or Hessian (H) from "
     "the mean: what the convergence theorems call the clients' difference"),
    ("pilot", "a short training on a part of the training data, scored on the rest of it; held-out "
     "data and new clients were not looked at"),
]  # fmt: skip


def clients_table(diagnosis: Diagnosis) -> Cells:
    """Sizes and classes."""
    about = diagnosis.about
    rows = [
        [name, *(f"{about[key][part]:g}" for part in ("min", "median", "max"))]
        for name, key in (("training examples", "train_examples"),
                          ("held-out examples", "held_out_examples"),
                          ("classes", "classes_per_client"), ("labels", "labels_per_client"))
        if key in about
    ]  # fmt: skip
    return Cells("Clients", ["of a client", "least", "median", "most"], rows)


def distances_table(diagnosis: Diagnosis) -> Cells:
    """Both distances against chance."""
    rows = []
    for name, found in (("labels (total variation)", diagnosis.labels),
                        ("examples (Wasserstein)", diagnosis.examples)):  # fmt: skip
        facts = distance_facts(found)
        rows.append([name, f"{facts['mean']:.3g}", f"{facts['by_chance']:.3g}",
                     f"{100 * facts['share_beyond_chance']:.0f} %", facts["how"]])  # fmt: skip
    head = ["distance to the mean", "mean", "by chance up to", "clients beyond chance", "how"]
    return Cells("How different the clients' data are", head, rows)


def gammas_table(diagnosis: Diagnosis) -> Cells:
    """γ's as measured, what explains them, the labels' bound, and the examples' estimate."""
    found, part = diagnosis.gammas(), diagnosis.label_part
    applies = part is None or part.bound_applies
    names = {
        "measured": "measured",
        "by chance": "few examples alone would give",
        "labels explain": "labels alone would give",
        "label bound": "labels allow at most" + " (does not apply)" * (not applies),
        "examples suggest": "examples suggest about",
    }
    rows = [
        [
            name,
            *(f"{found[key][g]:.3g}" if g in found[key] else "–" for g in ("gamma_G", "gamma_H")),
        ]
        for key, name in names.items()
        if key in found
    ]
    note = " ".join([
        f"At FedAvg's model after the pilot; {diagnosis.estimate.describe()}.",
        *_about_labels(diagnosis), ESTIMATE,
    ])  # fmt: skip
    return Cells("How different the clients' gradients are", ["", "γ_G", "γ_H"], rows, note)


ESTIMATE = (
    "Examples suggest L_Z·W₁ and ρ_Z·W₁ (P §4.1): an estimate, not a bound, as L_Z and ρ_Z are the "
    "largest values over some pairs of examples and a sliced W₁ is a lower estimate."
)


def _about_labels(diagnosis: Diagnosis) -> list[str]:
    """Where the label bound comes from, and whether its premise holds."""
    part = diagnosis.label_part
    if part is None:
        return ["There is no label bound, as every example has several labels."]
    return [
        f"If clients differ in their labels alone, γ_G is at most 2B·TV (P §4.1), with B = "
        f"{part.B:.3g} the largest gradient of an example; TV and B are those of the "
        f"{part.examples:,} examples that γ_G is measured on; for all training data B is a lower "
        "estimate.",
        *(more_than_labels(part) or [
            f"Labels explain {100 * part.share_explained:.0f} % of γ_G², and chance may explain "
            "the rest."]),
    ]  # fmt: skip


def pilot_table(diagnosis: Diagnosis) -> Cells:
    """Levels and gains of the pilot."""
    made = diagnosis.pilot
    steps = f"{made.adapt_steps} step{'s' * (made.adapt_steps != 1)} on own data"
    rows = [
        ["FedAvg as it is", made.text(made.common), "–", _steps_of(made.options["fedavg"])],
        [f"FedAvg, {steps}", made.text(made.updated), f"{made.of_updating}",
         _steps_of(made.options["fedavg"])],
        [f"Per-FedAvg, {steps}", made.text(made.meta), f"{made.of_meta_learning}",
         _steps_of(made.options["per-fedavg"])],
    ]  # fmt: skip
    note = (
        f"{made.rounds} rounds, {len(made.meta)} repetitions; mean over clients. Gain: how much "
        "better than the row above, ± 95 % (over clients or repetitions, whichever is wider)."
    )
    return Cells("Pilot", ["", made.metric.word, "gain", "options"], rows, note)


def _gains(made: Pilot) -> tuple[np.ndarray, np.ndarray]:
    """Every client's gain by own steps after FedAvg, and by meta-learning on top."""
    gain = made.metric.gain
    own, meta = gain(made.updated, made.common), gain(made.meta, made.updated)
    return own.mean(axis=0), meta.mean(axis=0)


def _signed(diagnosis: Diagnosis, value: float) -> str:
    metric = diagnosis.pilot.metric
    return DASH if np.isnan(value) else metric.signed(value / metric.scale)


def _unit(diagnosis: Diagnosis) -> str:
    """What gains are counted in: points of a share, else the metric's own units."""
    metric = diagnosis.pilot.metric
    return metric.difference_unit.strip() or metric.word


def _in_unit(diagnosis: Diagnosis) -> str:
    return f", in {_unit(diagnosis)}"


def _steps_of(options: Any) -> str:
    return f"α = {options['inner_lr']:g}, β = {options['local_lr']:g}, τ = {options['local_steps']}"


def farthest_table(diagnosis: Diagnosis) -> Cells:
    """Who differs most, and what they gain."""
    found, made = diagnosis.examples, diagnosis.pilot
    meta = made.metric.gain(made.meta, made.updated).mean(axis=0)
    rows = []
    for place in np.argsort(-found.to_mean, kind="stable")[:FARTHEST]:
        client = int(found.clients[place])
        top = int(np.argmax(diagnosis.label_shares[client]))
        share = f"({100 * diagnosis.label_shares[client, top]:.0f} %)"
        rows.append([
            str(diagnosis.names[client]), f"{found.to_mean[place]:.3g}",
            "yes" if found.beyond_chance[place] else "no", f"{diagnosis.train_counts[client]:,}",
            f"{short(diagnosis.class_names[top], 14)} {share}", _signed(diagnosis, meta[client]),
        ])  # fmt: skip
    label = "class" if "classes" in diagnosis.about else "label"
    head = ["client", "distance", "beyond chance", "training examples", f"most frequent {label}",
            "gain of meta-learning"]  # fmt: skip
    note = f"Wasserstein distance to the mean; gain in the pilot{_in_unit(diagnosis)}."
    return Cells("Farthest from the mean", head, rows, note)


def next_commands(reading: Reading) -> list[Command]:
    """What to do with the recommendation."""
    name = "per-fedavg" if reading.recommendation == "per-fedavg" else "fedavg"
    return [
        Command("Train as recommended",
                [f"headstart run EXPERIMENT.toml --set algorithm.name={name}"]),
        Command("Find good step sizes first", ["headstart plan EXPERIMENT.toml --search"]),
        Command("Be sure: both methods in full, over several seeds",
                ["headstart compare EXPERIMENT.toml --algorithms fedavg,per-fedavg --seeds 5"]),
    ]  # fmt: skip


def plots_of(diagnosis: Diagnosis) -> list[Plot]:
    """Heat maps, and every client's gain in the pilot."""
    return [
        Plot(
            "distances", "Who is like whom",
            "Dark: far apart. Clients that are alike stand side by side.",
            [View("examples", [distance_panel(diagnosis, diagnosis.examples, "Wasserstein")]),
             View("labels", [distance_panel(diagnosis, diagnosis.labels, "total variation")])],
        ),
        Plot(
            "classes", "Who holds what",
            "Share of each class (of numbers: of each tenth) in a client's training data.",
            [View("", [classes_panel(diagnosis)])],
        ),
        Plot(
            "gains", "What each client gains in the pilot",
            "Across: a few steps on own data from FedAvg's model. Up: starting from Per-FedAvg's "
            f"model instead. Mean over repetitions{_in_unit(diagnosis)}.",
            [View("", [gains_panel(diagnosis)])],
        ),
    ]  # fmt: skip


def order_of(distances: Distances) -> np.ndarray:
    """Places of at most so many clients, neighbours alike (hierarchical clustering)."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    size = min(len(distances.clients), MOST_SHOWN)
    if size < 3:
        return np.arange(size)
    near = squareform(distances.pairwise[:size, :size], checks=False)
    return leaves_list(linkage(near, "average", optimal_ordering=True))


def distance_panel(diagnosis: Diagnosis, found: Distances, name: str) -> Panel:
    """Distances of every two clients."""
    order = order_of(found)
    names = _names(diagnosis, found.clients[order])
    apart = found.pairwise[np.ix_(order, order)].copy()
    np.fill_diagonal(apart, np.nan)  # nobody is far from himself: the scale is for the others
    return _heat(apart, names, names, name, square=True)


def classes_panel(diagnosis: Diagnosis) -> Panel:
    """Label shares, clients in the order of their distances."""
    found = diagnosis.labels
    order = found.clients[order_of(found)]
    shares = diagnosis.label_shares[order]
    return _heat(shares, _classes(diagnosis), _names(diagnosis, order), "share")


def _heat(
    z: np.ndarray, x: Sequence[str], y: Sequence[str], name: str, *, square: bool = False
) -> Panel:
    trace = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else round(float(v), 4) for v in row] for row in z],
        "x": list(range(len(x))),
        "y": list(range(len(y))),
        "text": [[f"{a}, {b}: {v:.3g}" for b, v in zip(x, row, strict=True)]
                 for a, row in zip(y, z, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
        "colorscale": [[0, "#F4F8FB"], [1, BLUE]],
        "colorbar": {"title": {"text": name}, "thickness": 12, "outlinewidth": 0},
    }  # fmt: skip
    few = len(x) <= 30
    axis = {"tickvals": list(range(len(x))), "ticktext": list(x)} if few else {"visible": False}
    own = {"tickvals": list(range(len(y))), "ticktext": list(y)} if len(y) <= 50 else {}
    height = max(260, 110 + 15 * len(y))
    return panel(
        [trace],
        x={"title": "client" if square else "class", "showgrid": False, **axis},
        y={"title": "client", "autorange": "reversed", "showgrid": False, **own},
        height=height,
    )


def gains_panel(diagnosis: Diagnosis) -> Panel:
    """One dot per client."""
    made = diagnosis.pilot
    x, y = _gains(made)
    names = _names(diagnosis, np.arange(len(x)))
    trace = {
        "type": "scatter", "mode": "markers", "x": x.tolist(), "y": y.tolist(),
        "marker": {"color": BLUE, "size": 8, "opacity": 0.7},
        "text": [f"<b>client {n}</b><br>own steps {_signed(diagnosis, a)}<br>"
                 f"meta-learning {_signed(diagnosis, b)}"
                 for n, a, b in zip(names, x, y, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    zero = {"zeroline": True, "zerolinecolor": GREY}
    return panel(
        [trace],
        x={"title": f"own steps after FedAvg ({_unit(diagnosis)})", **zero},
        y={"title": f"meta-learning on top ({_unit(diagnosis)})", **zero},
    )


def _classes(diagnosis: Diagnosis) -> list[str]:
    return [safe(name, 14) for name in diagnosis.class_names]


def _names(diagnosis: Diagnosis, clients: np.ndarray) -> list[str]:
    return [safe(str(diagnosis.names[int(client)]), 14) for client in clients]


def figures_of(diagnosis: Diagnosis) -> dict[str, Figure]:
    """The same, for papers and slides."""
    with style():
        return {"distances": distances_figure(diagnosis), "gains": gains_figure(diagnosis)}


def distances_figure(diagnosis: Diagnosis) -> Figure:
    """Both heat maps side by side."""
    drawn, axes = panels(2, width=9.0, height=4.0)
    for ax, found, title in zip(
        axes, (diagnosis.examples, diagnosis.labels),
        ("Examples (Wasserstein)", "Labels (total variation)"), strict=True,
    ):  # fmt: skip
        order = order_of(found)
        image = ax.imshow(found.pairwise[np.ix_(order, order)], cmap="Blues", vmin=0)
        names = [short(str(diagnosis.names[int(c)]), 10) for c in found.clients[order]]
        if len(names) <= 25:
            ax.set_xticks(range(len(names)), names, rotation=90, fontsize=6.5)
            ax.set_yticks(range(len(names)), names, fontsize=6.5)
        else:
            ax.set(xticks=[], yticks=[])
        ax.set(title=title, xlabel="client", ylabel="client")
        ax.grid(visible=False)
        drawn.colorbar(image, ax=ax, shrink=0.8)
    return drawn


def gains_figure(diagnosis: Diagnosis) -> Figure:
    """Every client's gains in the pilot."""
    made = diagnosis.pilot
    drawn, (ax,) = panels(1, width=4.6, height=3.4)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.axvline(0, color=GREY, linewidth=0.8)
    x, y = _gains(made)
    ax.scatter(x, y, s=18, color=BLUE, alpha=0.7, linewidth=0)
    unit = _unit(diagnosis)
    ax.set(xlabel=f"own steps after FedAvg ({unit})", ylabel=f"meta-learning on top ({unit})",
           title="Gains of each client in the pilot")  # fmt: skip
    return drawn
