"""Defaults belong to the interface: an experiment file that names no option gets them.

τ = 10 local steps on batches of 40 are those of P, section 5. The step sizes are our choice for the
embedded digits; the norm of 5 is measured in docs/stability.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headstart import aggregation
from headstart.algorithms import APFL, ARUBA, FedAvg, Local, PerFedAvg

TRAINING = {
    "local_lr": 0.05, "local_steps": 10, "local_epochs": None, "batch_size": 40,
    "weights": "uniform", "max_gradient_norm": 5.0, "full_batch_adaptation": False,
}  # fmt: skip
LOCAL_STEPS = {"local_lr_decay": "none", "local_optimizer": None}
SERVER_STEP = {
    "server_optimizer": None, "server_lr": 1.0, "warmup_rounds": 0, "server_lr_decay": "none",
    "decay_rounds": None, "weight_decay": 0.0,
}  # fmt: skip
AVERAGING = {
    **TRAINING, **LOCAL_STEPS, **SERVER_STEP, "inner_lr": 0.1, "random_iterate": False,
    "rates": "fixed", "rates_per_step": False, "rates_steps": None, "rates_method": None,
    "rates_lr": 0.1,
}  # fmt: skip
META = {
    "method": "exact",
    "inner_steps": 1,
    "delta": 1e-3,
    "same_batch": False,
    "earlier_losses": 0.0,
}
DEFAULTS = [
    (FedAvg, AVERAGING),
    (PerFedAvg, AVERAGING | META),
    (Local, TRAINING | LOCAL_STEPS | {"inner_lr": 0.1}),
    (
        APFL,
        TRAINING | LOCAL_STEPS | SERVER_STEP | {"inner_lr": 0.1, "mixing": 0.5, "adaptive": True},
    ),
    (ARUBA, TRAINING | SERVER_STEP | {"zeta": 1.0, "power": 1.0, "plus": 0.0}),
    (aggregation.Clip, {"norm": 1.0}),
    (aggregation.Quantise, {"width": 8, "range": 1.0}),
    (aggregation.Noise, {"deviation": 1.0}),
    (aggregation.TrimmedMean, {"trim": 0.2}),
    (aggregation.Krum, {"byzantine": 1, "selected": 1}),
    (aggregation.GeometricMedian, {"iterations": 32, "smoothing": 1e-6}),
]


@pytest.mark.parametrize("kind, expected", DEFAULTS)
def test_every_option_has_its_default(kind: Any, expected: dict[str, Any]) -> None:
    made = kind()
    assert {field.name: getattr(made, field.name) for field in dataclasses.fields(made)} == expected


SERVER_NUMBERS = {"server_lr", "weight_decay"}
AVERAGING_NUMBERS = {"local_lr", "inner_lr", "rates_lr"} | SERVER_NUMBERS
NUMBERS = {
    FedAvg: AVERAGING_NUMBERS,
    PerFedAvg: AVERAGING_NUMBERS | {"delta"},
    Local: {"local_lr", "inner_lr"},
    APFL: {"local_lr", "inner_lr", "mixing"} | SERVER_NUMBERS,
    ARUBA: {"local_lr", "zeta", "power", "plus"} | SERVER_NUMBERS,
    aggregation.Clip: {"norm"},
    aggregation.Quantise: {"range"},
    aggregation.Noise: {"deviation"},
    aggregation.TrimmedMean: set(),
    aggregation.Krum: set(),
    aggregation.GeometricMedian: {"smoothing"},
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_a_formula_can_change_without_compiling_again(kind: Any) -> None:
    """All other options change the program and are part of it."""
    fields = dataclasses.fields(kind)
    assert {f.name for f in fields if not f.metadata.get("static", False)} == NUMBERS[kind]
