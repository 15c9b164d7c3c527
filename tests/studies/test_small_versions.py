"""Every study at its small size, from data to page.

Accuracies were measured with this code (two seeds, two kinds of machine code) and are held to
±7 percentage points: a client has about 30 test digits, two seeds are few, and rounding differs
between machines. The differences between methods that must vanish are held to their own bounds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import STUDIES, Results, build_page, run_study
from studies.seed_statistics import after, mean, records_of_cell

IN_EVERY_RUN = "generalized-fig1"
"""The study that `make test` also runs from data to page."""
NEAR = 7.0

MEASURED = {
    "per-fedavg-table1": {
        "cifar-4/fedavg": 80.8,
        "cifar-4/first-order": 80.2,
        "cifar-4-alpha/hessian-free": 77.8,
        "cifar-4-different/exact": 87.1,
    },
    "per-fedavg-time": {"fedavg": 80.8, "hessian-free": 80.5},
    "per-fedavg-aruba": {"fedavg": 90.2, "aruba": 93.4, "hessian-free": 94.1},
    "per-fedavg-arxiv1": {"r0.2-tau5/fedavg": 81.9, "r0.4-tau5/first-order": 82.2},
    "generalized-fig1": {"nu0/exact": 93.2, "nu3/exact": 96.5},
    "left-open": {"halves/cifar-4-alpha/fedavg": 80.9, "dirichlet-0.1/nu3": 80.8},
    "natural": {"writers/fedavg": 95.6, "writers/exact": 95.9},
    "recommended": {"mnist-groups/1000/fedavg": 93.6, "mnist-groups/1000/fedavg-batches": 89.8},
    "when-it-pays": {"0/fedavg-20/3200": 95.5, "1/local/3200": 90.5},
    "diagnosis": {"digits-1/fedavg": 75.5, "digits-groups/exact": 90.2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == IN_EVERY_RUN else pytest.mark.slow) for n in STUDIES],
)
def test_a_quick_study_runs_learns_and_makes_its_page(name: str, folder: Path) -> None:
    study, results = STUDIES[name], Results(folder, name)
    assert run_study(study, results, folder / "runs" / name, seeds=range(2), quick=True) > 0
    for cell, expected in MEASURED[name].items():
        found = mean(results.records, cell)
        assert found is not None and found.mean == pytest.approx(expected, abs=NEAR), cell
    if name == "per-fedavg-table1":
        _hessian_free_is_exact_up_to_its_difference_step(results)
    if name == "per-fedavg-aruba":
        _plus_is_plain_after_one_step(results)
    assert not any("diverged" in record for record in results.records)
    section = study.section(results.records)
    assert section.claims and all(claim.evidence for claim in section.claims)
    page = build_page(folder, folder / "page.md")[0].read_text()
    assert study.title in page and "Made with `--quick`" in page


def _hessian_free_is_exact_up_to_its_difference_step(results: Results) -> None:
    """α = 0.04 and δ = 10⁻³: the two meta-gradients agree far below one digit's worth."""
    for row in ("cifar-4", "cifar-4-alpha", "cifar-4-different"):
        pairs = [records_of_cell(results.records, f"{row}/{m}") for m in ("hessian-free", "exact")]
        for seed in pairs[0]:
            one, other = (after(records[seed]) for records in pairs)
            assert one == pytest.approx(other, abs=1.0), row


def _plus_is_plain_after_one_step(results: Results) -> None:
    """ARUBA++ learns from a client's first gradient only for the second step."""
    plain, plus = (records_of_cell(results.records, cell) for cell in ("aruba", "aruba-plus"))
    for seed in plain:
        assert after(plain[seed]) == after(plus[seed])
