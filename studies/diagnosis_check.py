"""Compare the recommendations of ``headstart diagnose`` with the results of training.

The settings are those of the other studies, whose training is done, and digits with partitions from
identical to completely different clients. Every setting is diagnosed with a seed that no training
run uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart._diagnosis.pilot import Gain
from headstart._experiments.configuration import Experiment
from studies import first_version, generalized, natural_clients, table1
from studies.seed_statistics import FAILS, HOLDS, OPEN, Gap, gap, markdown_table, records_of_cell
from studies.settings import algorithm
from studies.small_versions import QUICK_TRIES, is_small, shrink
from studies.study import Claim, Piece, Record, Section
from studies.tuning import TUNING_SEED, Contender, grid

REQUIRED_SHARE = 10 / 12
"""The share of settings in which the recommendation must be right."""
FEWEST_SETTINGS = 12


@dataclass(frozen=True)
class Setting:
    """A setting to diagnose, and the cells that hold its training results."""

    key: str
    title: str
    cells: Sequence[str]
    """The cells of the meta-learned start and of FedAvg."""
    tables: Sequence[Mapping[str, Any]]
    """Their experiments with the tuning seed; incomplete until the step sizes are chosen."""

    def piece(self, quick: bool) -> Piece | None:
        """Return the diagnosis to run, or None until the step sizes are chosen."""
        if len(self.tables) < 2:
            return None
        tables = [shrink(dict(table)) if quick else table for table in self.tables]
        ours, plain = map(Experiment.from_table, tables)
        return Piece(f"{self.key}/diagnosis", ours, diagnosed_against=plain)


DIGITS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "digits-iid": ("digits, random split", {"partition": "iid"}),
    "digits-100": ("digits, Dirichlet 100", {"partition": "dirichlet", "alpha": 100.0}),
    "digits-1": ("digits, Dirichlet 1", {"partition": "dirichlet", "alpha": 1.0}),
    "digits-0.1": ("digits, Dirichlet 0.1", {"partition": "dirichlet", "alpha": 0.1}),
    "digits-0.01": ("digits, Dirichlet 0.01", {"partition": "dirichlet", "alpha": 0.01}),
    "digits-groups": ("digits, class groups", {"partition": "class-groups"}),
    "digits-own": ("digits, own labels per client", {"partition": "iid", "own_labels": True}),
}
TRIES = grid(inner_lr=[0.03, 0.1, 0.3], local_lr=[0.03, 0.1, 0.3])
MORE_SEEDS = 2
"""Runs on digits take a second, so they use this many times the requested seeds."""


def digits_table(key: str) -> dict[str, Any]:
    """Return the experiment without its algorithm."""
    data = {"source": "digits", "clients": 20, **DIGITS[key][1]}
    if data["partition"] == "dirichlet":
        data["examples"] = 90
    return {
        "rounds": 200,
        "participation": 0.5,
        "data": data,
        "model": {"name": "mlp", "hidden": [32]},
        "evaluation": {"every": 100, "adapt_steps": 3},
    }


def digits_contenders(key: str) -> list[Contender]:
    """Return FedAvg and Per-FedAvg with the same trials; one local step, as in the demo."""
    common = {"local_steps": 1, "batch_size": 20}
    return [
        Contender(f"{key}/fedavg", "FedAvg + update", algorithm("fedavg", **common), TRIES),
        Contender(
            f"{key}/exact", "Per-FedAvg (exact)", algorithm("exact", **common, inner_steps=3), TRIES
        ),
    ]


class DiagnosisCheck:
    """The study."""

    name = "diagnosis"
    title = "Accuracy of the diagnosis"
    summary = "the recommendations of `headstart diagnose` against the results of training"
    reads: Sequence[str] = (
        table1.Table1.name,
        first_version.FirstVersion.name,
        generalized.Generalized.name,
        natural_clients.NaturalClients.name,
    )

    def pieces(self, seeds: Sequence[int], quick: bool, done: Sequence[Record]) -> list[Piece]:
        """Return training on digits and a diagnosis of every setting; quick: two partitions."""
        pieces: list[Piece] = []
        keys = ["digits-1", "digits-groups"] if quick else list(DIGITS)
        more = range(len(seeds) * (1 if quick else MORE_SEEDS))
        for key in keys:
            for contender in digits_contenders(key):
                pieces += contender.pieces(digits_table(key), more, quick, done)
        settings = [
            s
            for s in all_settings(done, QUICK_TRIES if quick else None)
            if not quick or s.key in keys
        ]
        return pieces + [p for s in settings if (p := s.piece(quick)) is not None]

    def section(self, records: Sequence[Record]) -> Section:
        """Show every setting with both gains, and how often they agree."""
        tries = QUICK_TRIES if any(map(is_small, records)) else None
        rows, right, total = [], 0, 0
        for setting in all_settings(records, tries):
            found = _compare(records, setting)
            if found is None:
                continue
            diagnosis, truth = found
            agrees = _has_gain(truth) == (diagnosis["recommendation"] == "per-fedavg")
            right, total = right + agrees, total + 1
            pilot = diagnosis["pilot"]
            rows.append([
                setting.title, *_differences(diagnosis), Gain(*pilot["gain_of_updating"]),
                Gain(*pilot["gain_of_meta_learning"]), WORDS[diagnosis["recommendation"]], truth,
                "yes" if agrees else "**no**",
            ])  # fmt: skip
        return Section(TEXT.format(table=markdown_table(HEAD, rows)), claims=[_claim(right, total)])


HEAD = (
    "setting", "beyond chance: labels", "examples", "pilot: own steps", "pilot: meta-learning",
    "recommended", "training: meta-learning", "correct",
)  # fmt: skip
WORDS = {
    "per-fedavg": "Per-FedAvg",
    "fedavg-update": "FedAvg + update",
    "one-model": "one model",
}
TEXT = """\
*Beyond chance* is the share of clients that are farther from the mean than chance explains.
*Pilot* is what the diagnosis measured on training data alone, with all rounds where they are cheap
and at least a fifth of them elsewhere: the gain of a few steps on a client's own data from FedAvg's
model, and the further gain of starting from Per-FedAvg's. *Training* is that further gain on
held-out data after all rounds, mean ± 95 % interval over seeds. It comes from the other studies
and, for digits, from runs with step sizes tuned for both methods. A gain counts if it is at least
one percentage point and its interval excludes zero. The diagnosis uses a seed that no training run
uses.

{table}"""


def _differences(diagnosis: Mapping[str, Any]) -> list[str]:
    return [f"{100 * diagnosis[k]['share_beyond_chance']:.0f} %" for k in ("labels", "examples")]


def _compare(records: Sequence[Record], setting: Setting) -> tuple[Record, Gap] | None:
    """Return the stored diagnosis and the gain in training, or None if one is missing."""
    diagnoses = records_of_cell(records, f"{setting.key}/diagnosis")
    truth = gap(records, setting.cells[0], setting.cells[1])
    if not diagnoses or truth is None or truth.ci95 is None:
        return None
    return next(iter(diagnoses.values()))["diagnosis"], truth


def _has_gain(truth: Gap) -> bool:
    assert truth.ci95 is not None
    return Gain(truth.mean, truth.ci95).pays


def _claim(right: int, total: int) -> Claim:
    text = "the recommendation of `headstart diagnose` agrees with the result of training"
    verdict = (
        OPEN if total < FEWEST_SETTINGS else HOLDS if right >= REQUIRED_SHARE * total else FAILS
    )
    return Claim(text, verdict, [f"correct in {right} of {total} settings (required: 10 of 12)"])


def all_settings(records: Sequence[Record], tries: int | None = None) -> list[Setting]:
    """Return digits from similar to different clients, then the papers' and natural settings."""
    found = []
    for key, (title, _) in DIGITS.items():
        found.append(
            _tuned_setting(
                key, title, digits_table(key), digits_contenders(key), records, "", tries
            )
        )
    for row in table1.ROWS:
        tables = [table1.setting(row, m, TUNING_SEED) for m in ("hessian-free", "fedavg")]
        cells = [f"{table1.Table1.name}:{row.key}/{m}" for m in ("hessian-free", "fedavg")]
        found.append(Setting(row.key, row.title, cells, tables))
    for r, tau in first_version.PANELS[::3]:
        tables = [first_version.setting(r, tau, m, TUNING_SEED) for m in ("exact", "fedavg")]
        cells = [
            f"{first_version.FirstVersion.name}:{first_version.cell(r, tau, m)}"
            for m in ("exact", "fedavg")
        ]
        title = f"MNIST, ten users, r = {r:g}, τ = {tau}"
        found.append(Setting(f"ten-users-{r:g}-{tau}", title, cells, tables))
    steps = (generalized.ADAPT_STEPS, 0)
    tables = [generalized.setting(nu, "exact", TUNING_SEED) for nu in steps]
    cells = [f"{generalized.Generalized.name}:{generalized.cell(nu)}" for nu in steps]
    found.append(Setting("cifar-dirichlet", "CIFAR-10, Dirichlet 0.01", cells, tables))
    for dataset in natural_clients.NATURAL_DATASETS:
        plain, _, exact = dataset.contenders()
        prefix = f"{natural_clients.NaturalClients.name}:"
        found.append(
            _tuned_setting(
                dataset.key, dataset.title, dataset.table(), [plain, exact], records, prefix, tries
            )
        )
    return found


def _tuned_setting(
    key: str, title: str, table: Mapping[str, Any], contenders: Sequence[Contender],
    records: Sequence[Record], prefix: str, tries: int | None,
) -> Setting:  # fmt: skip
    """Return the setting with the step sizes that tuning chose for each method."""
    own = [
        {**r, "cell": r["cell"].removeprefix(prefix)}
        for r in records
        if r["cell"].startswith(prefix)
    ]
    tables = [
        {**table, "seed": TUNING_SEED, "algorithm": {**contender.algorithm, **best}}
        for contender in reversed(contenders)
        if (best := contender.best(own, tries)) is not None
    ]
    return Setting(key, title, [f"{prefix}{c.key}" for c in reversed(contenders)], tables)
