"""Every metric from sums over blocks, against a plain formula or scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as exact

from headstart import models
from headstart.data import Schema
from headstart.errors import ConfigError, DataError
from headstart.models import Classification, MultiLabel, Objective, Regression, make_objective
from headstart.models.objectives._classification import AUC, AUC_BINS, CALIBRATION_BINS

EXAMPLES = 400
NUMBERS = Schema(shape=(2,), target="number")
LABELS = Schema(shape=(2,), classes=4, target="labels")


def given(params: Any, x: jax.Array) -> jax.Array:
    """The inputs are the outputs."""
    return x


GIVEN = models.from_functions(lambda key: jnp.zeros(()), given)


def classes(count: int) -> Schema:
    return Schema(shape=(count,), classes=count)


def measured(objective: Objective, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The metrics from the sums of three blocks; the sum over all is the same."""
    parts = np.array_split(np.arange(len(y)), 3)
    statistics = [
        np.asarray(objective.score(jnp.zeros(()), (jnp.asarray(outputs[p]), jnp.asarray(y[p])))[1])
        for p in parts
    ]
    sums = np.sum([s.sum(axis=0, dtype=float) for s in statistics], axis=0)
    whole = np.concatenate(statistics).sum(axis=0, dtype=float)
    np.testing.assert_allclose(sums, whole, rtol=1e-12)
    objective.check_sums(sums, len(y))
    assert len(sums) == objective.width
    return {name: float(value) for name, value in objective.values(sums, len(y)).items()}


def logits_and_labels(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that know something of the labels; the classes are of different sizes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(count, EXAMPLES, p=np.arange(1, count + 1) / np.arange(1, count + 1).sum())
    logits = rng.normal(size=(EXAMPLES, count)) + 1.2 * np.eye(count)[y]
    return logits.astype(np.float32), y.astype(np.int32)


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_classification_metrics_are_those_of_scikit_learn(count: int) -> None:
    logits, y = logits_and_labels(count)
    names = ("accuracy", "balanced-accuracy", "macro-f1")
    found = measured(Classification(GIVEN, classes(count), names), logits, y)
    answers = logits.argmax(axis=1)
    assert found["accuracy"] == pytest.approx(exact.accuracy_score(y, answers))
    assert found["balanced-accuracy"] == pytest.approx(exact.balanced_accuracy_score(y, answers))
    assert found["macro-f1"] == pytest.approx(exact.f1_score(y, answers, average="macro"))


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("sure", [0.1, 1.0, 10.0])
def test_auc_is_exact_up_to_pairs_in_one_bin(count: int, sure: float) -> None:
    """|AUC − exact| ≤ ½ Σ_b p_b q_b; and within 0.01, be the model sure or not."""
    logits, y = logits_and_labels(count)
    logits *= sure
    objective = Classification(GIVEN, classes(count), ("auc",))
    found = measured(objective, logits, y)["auc"]
    p = softmax(logits.astype(float))
    options = {} if count == 2 else {"multi_class": "ovr", "average": "macro"}
    wanted = exact.roc_auc_score(y, p[:, 1] if count == 2 else p, **options)
    assert abs(found - wanted) <= 0.01
    statistics = objective.statistics(jnp.asarray(logits), jnp.asarray(y))
    histogram = np.asarray(statistics).sum(axis=0).reshape(2, -1, AUC_BINS)
    shares = histogram / histogram.sum(axis=-1, keepdims=True)
    assert abs(found - wanted) <= 0.5 * np.mean(np.sum(shares[0] * shares[1], axis=-1)) + 1e-6


def test_calibration_error_is_the_mean_gap_over_bins() -> None:
    logits, y = logits_and_labels(3)
    found = measured(Classification(GIVEN, classes(3), ("calibration-error",)), logits, y)
    p = softmax(logits)
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((sure * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [
        np.mean(bins == b) * abs(sure[bins == b].mean() - right[bins == b].mean())
        for b in np.unique(bins)
    ]
    assert found["calibration-error"] == pytest.approx(sum(gaps), abs=1e-6)


def test_classes_a_client_lacks_do_not_count() -> None:
    """Class 2 is neither there nor answered; nobody can rank examples of a single class."""
    logits = np.array([[2, 0, -9], [0, 2, -9], [0, 2, -9]], np.float32)
    names = ("balanced-accuracy", "macro-f1", "auc")
    objective = Classification(GIVEN, classes(3), names)
    found = measured(objective, logits, np.array([0, 1, 0]))
    assert found["balanced-accuracy"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["macro-f1"] == pytest.approx(2 / 3)
    assert np.isnan(measured(objective, logits, np.array([1, 1, 1]))["auc"])


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_regression_metrics_are_in_the_labels_units(shift: float) -> None:
    rng = np.random.default_rng(0)
    y = (5 + 2 * rng.normal(size=EXAMPLES)).astype(np.float32)
    answers = y + rng.normal(size=EXAMPLES).astype(np.float32)
    schema = Schema(shape=(1,), target="number", target_shift=shift, target_scale=0.5)
    outputs = ((answers - shift) * 0.5)[:, None]
    found = measured(Regression(GIVEN, schema, ("rmse", "mae", "r2")), outputs, y)
    assert found["rmse"] == pytest.approx(exact.root_mean_squared_error(y, answers), rel=1e-5)
    assert found["mae"] == pytest.approx(exact.mean_absolute_error(y, answers), rel=1e-5)
    assert found["r2"] == pytest.approx(exact.r2_score(y, answers), rel=1e-4)


def test_regression_of_several_numbers_averages_over_them() -> None:
    rng = np.random.default_rng(1)
    y, answers = rng.normal(size=(2, EXAMPLES, 3)).astype(np.float32)
    schema = Schema(shape=(3,), target="number", targets=3)
    found = measured(Regression(GIVEN, schema, ("rmse", "r2")), answers, y)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - answers) ** 2)), rel=1e-5)
    assert found["r2"] == pytest.approx(exact.r2_score(y, answers), rel=1e-4)


def test_r2_of_labels_that_do_not_vary_is_undefined() -> None:
    y = np.full(5, 3.0, np.float32)
    found = measured(Regression(GIVEN, NUMBERS, ("r2",)), y[:, None] + 1, y)
    assert np.isnan(found["r2"])


def test_multi_label_metrics_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random((EXAMPLES, 4)) < [0.5, 0.2, 0.7, 0.1]).astype(np.uint8)
    logits = (rng.normal(size=y.shape) + 2 * y - 1).astype(np.float32)
    names = ("label-accuracy", "macro-f1", "exact-match")
    found = measured(MultiLabel(GIVEN, LABELS, names), logits, y)
    answers = logits > 0
    assert found["label-accuracy"] == pytest.approx(np.mean(answers == y))
    assert found["exact-match"] == pytest.approx(exact.accuracy_score(y, answers))
    assert found["macro-f1"] == pytest.approx(exact.f1_score(y, answers, average="macro"))


def test_losses_are_squared_errors_and_binary_cross_entropies() -> None:
    outputs, y = jnp.array([[1.0], [3.0]]), jnp.array([0.0, 5.0])
    objective = Regression(GIVEN, Schema(shape=(1,), target="number", target_scale=0.5))
    assert objective.losses(jnp.zeros(()), (outputs, y)).tolist() == [1.0, 0.25]
    assert float(objective.loss(jnp.zeros(()), (outputs, y))) == 0.625
    assert objective.predict(jnp.zeros(()), outputs).tolist() == [2.0, 6.0]
    labels = Schema(shape=(2,), classes=2, target="labels")
    logits, on = jnp.array([[0.0, 2.0]]), jnp.array([[1, 0]], jnp.uint8)
    found = float(MultiLabel(GIVEN, labels).loss(jnp.zeros(()), (logits, on)))
    assert found == pytest.approx((np.log(2) + np.log(1 + np.exp(2))) / 2)


@pytest.mark.parametrize("bad", [-1.0, 500.0])
def test_sums_that_no_examples_can_have_are_refused(bad: float) -> None:
    for objective in (Classification(GIVEN, classes(3)), MultiLabel(GIVEN, LABELS)):
        with pytest.raises(DataError, match="claims"):
            objective.check_sums(np.array([bad]), EXAMPLES)
    with pytest.raises(DataError, match="cannot be right"):
        Regression(GIVEN, NUMBERS).check_sums(np.array([bad if bad < 0 else 1e39]), EXAMPLES)


def test_equal_objectives_are_equal() -> None:
    one, other = (Regression(models.mlp([4]), NUMBERS, ("mae",)) for _ in range(2))
    assert one == other and hash(one) == hash(other)
    assert one != Regression(models.mlp([4]), NUMBERS)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"set objective\.name to 'regression'"):
        Classification(GIVEN, NUMBERS)
    with pytest.raises(ConfigError, match=r"objective\.metrics='acuracy' is not known"):
        Classification(GIVEN, classes(3), ("acuracy",))
    with pytest.raises(ConfigError, match="twice"):
        Classification(GIVEN, classes(3), ("auc", "auc"))
    with pytest.raises(ConfigError, match=r"objective\.nmae is not an option"):
        make_objective(GIVEN, classes(3), {"nmae": "regression"})
    with pytest.raises(ConfigError, match="another model"):
        make_objective(models.mlp(), classes(3), Classification(GIVEN, classes(3)))


@dataclass(frozen=True)
class Huber(Regression):
    """Squared near zero, straight beyond."""

    bend: float = 1.0

    def example_loss(self, outputs: jax.Array, y: jax.Array) -> jax.Array:
        gap = jnp.abs(outputs - self.schema.decode_target(y[:, None]))
        inside = jnp.minimum(gap, self.bend)
        return inside * (gap - inside / 2)


@dataclass(frozen=True)
class Ranked(Classification):
    """Classification that is judged by its AUC."""

    def available(self) -> tuple[AUC, ...]:
        return (AUC(),)


def test_ones_own_objective_by_class_and_by_name() -> None:
    batch = (jnp.array([[0.5], [3.0]]), jnp.array([0.0, 0.0]))
    schema = Schema(shape=(1,), target="number")
    table = {"name": f"{__name__}:Huber", "bend": 2, "metrics": ["mae"]}
    for made in (make_objective(GIVEN, schema, Huber), make_objective(GIVEN, schema, table)):
        bend = getattr(made, "bend")  # noqa: B009
        assert made.losses(jnp.zeros(()), batch).tolist() == [0.125, bend * (3 - bend / 2)]
    assert made.primary.name == "mae"
    assert make_objective(GIVEN, classes(3), Ranked).primary.name == "auc"


def test_the_default_fits_the_labels() -> None:
    text = Schema(shape=(4,), classes=3, vocabulary=3)
    kinds = {"Classification": classes(3), "Regression": NUMBERS, "MultiLabel": LABELS,
             "Sequences": text}  # fmt: skip
    for name, schema in kinds.items():
        assert type(make_objective(GIVEN, schema)).__name__ == name
