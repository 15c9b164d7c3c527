"""Run and comparison folders made by hand: small, exact, and nothing is trained."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Maker = Callable[..., Path]
COLUMNS = (
    "client", "name", "kind", "train_examples", "test_examples", "classes",
    "loss_before", "loss_after", "accuracy_before", "accuracy_after",
)  # fmt: skip


def described(values: Sequence[float]) -> dict[str, Any]:
    v = np.asarray(values, float)
    several = len(v) > 1
    return {
        "count": len(v),
        "mean": float(v.mean()),
        "ci95": float(v.std(ddof=1)) if several else None,
        "min": float(v.min()),
        "p10": float(np.percentile(v, 10)),
    }


def scores(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    before, after = zip(*pairs, strict=True)
    return {"accuracy": {"before": described(before), "after": described(after)}}


def summary_of(
    known: Sequence[tuple[float, float]], new: Sequence[tuple[float, float]], **changes: Any
) -> dict[str, Any]:
    curve = {"accuracy": [0.5, 0.9, None], "ci95": [0.1, None, None]}
    table = {
        "algorithm": "per-fedavg",
        "label": "Per-FedAvg",
        "data": "digits, class-groups",
        "clients": {"known": len(known), "new": len(new)},
        "rounds": 20,
        "seed": 0,
        "seconds": 1.5,
        "gradient_evaluations": 1200,
        "gradient_evaluations_per_client": {"round": 10, "adaptation": 3},
        "adapt_steps": 3,
        "adapt_on": "train",
        **scores(known),
        "new_clients": scores(new) if new else None,
        "adaptation": {
            "steps": [0, 1, 2],
            "known_clients": curve,
            "new_clients": curve if new else None,
        },
        "host": {"python": "3.11", "cores": 2, "devices": ["cpu"], "versions": {"jax": "0.10"}},
    }
    return table | changes


def record_of(summary: dict[str, Any], round: int) -> dict[str, Any]:
    keys = ("adapt_steps", "adapt_on", "accuracy", "new_clients")
    return {
        "round": round,
        "gradient_evaluations": 60 * round,
        "train_loss": 1 / round if round else None,
        **{key: summary[key] for key in keys},
    }


def write_clients(
    path: Path, parts: dict[str, Sequence[tuple[float, float]]], names: list[str]
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        rows = [(kind, *pair) for kind, pairs in parts.items() for pair in pairs]
        for c, (kind, before, after) in enumerate(rows):
            name = names[c] if c < len(names) else f"c{c}"
            writer.writerow([c, name, kind, 64, 16, 5, 1.0, 0.5, before, after])


@pytest.fixture
def make_run() -> Maker:
    """Write a run's folder; keyword arguments replace entries of the summary."""

    def make(
        folder: Path,
        known: Sequence[tuple[float, float]] = ((0.5, 0.9), (0.4, 1.0), (0.6, 0.8)),
        new: Sequence[tuple[float, float]] = ((0.3, 0.9), (0.5, 0.7)),
        names: Sequence[str] = (),
        **changes: Any,
    ) -> Path:
        folder.mkdir(parents=True)
        summary = summary_of(known, new, **changes)
        lines = [json.dumps(record_of(summary, round)) + "\n" for round in (0, 10, 20)]
        (folder / "config.toml").write_text(f"label = {json.dumps(summary['label'])}\n")
        (folder / "metrics.jsonl").write_text("".join(lines))
        (folder / "summary.json").write_text(json.dumps(summary))
        write_clients(folder / "clients.csv", {"trained": known, "new": new}, list(names))
        return folder

    return make


def row_of(label: str, slug: str, afters: dict[int, float], new: bool) -> dict[str, Any]:
    values = list(afters.values())
    width = 0.02 if len(values) > 1 else None
    stat = {"mean": float(np.mean(values or [0])), "ci95": width, "values": values, "p10": 0.5}
    part = {"before": stat, "after": stat} if values else None
    line = {"accuracy": [0.5, 0.9, 0.9], "ci95": [0.1, None, 0.05]}
    curve = {"steps": [0, 1, 2], "known_clients": line, "new_clients": line if new else None}
    return {
        "label": label,
        "algorithm": {"name": "fedavg"},
        "seeds": list(afters),
        "runs": [f"{slug}/seed-{seed}" for seed in afters],
        "diverged": {},
        "gradient_evaluations": 1200 if values else None,
        "gradient_evaluations_per_client": {"round": 10, "adaptation": 3} if values else None,
        "seconds": 1.0,
        "known_clients": part,
        "new_clients": part if new else None,
        "adaptation": curve if values else None,
        "difference": {"known_clients": None, "new_clients": None},
    }


@pytest.fixture
def make_comparison(make_run: Maker) -> Maker:
    """Write a comparison of a baseline and one method with a given paired difference."""

    def make(
        folder: Path,
        difference: tuple[float, float | None] = (0.05, 0.02),
        label: str = "Better",
        seeds: Sequence[int] = (0, 1),
        new: bool = True,
        diverged: dict[str, str] | None = None,
        **changes: Any,
    ) -> Path:
        mean, width = difference
        base = row_of("Base", "base", dict.fromkeys(seeds, 0.8), new)
        other = row_of(label, "other", dict.fromkeys(seeds, 0.8 + mean), new)
        found = {"mean": mean, "ci95": width, "differences": [mean] * len(seeds), "verdict": "?"}
        other["difference"] = {"known_clients": found, "new_clients": found if new else None}
        gone = row_of("Gone", "gone", {}, new)
        gone |= {"diverged": diverged or {}, "runs": [f"gone/seed-{s}" for s in diverged or {}]}
        rows = [base, other, gone] if diverged else [base, other]
        for row, slug in ((base, "base"), (other, "other")):
            for seed in seeds:
                more = {} if new else {"new": ()}
                made = {"label": row["label"], "seed": seed, **more, **changes}
                make_run(folder / slug / f"seed-{seed}", **made)
        table = {
            "data": {"source": "digits", "partition": "class-groups"},
            "rounds": [20],
            "seeds": list(seeds),
            "adapt_steps": 3,
            "adapt_on": changes.get("adapt_on", "train"),
            "baseline": "Base",
            "rows": rows,
        }
        (folder / "comparison.json").write_text(json.dumps(table))
        return folder

    return make
